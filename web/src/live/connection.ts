// The one connection of a browser, for all its tabs. It runs in a SharedWorker; where there is none, in the tab itself.

import { type Change, EntityCache, EventReader, mergeChanges } from './frames';

/** How the line to the daemon is. */
export type ConnectionState =
  | { state: 'opening' }
  | { state: 'live' }
  /** Nothing came since then, by this browser's clock. */
  | { state: 'lost'; since: number }
  /** The daemon does not know this browser any more. */
  | { state: 'shut' };

/** From a tab. */
export type TabRequest =
  | { ask: 'look'; topics: string[]; key: string }
  | { ask: 'hidden'; hidden: boolean }
  | { ask: 'here' }
  | { ask: 'bye' };

/** To a tab. */
export type TabMessage =
  | { tell: 'frame'; seq: number; at: number; p: Change[] }
  | { tell: 'reset'; topics: string[] }
  | { tell: 'link'; link: ConnectionState };

export interface Tab {
  postMessage(setState: TabMessage): void;
}

interface TabState {
  topics: Set<string>;
  hidden: boolean;
  /** What a hidden tab missed, the newest version of each. */
  missed: Change[];
  resets: Set<string>;
  lastSeenMs: number;
}

/** The daemon says that it is there every five seconds. */
const SILENCE_TIMEOUT_MS = 12_000;
const RETRY_DELAYS_MS = [250, 500, 1_000, 2_000, 3_000];
/** A tab that says nothing for so long is gone; hidden ones may speak once a minute. */
const TAB_TIMEOUT_MS = 180_000;

export interface Environment {
  fetch: typeof fetch;
  now(): number;
  after(ms: number, then: () => void): unknown;
  cancel(retryTimer: unknown): void;
}

export const browserEnvironment: Environment = {
  fetch: (...args) => fetch(...args),
  now: () => Date.now(),
  after: (ms, then) => setTimeout(then, ms),
  cancel: (retryTimer) => clearTimeout(retryTimer as number),
};

export class LiveConnection {
  private readonly tabs = new Map<Tab, TabState>();
  private readonly cache = new EntityCache();
  private key = '';
  private followedTopics: string[] = [];
  private controller: AbortController | null = null;
  private state: ConnectionState = { state: 'opening' };
  private lastDataMs = 0;
  private failures = 0;
  private retryTimer: unknown = null;
  private lastFrame = { seq: 0, at: 0 };

  constructor(private readonly browserEnvironment: Environment) {}

  request(tab: Tab, request: TabRequest): void {
    const now = this.browserEnvironment.now();
    let tabState = this.tabs.get(tab);
    if (!tabState) {
      tabState = { topics: new Set(), hidden: false, missed: [], resets: new Set(), lastSeenMs: now };
      this.tabs.set(tab, tabState);
    }
    tabState.lastSeenMs = now;
    switch (request.ask) {
      case 'look': {
        const added = request.topics.filter((topic) => !tabState.topics.has(topic));
        tabState.topics = new Set(request.topics);
        if (request.key !== this.key) {
          this.key = request.key;
          this.followedTopics = []; // opens anew, as whoever this is now
        }
        tab.postMessage({ tell: 'link', link: this.state });
        const known = added.filter((topic) => this.cache.revisions.has(topic));
        if (known.length > 0) {
          tab.postMessage({ tell: 'reset', topics: known });
          tab.postMessage({ tell: 'frame', ...this.lastFrame, p: known.flatMap((topic) => this.cache.snapshot(topic)) });
        }
        break;
      }
      case 'hidden':
        tabState.hidden = request.hidden;
        if (!request.hidden) this.flush(tab, tabState);
        break;
      case 'bye':
        this.tabs.delete(tab);
        break;
      case 'here':
        break;
    }
    for (const [other, state] of this.tabs) if (state.lastSeenMs + TAB_TIMEOUT_MS < now) this.tabs.delete(other);
    this.updateTopics();
  }

  /** Opens the connection anew if the tabs look at something else than it carries. */
  private updateTopics(): void {
    const wanted = [...new Set([...this.tabs.values()].flatMap((tabState) => [...tabState.topics]))].sort();
    if (wanted.join() === this.followedTopics.join() && (this.controller || this.retryTimer)) return;
    this.followedTopics = wanted;
    for (const topic of [...this.cache.revisions.keys()]) if (!wanted.includes(topic)) this.cache.forget(topic);
    this.close();
    if (wanted.length > 0 && this.key) void this.open();
  }

  private close(): void {
    this.controller?.abort();
    this.controller = null;
    this.browserEnvironment.cancel(this.retryTimer);
    this.retryTimer = null;
  }

  private async open(): Promise<void> {
    const controller = new AbortController();
    this.controller = controller;
    const topics = this.followedTopics.map((topic) => {
      const seen = this.cache.revisions.get(topic);
      return seen === undefined ? topic : `${topic}@${seen}`;
    });
    let watchdog: unknown = null;
    const dataArrived = () => {
      this.lastDataMs = this.browserEnvironment.now();
      this.browserEnvironment.cancel(watchdog);
      watchdog = this.browserEnvironment.after(SILENCE_TIMEOUT_MS, () => controller.abort());
    };
    try {
      watchdog = this.browserEnvironment.after(SILENCE_TIMEOUT_MS, () => controller.abort());
      const response = await this.browserEnvironment.fetch(`/api/v1/live?topics=${encodeURIComponent(topics.join(','))}`, {
        headers: { 'x-regatta-page': this.key },
        signal: controller.signal,
        cache: 'no-store',
      });
      if (response.status === 401 || response.status === 403) {
        this.browserEnvironment.cancel(watchdog);
        if (this.controller === controller) {
          this.controller = null;
          this.retryTimer = null;
          this.setState({ state: 'shut' });
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
        if (this.controller !== controller) return;
        if (done) throw new Error('ended');
        dataArrived();
        this.failures = 0;
        this.setState({ state: 'live' });
        for (const event of frames.feed(decoder.decode(value, { stream: true }))) {
          if (event.kind === 'reset') {
            this.cache.reset(event.topics);
            this.send({ tell: 'reset', topics: event.topics });
          } else {
            this.cache.apply(event.frame, this.followedTopics);
            this.lastFrame = { seq: event.frame.seq, at: event.frame.at };
            this.send({ tell: 'frame', ...event.frame });
          }
        }
      }
    } catch {
      if (this.controller !== controller) return; // closed by us, for another
      this.controller = null;
      this.setState({ state: 'lost', since: this.lastDataMs });
      const delay = RETRY_DELAYS_MS[Math.min(this.failures, RETRY_DELAYS_MS.length - 1)] ?? 3_000;
      this.failures += 1;
      this.retryTimer = this.browserEnvironment.after(delay, () => {
        this.retryTimer = null;
        void this.open();
      });
    } finally {
      this.browserEnvironment.cancel(watchdog);
    }
  }

  private setState(state: ConnectionState): void {
    if (state.state === this.state.state) return;
    this.state = state;
    for (const tab of this.tabs.keys()) tab.postMessage({ tell: 'link', link: state });
  }

  private send(message: Extract<TabMessage, { tell: 'frame' | 'reset' }>): void {
    for (const [tab, tabState] of this.tabs) {
      if (message.tell === 'reset') {
        const topics = message.topics.filter((topic) => tabState.topics.has(topic));
        if (topics.length === 0) continue;
        if (tabState.hidden) {
          tabState.missed = tabState.missed.filter((change) => !topics.includes(change.t));
          for (const topic of topics) tabState.resets.add(topic);
        } else tab.postMessage({ tell: 'reset', topics });
      } else {
        const p = message.p.filter((change) => tabState.topics.has(change.t));
        if (tabState.hidden) tabState.missed = mergeChanges([...tabState.missed, ...p]);
        else tab.postMessage({ ...message, p });
      }
    }
  }

  private flush(tab: Tab, tabState: TabState): void {
    if (tabState.resets.size > 0) tab.postMessage({ tell: 'reset', topics: [...tabState.resets] });
    tab.postMessage({ tell: 'frame', ...this.lastFrame, p: tabState.missed });
    tabState.missed = [];
    tabState.resets = new Set();
  }
}
