// The one connection of a browser, for all its tabs. It runs in a SharedWorker; where there is none, in the tab itself.

import { type Change, Kept, Reader, merged } from './frames';

/** How the line to the daemon is. */
export type Link =
  | { state: 'opening' }
  | { state: 'live' }
  /** Nothing came since then, by this browser's clock. */
  | { state: 'lost'; since: number }
  /** The daemon does not know this browser any more. */
  | { state: 'shut' };

/** From a tab. */
export type Ask =
  | { ask: 'look'; topics: string[]; key: string }
  | { ask: 'hidden'; hidden: boolean }
  | { ask: 'here' }
  | { ask: 'bye' };

/** To a tab. */
export type Tell =
  | { tell: 'frame'; seq: number; at: number; p: Change[] }
  | { tell: 'reset'; topics: string[] }
  | { tell: 'link'; link: Link };

export interface Tab {
  postMessage(tell: Tell): void;
}

interface Looking {
  topics: Set<string>;
  hidden: boolean;
  /** What a hidden tab missed, the newest version of each. */
  missed: Change[];
  resets: Set<string>;
  heard: number;
}

/** The daemon says that it is there every five seconds. */
const SILENCE_MS = 12_000;
const PAUSES_MS = [250, 500, 1_000, 2_000, 3_000];
/** A tab that says nothing for so long is gone; hidden ones may speak once a minute. */
const GONE_MS = 180_000;

export interface World {
  fetch: typeof fetch;
  now(): number;
  after(ms: number, then: () => void): unknown;
  cancel(timer: unknown): void;
}

export const world: World = {
  fetch: (...it) => fetch(...it),
  now: () => Date.now(),
  after: (ms, then) => setTimeout(then, ms),
  cancel: (timer) => clearTimeout(timer as number),
};

export class Line {
  private readonly tabs = new Map<Tab, Looking>();
  private readonly kept = new Kept();
  private key = '';
  private following: string[] = [];
  private stop: AbortController | null = null;
  private link: Link = { state: 'opening' };
  private heard = 0;
  private failures = 0;
  private timer: unknown = null;
  private last = { seq: 0, at: 0 };

  constructor(private readonly world: World) {}

  ask(tab: Tab, ask: Ask): void {
    const now = this.world.now();
    let it = this.tabs.get(tab);
    if (!it) {
      it = { topics: new Set(), hidden: false, missed: [], resets: new Set(), heard: now };
      this.tabs.set(tab, it);
    }
    it.heard = now;
    switch (ask.ask) {
      case 'look': {
        const fresh = ask.topics.filter((topic) => !it.topics.has(topic));
        it.topics = new Set(ask.topics);
        if (ask.key !== this.key) {
          this.key = ask.key;
          this.following = []; // opens anew, as whoever this is now
        }
        tab.postMessage({ tell: 'link', link: this.link });
        const known = fresh.filter((topic) => this.kept.seen.has(topic));
        if (known.length > 0) {
          tab.postMessage({ tell: 'reset', topics: known });
          tab.postMessage({ tell: 'frame', ...this.last, p: known.flatMap((topic) => this.kept.whole(topic)) });
        }
        break;
      }
      case 'hidden':
        it.hidden = ask.hidden;
        if (!ask.hidden) this.flush(tab, it);
        break;
      case 'bye':
        this.tabs.delete(tab);
        break;
      case 'here':
        break;
    }
    for (const [other, looking] of this.tabs) if (looking.heard + GONE_MS < now) this.tabs.delete(other);
    this.follow();
  }

  /** Opens the connection anew if the tabs look at something else than it carries. */
  private follow(): void {
    const wanted = [...new Set([...this.tabs.values()].flatMap((it) => [...it.topics]))].sort();
    if (wanted.join() === this.following.join() && (this.stop || this.timer)) return;
    this.following = wanted;
    for (const topic of [...this.kept.seen.keys()]) if (!wanted.includes(topic)) this.kept.forget(topic);
    this.close();
    if (wanted.length > 0 && this.key) void this.open();
  }

  private close(): void {
    this.stop?.abort();
    this.stop = null;
    this.world.cancel(this.timer);
    this.timer = null;
  }

  private async open(): Promise<void> {
    const stop = new AbortController();
    this.stop = stop;
    const topics = this.following.map((it) => {
      const seen = this.kept.seen.get(it);
      return seen === undefined ? it : `${it}@${seen}`;
    });
    let watchdog: unknown = null;
    const awake = () => {
      this.heard = this.world.now();
      this.world.cancel(watchdog);
      watchdog = this.world.after(SILENCE_MS, () => stop.abort());
    };
    try {
      watchdog = this.world.after(SILENCE_MS, () => stop.abort());
      const answer = await this.world.fetch(`/api/v1/live?topics=${encodeURIComponent(topics.join(','))}`, {
        headers: { 'x-regatta-page': this.key },
        signal: stop.signal,
        cache: 'no-store',
      });
      if (answer.status === 401 || answer.status === 403) {
        this.world.cancel(watchdog);
        if (this.stop === stop) {
          this.stop = null;
          this.timer = null;
          this.tell({ state: 'shut' });
        }
        return;
      }
      if (!answer.ok || !answer.body) throw new Error(String(answer.status));
      const reader = answer.body.getReader();
      const words = new TextDecoder();
      const frames = new Reader();
      awake();
      for (;;) {
        const { done, value } = await reader.read();
        if (this.stop !== stop) return;
        if (done) throw new Error('ended');
        awake();
        this.failures = 0;
        this.tell({ state: 'live' });
        for (const said of frames.feed(words.decode(value, { stream: true }))) {
          if (said.kind === 'reset') {
            this.kept.reset(said.topics);
            this.send({ tell: 'reset', topics: said.topics });
          } else {
            this.kept.take(said.frame, this.following);
            this.last = { seq: said.frame.seq, at: said.frame.at };
            this.send({ tell: 'frame', ...said.frame });
          }
        }
      }
    } catch {
      if (this.stop !== stop) return; // closed by us, for another
      this.stop = null;
      this.tell({ state: 'lost', since: this.heard });
      const pause = PAUSES_MS[Math.min(this.failures, PAUSES_MS.length - 1)] ?? 3_000;
      this.failures += 1;
      this.timer = this.world.after(pause, () => {
        this.timer = null;
        void this.open();
      });
    } finally {
      this.world.cancel(watchdog);
    }
  }

  private tell(link: Link): void {
    if (link.state === this.link.state) return;
    this.link = link;
    for (const tab of this.tabs.keys()) tab.postMessage({ tell: 'link', link });
  }

  private send(tell: Extract<Tell, { tell: 'frame' | 'reset' }>): void {
    for (const [tab, it] of this.tabs) {
      if (tell.tell === 'reset') {
        const topics = tell.topics.filter((topic) => it.topics.has(topic));
        if (topics.length === 0) continue;
        if (it.hidden) {
          it.missed = it.missed.filter((change) => !topics.includes(change.t));
          for (const topic of topics) it.resets.add(topic);
        } else tab.postMessage({ tell: 'reset', topics });
      } else {
        const p = tell.p.filter((change) => it.topics.has(change.t));
        if (it.hidden) it.missed = merged([...it.missed, ...p]);
        else tab.postMessage({ ...tell, p });
      }
    }
  }

  private flush(tab: Tab, it: Looking): void {
    if (it.resets.size > 0) tab.postMessage({ tell: 'reset', topics: [...it.resets] });
    tab.postMessage({ tell: 'frame', ...this.last, p: it.missed });
    it.missed = [];
    it.resets = new Set();
  }
}
