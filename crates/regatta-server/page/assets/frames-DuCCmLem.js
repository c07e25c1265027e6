var e=class{#e=``;feed(e){this.#e+=e;let n=[];for(let e=this.#e.indexOf(`

`);e>=0;e=this.#e.indexOf(`

`)){let r=t(this.#e.slice(0,e));this.#e=this.#e.slice(e+2),r&&n.push(r)}return n}};function t(e){let t=`message`,n=``;for(let r of e.split(`
`))r.startsWith(`event: `)?t=r.slice(7):r.startsWith(`data: `)&&(n+=r.slice(6));if(!n)return null;let r=JSON.parse(n);return t===`reset`?{kind:`reset`,topics:r.topics}:{kind:`frame`,frame:r}}var n=class{#e=new Map;revisions=new Map;reset(e){for(let t of e)this.#e.set(t,new Map)}apply(e,t){for(let{t,k:n,v:r}of e.p){let e=this.#e.get(t);e||this.#e.set(t,e=new Map),r===null?e.delete(n):e.set(n,r)}for(let n of t)this.revisions.set(n,e.seq)}forget(e){this.#e.delete(e),this.revisions.delete(e)}snapshot(e){return[...this.#e.get(e)??[]].map(([t,n])=>({t:e,k:t,v:n}))}};export{e as n,n as t};