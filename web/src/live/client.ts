// The tab's side of the line: entities as signals, applied once a frame of the screen.

import { type Signal, batch, computed, effect, signal } from '@preact/signals';
import { key } from '../session';
import { scriptUrl } from '../trusted';
import { type Change, merged } from './frames';
import type { Ask, Link, Tell } from './connection';
import workerUrl from './worker?sharedworker&url';

export const link = signal<Link>({ state: 'opening' });
/** The daemon's clock less ours. */
export const ahead = signal(0);
/** Where the daemon's log was, as far as this page shows it. */
export const revision = signal(0);
/** Whether what comes is kept back. */
export const paused = signal(false);
/** How many changes wait while it is. */
export const waiting = signal(0);

export class Topic {
  readonly keys = signal<string[]>([]);
  readonly entities = new Map<string, Signal<unknown>>();
  /** Whether anything was said of it yet: nothing is not the same as unknown. */
  readonly known = signal(false);
  readonly changed = signal(0);

  one<T>(key: string): T | undefined {
    return this.entities.get(key)?.value as T | undefined;
  }

  /** Every entity, in the order of their names. Whoever reads this is drawn anew with any of them. */
  all<T>(): T[] {
    void this.changed.value;
    return this.keys.value.map((it) => this.entities.get(it)?.peek() as T);
  }
}

const topics = new Map<string, Topic>();

export function topic(name: string): Topic {
  let it = topics.get(name);
  if (!it) topics.set(name, (it = new Topic()));
  return it;
}

// What each part of the page looks at.
const wanted = signal<Map<object, string[]>>(new Map());
const looking = computed(() => [...new Set([...wanted.value.values()].flat())].sort().join());

/** Looks at topics until told otherwise. */
export function look(names: string[]): () => void {
  const who = {};
  wanted.value = new Map(wanted.peek()).set(who, names);
  return () => {
    const left = new Map(wanted.peek());
    left.delete(who);
    wanted.value = left;
  };
}

let queue: Tell[] = [];
let scheduled = false;

function schedule(): void {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    apply();
  });
}

/** Applies what came, in one go. */
export function apply(): void {
  if (paused.peek()) {
    waiting.value = queue.reduce((sum, it) => sum + (it.tell === 'frame' ? it.p.length : 0), 0);
    if (queue.length > 500) queue = squeeze(queue);
    return;
  }
  const came = queue;
  queue = [];
  // A row that moves loses the focus; it gets it back when it is drawn.
  const held = document.activeElement as HTMLElement | null;
  requestAnimationFrame(() => document.activeElement === document.body && held?.isConnected && held.focus({ preventScroll: true }));
  batch(() => {
    waiting.value = 0;
    for (const it of came) {
      if (it.tell === 'reset') it.topics.forEach(clear);
      else if (it.tell === 'frame') {
        if (it.at) ahead.value = it.at - Date.now();
        if (it.seq) revision.value = it.seq;
        change(it.p);
      }
    }
  });
}

function squeeze(all: Tell[]): Tell[] {
  const frames = all.flatMap((it) => (it.tell === 'frame' ? it.p : []));
  return [...all.filter((it) => it.tell === 'reset'), { tell: 'frame', seq: 0, at: 0, p: merged(frames) }];
}

function clear(name: string): void {
  const it = topic(name);
  it.entities.clear();
  it.keys.value = [];
  it.known.value = true;
  it.changed.value += 1;
}

function change(changes: Change[]): void {
  const touched = new Map<Topic, boolean>();
  for (const { t, k, v } of changes) {
    const it = topic(t);
    const known = it.entities.get(k);
    if (v === null) {
      if (known) {
        it.entities.delete(k);
        touched.set(it, true);
      }
    } else if (known) {
      known.value = v;
      if (!touched.has(it)) touched.set(it, false);
    } else {
      it.entities.set(k, signal(v));
      touched.set(it, true);
    }
  }
  for (const [it, moved] of touched) {
    it.known.value = true;
    it.changed.value += 1;
    if (moved) it.keys.value = [...it.entities.keys()].sort(byName);
  }
}

const collator = new Intl.Collator('en', { numeric: true });

/** `T10` comes after `T9`. */
export function byName(a: string, b: string): number {
  return collator.compare(a, b);
}

function hear(tell: Tell): void {
  if (tell.tell === 'link') {
    link.value = tell.link;
    return;
  }
  queue.push(tell);
  if (document.hidden) apply();
  else schedule();
}

/** Connects this tab. */
export function connect(): void {
  let ask: (it: Ask) => void;
  if (typeof SharedWorker === 'function') {
    const { port } = new SharedWorker(scriptUrl(workerUrl), { type: 'module', name: 'regatta-live' });
    port.onmessage = (it: MessageEvent<Tell>) => hear(it.data);
    ask = (it) => port.postMessage(it);
  } else {
    // Where there is none, this tab has a line of its own; one that nobody sees lets go of it.
    const tab = { postMessage: hear };
    const line = import('./connection').then((it) => new it.Line(it.world));
    ask = (it) => void line.then((of) => of.ask(tab, it.ask === 'hidden' && it.hidden ? { ask: 'bye' } : it));
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden) ask({ ask: 'look', topics: looking.peek().split(','), key: key.peek() });
    });
  }
  effect(() => {
    const names = looking.value;
    ask({ ask: 'look', topics: names ? names.split(',') : [], key: key.value });
  });
  document.addEventListener('visibilitychange', () => ask({ ask: 'hidden', hidden: document.hidden }));
  addEventListener('pagehide', () => ask({ ask: 'bye' }));
  addEventListener('pageshow', (it) => {
    if (it.persisted) ask({ ask: 'look', topics: looking.peek().split(','), key: key.peek() });
  });
  setInterval(() => ask({ ask: 'here' }), 30_000);
}
