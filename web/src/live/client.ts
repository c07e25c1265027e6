// The tab's side of the live connection. Each entity is a signal, and changes are applied once per screen frame.

import { type Signal, batch, computed, effect, signal } from '@preact/signals';
import type { TaskPage, Topics } from '../api';
import { key } from '../session';
import { scriptUrl } from '../trusted';
import { type Change, mergeChanges } from './changes';
import type { ConnectionState, TabMessage, TabRequest } from './connection';
import workerUrl from './worker?sharedworker&url';

export const connection = signal<ConnectionState>({ state: 'opening' });
/** The daemon's clock minus this browser's clock, in milliseconds. */
export const clockOffset = signal(0);
/** The revision of the newest change that this page shows. */
export const revision = signal(0);
/** Whether a person paused updates. */
export const paused = signal(false);
/** How many changes arrived while updates are paused. */
export const waitingChanges = signal(0);

/** The type of a topic's entities. A topic with a scope, such as `graph.M3`, has the same entities as without it. */
export type TopicEntity<Name extends string> = Name extends keyof Topics ? Topics[Name] : Name extends `${infer Base extends keyof Topics}.${string}` ? Topics[Base] : unknown;

export class Topic<Entity = unknown> {
  readonly keys = signal<string[]>([]);
  readonly entities = new Map<string, Signal<unknown>>();
  /** Whether the daemon has sent anything about this topic. Without it, an empty topic means unknown, not none. */
  readonly known = signal(false);
  readonly changed = signal(0);

  /** Returns one entity. A component that calls this renders again when the entity changes, appears or disappears. */
  get(key: string): Entity | undefined {
    void this.keys.value;
    return this.entities.get(key)?.value as Entity | undefined;
  }

  /** Returns all entities, sorted by name. A component that calls this renders again when any of them changes. */
  all(): Entity[] {
    void this.changed.value;
    return this.keys.value.map((key) => this.entities.get(key)?.peek() as Entity);
  }
}

const topics = new Map<string, Topic>();

export function topic<Name extends string>(name: Name): Topic<TopicEntity<Name>> {
  let found = topics.get(name);
  if (!found) topics.set(name, (found = new Topic()));
  return found as Topic<TopicEntity<Name>>;
}

/** Returns the topic of one task, which has the task's id as its name and as the key of its only entity. */
export function taskTopic(id: string): Topic<TaskPage> {
  return topic(id) as Topic<TaskPage>;
}

// The topics of each mounted component.
const subscriptions = signal<Map<object, string[]>>(new Map());
const subscribedTopics = computed(() => [...new Set([...subscriptions.value.values()].flat())].sort().join());

/** Subscribes to topics. The returned function ends the subscription. */
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
/** Topics whose entities the next frame replaces. Until it arrives, the page keeps the old entities: a topic without its
 * entities would look empty, although they are on their way. */
const resetTopics = new Set<string>();
let scheduled = false;

function schedule(): void {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    apply();
  });
}

/** Applies all queued messages in one batch. While updates are paused, it only counts them. */
export function apply(): void {
  if (paused.peek()) {
    waitingChanges.value = queue.reduce((sum, message) => sum + (message.kind === 'frame' ? message.p.length : 0), 0);
    if (queue.length > 500) queue = compact(queue);
    return;
  }
  const messages = queue;
  queue = [];
  // A row that moves in the document loses the focus, so restore the focus after rendering.
  const focused = document.activeElement as HTMLElement | null;
  requestAnimationFrame(() => document.activeElement === document.body && focused?.isConnected && focused.focus({ preventScroll: true }));
  batch(() => {
    waitingChanges.value = 0;
    for (const message of messages) {
      if (message.kind === 'reset') for (const name of message.topics) resetTopics.add(name);
      else if (message.kind === 'frame') {
        resetTopics.forEach(clearTopic);
        resetTopics.clear();
        if (message.at) clockOffset.value = message.at - Date.now();
        if (message.seq) revision.value = message.seq;
        applyChanges(message.p);
      }
    }
  });
}

function compact(all: TabMessage[]): TabMessage[] {
  const frames = all.flatMap((message) => (message.kind === 'frame' ? message.p : []));
  return [...all.filter((message) => message.kind === 'reset'), { kind: 'frame', seq: 0, at: 0, p: mergeChanges(frames) }];
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

/** Compares names with numbers: `T10` comes after `T9`. */
export function byName(a: string, b: string): number {
  return collator.compare(a, b);
}

/** Takes a message of the live connection. Changes are applied before the next screen frame. */
export function onMessage(message: TabMessage): void {
  if (message.kind === 'state') {
    connection.value = message.state;
    return;
  }
  queue.push(message);
  if (document.hidden) apply();
  else schedule();
}

/** Topics that this tab receives also while it is hidden. */
const urgentTopics = signal<string[]>([]);

export function setUrgentTopics(names: string[]): void {
  if (names.join() !== urgentTopics.peek().join()) urgentTopics.value = names;
}

/** Connects this tab to the shared live connection. */
export function connect(): void {
  let send: (request: TabRequest) => void;
  if (typeof SharedWorker === 'function') {
    const { port } = new SharedWorker(scriptUrl(workerUrl), { type: 'module', name: 'regatta-live' });
    port.onmessage = (event: MessageEvent<TabMessage>) => onMessage(event.data);
    send = (request) => port.postMessage(request);
  } else {
    // Without SharedWorker, this tab has its own connection and closes it while the tab is hidden.
    const tab = { postMessage: onMessage };
    const connecting = import('./connection').then((module) => new module.LiveConnection(module.browserEnvironment));
    send = (request) => void connecting.then((connection) => connection.handleRequest(tab, request.kind === 'visibility' && request.hidden && request.urgent.length === 0 ? { kind: 'close' } : request));
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden) send({ kind: 'subscribe', topics: subscribedTopics.peek().split(','), key: key.peek() });
    });
  }
  effect(() => {
    const names = subscribedTopics.value;
    send({ kind: 'subscribe', topics: names ? names.split(',') : [], key: key.value });
  });
  const sendVisibility = () => send({ kind: 'visibility', hidden: document.hidden, urgent: urgentTopics.peek() });
  document.addEventListener('visibilitychange', sendVisibility);
  urgentTopics.subscribe((names) => names.length > 0 && sendVisibility());
  addEventListener('pagehide', () => send({ kind: 'close' }));
  addEventListener('pageshow', (event) => {
    if (event.persisted) send({ kind: 'subscribe', topics: subscribedTopics.peek().split(','), key: key.peek() });
  });
  setInterval(() => send({ kind: 'alive' }), 30_000);
}
