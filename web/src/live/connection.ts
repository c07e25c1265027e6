// The live connection that all tabs of a browser share. It runs in a SharedWorker, or in the tab itself when the browser
// has no SharedWorker.

import { type Change, mergeChanges } from './changes';
import { EntityCache, EventReader } from './frames';

/** The state of the connection to the daemon. */
export type ConnectionState =
  | { state: 'opening' }
  | { state: 'live' }
  /** The daemon sent nothing after `since`, which is a time of this browser's clock. */
  | { state: 'lost'; since: number }
  /** The daemon no longer accepts this browser's key. */
  | { state: 'unauthorized' };

/** A message from a tab to the connection. */
export type TabRequest =
  | { kind: 'subscribe'; topics: string[]; key: string }
  /** A hidden tab receives only the changes of its urgent topics, and the others when it is visible again. */
  | { kind: 'visibility'; hidden: boolean; urgent: string[] }
  | { kind: 'alive' }
  | { kind: 'close' };

/** A message from the connection to a tab. */
export type TabMessage =
  | { kind: 'frame'; seq: number; at: number; p: Change[] }
  | { kind: 'reset'; topics: string[] }
  | { kind: 'state'; state: ConnectionState };

export interface Tab {
  postMessage(message: TabMessage): void;
}

interface TabState {
  topics: Set<string>;
  hidden: boolean;
  urgent: string[];
  /** Changes that a hidden tab has not received, with only the newest version of each entity. */
  missed: Change[];
  resets: Set<string>;
  lastSeenMs: number;
}

/** The daemon sends a heartbeat every five seconds. */
const SILENCE_TIMEOUT_MS = 12_000;
const RETRY_DELAYS_MS = [250, 500, 1_000, 2_000, 3_000];
/** A tab that sends nothing for this long is gone. Browsers limit timers of hidden tabs to one per minute. */
const TAB_TIMEOUT_MS = 180_000;

export interface Environment {
  fetch: typeof fetch;
  now(): number;
  after(ms: number, callback: () => void): unknown;
  cancel(timer: unknown): void;
}

export const browserEnvironment: Environment = {
  fetch: (...args) => fetch(...args),
  now: () => Date.now(),
  after: (ms, callback) => setTimeout(callback, ms),
  cancel: (timer) => clearTimeout(timer as number),
};

export class LiveConnection {
  readonly #tabs = new Map<Tab, TabState>();
  readonly #cache = new EntityCache();
  #key = '';
  #followedTopics: string[] = [];
  #controller: AbortController | null = null;
  #state: ConnectionState = { state: 'opening' };
  #lastDataMs = 0;
  #failures = 0;
  #retryTimer: unknown = null;
  #lastFrame = { seq: 0, at: 0 };
  readonly #environment: Environment;

  constructor(environment: Environment) {
    this.#environment = environment;
  }

  /** Handles a request of a tab, and connects or disconnects as needed. */
  handleRequest(tab: Tab, request: TabRequest): void {
    const now = this.#environment.now();
    let tabState = this.#tabs.get(tab);
    if (!tabState) {
      tabState = { topics: new Set(), hidden: false, urgent: [], missed: [], resets: new Set(), lastSeenMs: now };
      this.#tabs.set(tab, tabState);
    }
    tabState.lastSeenMs = now;
    switch (request.kind) {
      case 'subscribe': {
        const added = request.topics.filter((topic) => !tabState.topics.has(topic));
        tabState.topics = new Set(request.topics);
        if (request.key !== this.#key) {
          this.#key = request.key;
          this.#followedTopics = []; // makes updateTopics reconnect with the new key
          // The daemon has rejected only the key before, so the tab must not forget the new one.
          if (this.#state.state === 'unauthorized') this.#state = { state: 'opening' };
        }
        tab.postMessage({ kind: 'state', state: this.#state });
        const known = added.filter((topic) => this.#cache.revisions.has(topic));
        if (known.length > 0) {
          tab.postMessage({ kind: 'reset', topics: known });
          tab.postMessage({ kind: 'frame', ...this.#lastFrame, p: known.flatMap((topic) => this.#cache.snapshot(topic)) });
        }
        break;
      }
      case 'visibility':
        tabState.hidden = request.hidden;
        tabState.urgent = request.urgent;
        if (!request.hidden) this.#flush(tab, tabState);
        break;
      case 'close':
        this.#tabs.delete(tab);
        break;
      case 'alive':
        break;
    }
    for (const [other, state] of this.#tabs) if (state.lastSeenMs + TAB_TIMEOUT_MS < now) this.#tabs.delete(other);
    this.#updateTopics();
  }

  /** Reconnects if the tabs subscribe to other topics than the connection has. */
  #updateTopics(): void {
    const wanted = [...new Set([...this.#tabs.values()].flatMap((tabState) => [...tabState.topics]))].sort();
    if (wanted.join() === this.#followedTopics.join() && (this.#controller || this.#retryTimer)) return;
    this.#followedTopics = wanted;
    for (const topic of [...this.#cache.revisions.keys()]) if (!wanted.includes(topic)) this.#cache.forget(topic);
    this.#close();
    if (wanted.length > 0 && this.#key) void this.#open();
  }

  #close(): void {
    this.#controller?.abort();
    this.#controller = null;
    this.#environment.cancel(this.#retryTimer);
    this.#retryTimer = null;
  }

  async #open(): Promise<void> {
    const controller = new AbortController();
    this.#controller = controller;
    const topics = this.#followedTopics.map((topic) => {
      const seen = this.#cache.revisions.get(topic);
      return seen === undefined ? topic : `${topic}@${seen}`;
    });
    let watchdog: unknown = null;
    const dataArrived = () => {
      this.#lastDataMs = this.#environment.now();
      this.#environment.cancel(watchdog);
      watchdog = this.#environment.after(SILENCE_TIMEOUT_MS, () => controller.abort());
    };
    try {
      watchdog = this.#environment.after(SILENCE_TIMEOUT_MS, () => controller.abort());
      const response = await this.#environment.fetch(`/api/v1/live?topics=${encodeURIComponent(topics.join(','))}`, {
        headers: { 'x-regatta-page': this.#key },
        signal: controller.signal,
        cache: 'no-store',
      });
      if (response.status === 401 || response.status === 403) {
        this.#environment.cancel(watchdog);
        if (this.#controller === controller) {
          this.#controller = null;
          this.#retryTimer = null;
          this.#setState({ state: 'unauthorized' });
        }
        return;
      }
      if (!response.ok || !response.body) throw new Error(String(response.status));
      const reader = response.body.getReader();
      const decoder = new TextDecoder();
      const frames = new EventReader();
      dataArrived();
      for (;;) {
        const { done, value } = await reader.read();
        if (this.#controller !== controller) return;
        if (done) throw new Error('ended');
        dataArrived();
        this.#failures = 0;
        this.#setState({ state: 'live' });
        for (const event of frames.feed(decoder.decode(value, { stream: true }))) {
          if (event.kind === 'reset') {
            this.#cache.reset(event.topics);
            this.#send({ kind: 'reset', topics: event.topics });
          } else {
            this.#cache.apply(event.frame, this.#followedTopics);
            this.#lastFrame = { seq: event.frame.seq, at: event.frame.at };
            this.#send({ kind: 'frame', ...event.frame });
          }
        }
      }
    } catch {
      if (this.#controller !== controller) return; // another connection replaced this one
      this.#controller = null;
      this.#setState({ state: 'lost', since: this.#lastDataMs });
      const delay = RETRY_DELAYS_MS[Math.min(this.#failures, RETRY_DELAYS_MS.length - 1)] ?? 3_000;
      this.#failures += 1;
      this.#retryTimer = this.#environment.after(delay, () => {
        this.#retryTimer = null;
        void this.#open();
      });
    } finally {
      this.#environment.cancel(watchdog);
    }
  }

  #setState(state: ConnectionState): void {
    if (state.state === this.#state.state) return;
    this.#state = state;
    for (const tab of this.#tabs.keys()) tab.postMessage({ kind: 'state', state });
  }

  #send(message: Extract<TabMessage, { kind: 'frame' | 'reset' }>): void {
    for (const [tab, tabState] of this.#tabs) {
      if (message.kind === 'reset') {
        const topics = message.topics.filter((topic) => tabState.topics.has(topic));
        if (topics.length === 0) continue;
        const urgent = tabState.hidden ? topics.filter((topic) => tabState.urgent.includes(topic)) : topics;
        if (urgent.length > 0) tab.postMessage({ kind: 'reset', topics: urgent });
        const others = topics.filter((topic) => !urgent.includes(topic));
        tabState.missed = tabState.missed.filter((change) => !others.includes(change.t));
        for (const topic of others) tabState.resets.add(topic);
      } else {
        const p = message.p.filter((change) => tabState.topics.has(change.t));
        if (tabState.hidden) {
          const urgent = p.filter((change) => tabState.urgent.includes(change.t));
          if (urgent.length > 0) tab.postMessage({ ...message, p: urgent });
          const others = p.filter((change) => !tabState.urgent.includes(change.t));
          tabState.missed = mergeChanges([...tabState.missed, ...others]);
        } else tab.postMessage({ ...message, p });
      }
    }
  }

  #flush(tab: Tab, tabState: TabState): void {
    if (tabState.resets.size > 0) tab.postMessage({ kind: 'reset', topics: [...tabState.resets] });
    tab.postMessage({ kind: 'frame', ...this.#lastFrame, p: tabState.missed });
    tabState.missed = [];
    tabState.resets = new Set();
  }
}
