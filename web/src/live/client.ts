// The tab's side of the line: entities as signals, applied once a frame of the screen.

import { type Signal, batch, computed, effect, signal } from '@preact/signals';
import { key } from '../session';
import { scriptUrl } from '../trusted';
import { type Change, mergeChanges } from './frames';
import type { TabRequest, ConnectionState, TabMessage } from './connection';
import workerUrl from './worker?sharedworker&url';

export const connection = signal<ConnectionState>({ state: 'opening' });
/** The daemon's clock less ours. */
export const clockOffset = signal(0);
/** Where the daemon's log was, as far as this page shows it. */
export const revision = signal(0);
/** Whether what comes is kept back. */
export const paused = signal(false);
/** How many changes wait while it is. */
export const waitingChanges = signal(0);

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
    return this.keys.value.map((key) => this.entities.get(key)?.peek() as T);
  }
}

const topics = new Map<string, Topic>();

export function topic(name: string): Topic {
  let found = topics.get(name);
  if (!found) topics.set(name, (found = new Topic()));
  return found;
}

// What each part of the page looks at.
const subscriptions = signal<Map<object, string[]>>(new Map());
const subscribedTopics = computed(() => [...new Set([...subscriptions.value.values()].flat())].sort().join());

/** Looks at topics until told otherwise. */
export function subscribe(names: string[]): () => void {
  const subscriber = {};
  subscriptions.value = new Map(subscriptions.peek()).set(subscriber, names);
  return () => {
    const remaining = new Map(subscriptions.peek());
    remaining.delete(subscriber);
    subscriptions.value = remaining;
  };
}

let queue: TabMessage[] = [];
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
    waitingChanges.value = queue.reduce((sum, message) => sum + (message.tell === 'frame' ? message.p.length : 0), 0);
    if (queue.length > 500) queue = compact(queue);
    return;
  }
  const messages = queue;
  queue = [];
  // A row that moves loses the focus; it gets it back when it is drawn.
  const focused = document.activeElement as HTMLElement | null;
  requestAnimationFrame(() => document.activeElement === document.body && focused?.isConnected && focused.focus({ preventScroll: true }));
  batch(() => {
    waitingChanges.value = 0;
    for (const message of messages) {
      if (message.tell === 'reset') message.topics.forEach(clearTopic);
      else if (message.tell === 'frame') {
        if (message.at) clockOffset.value = message.at - Date.now();
        if (message.seq) revision.value = message.seq;
        applyChanges(message.p);
      }
    }
  });
}

function compact(all: TabMessage[]): TabMessage[] {
  const frames = all.flatMap((message) => (message.tell === 'frame' ? message.p : []));
  return [...all.filter((message) => message.tell === 'reset'), { tell: 'frame', seq: 0, at: 0, p: mergeChanges(frames) }];
}

function clearTopic(name: string): void {
  const target = topic(name);
  target.entities.clear();
  target.keys.value = [];
  target.known.value = true;
  target.changed.value += 1;
}

function applyChanges(changes: Change[]): void {
  const touched = new Map<Topic, boolean>();
  for (const { t, k, v } of changes) {
    const target = topic(t);
    const known = target.entities.get(k);
    if (v === null) {
      if (known) {
        target.entities.delete(k);
        touched.set(target, true);
      }
    } else if (known) {
      known.value = v;
      if (!touched.has(target)) touched.set(target, false);
    } else {
      target.entities.set(k, signal(v));
      touched.set(target, true);
    }
  }
  for (const [target, moved] of touched) {
    target.known.value = true;
    target.changed.value += 1;
    if (moved) target.keys.value = [...target.entities.keys()].sort(byName);
  }
}

const collator = new Intl.Collator('en', { numeric: true });

/** `T10` comes after `T9`. */
export function byName(a: string, b: string): number {
  return collator.compare(a, b);
}

function onMessage(message: TabMessage): void {
  if (message.tell === 'link') {
    connection.value = message.link;
    return;
  }
  queue.push(message);
  if (document.hidden) apply();
  else schedule();
}

/** Connects this tab. */
export function connect(): void {
  let send: (request: TabRequest) => void;
  if (typeof SharedWorker === 'function') {
    const { port } = new SharedWorker(scriptUrl(workerUrl), { type: 'module', name: 'regatta-live' });
    port.onmessage = (event: MessageEvent<TabMessage>) => onMessage(event.data);
    send = (request) => port.postMessage(request);
  } else {
    // Where there is none, this tab has a line of its own; one that nobody sees lets go of it.
    const tab = { postMessage: onMessage };
    const connecting = import('./connection').then((module) => new module.LiveConnection(module.browserEnvironment));
    send = (request) => void connecting.then((connection) => connection.request(tab, request.ask === 'hidden' && request.hidden ? { ask: 'bye' } : request));
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden) send({ ask: 'look', topics: subscribedTopics.peek().split(','), key: key.peek() });
    });
  }
  effect(() => {
    const names = subscribedTopics.value;
    send({ ask: 'look', topics: names ? names.split(',') : [], key: key.value });
  });
  document.addEventListener('visibilitychange', () => send({ ask: 'hidden', hidden: document.hidden }));
  addEventListener('pagehide', () => send({ ask: 'bye' }));
  addEventListener('pageshow', (event) => {
    if (event.persisted) send({ ask: 'look', topics: subscribedTopics.peek().split(','), key: key.peek() });
  });
  setInterval(() => send({ ask: 'here' }), 30_000);
}
