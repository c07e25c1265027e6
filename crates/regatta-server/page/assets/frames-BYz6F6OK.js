var e=class{rest=``;feed(e){this.rest+=e;let n=[];for(let e=this.rest.indexOf(`

`);e>=0;e=this.rest.indexOf(`

`)){let r=t(this.rest.slice(0,e));this.rest=this.rest.slice(e+2),r&&n.push(r)}return n}};function t(e){let t=`message`,n=``;for(let r of e.split(`
`))r.startsWith(`event: `)?t=r.slice(7):r.startsWith(`data: `)&&(n+=r.slice(6));if(!n)return null;let r=JSON.parse(n);return t===`reset`?{kind:`reset`,topics:r.topics}:{kind:`frame`,frame:r}}var n=class{topics=new Map;seen=new Map;reset(e){for(let t of e)this.topics.set(t,new Map)}take(e,t){for(let{t,k:n,v:r}of e.p){let e=this.topics.get(t);e||this.topics.set(t,e=new Map),r===null?e.delete(n):e.set(n,r)}for(let n of t)this.seen.set(n,e.seq)}forget(e){this.topics.delete(e),this.seen.delete(e)}whole(e){return[...this.topics.get(e)??[]].map(([t,n])=>({t:e,k:t,v:n}))}};function r(e){let t=new Map;for(let n of e)t.set(`${n.t} ${n.k}`,n);return[...t.values()]}export{e as n,r,n as t};