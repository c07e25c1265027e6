import { describe, expect, it } from 'vitest';
import { type Environment, LiveConnection, type TabMessage } from './connection';

/** A daemon whose answers the test sends, and a clock that the test advances. */
class FakeEnvironment implements Environment {
  time = 1_000;
  urls: string[] = [];
  timers: { at: number; callback: () => void }[] = [];
  streams: ReadableStreamDefaultController<Uint8Array>[] = [];
  status = 200;

  fetch = (async (url: string, init: RequestInit) => {
    this.urls.push(decodeURIComponent(url));
    if (this.status === 0) throw new TypeError('no network');
    if (this.status !== 200) return new Response('{}', { status: this.status });
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        this.streams.push(controller);
        init.signal?.addEventListener('abort', () => {
          try {
            controller.error(new Error('aborted'));
          } catch {
            // the stream has already ended
          }
        });
      },
    });
    return new Response(body);
  }) as unknown as typeof fetch;
  now = () => this.time;
  after = (ms: number, callback: () => void) => {
    const timer = { at: this.time + ms, callback };
    this.timers.push(timer);
    return timer;
  };
  cancel = (timer: unknown) => {
    this.timers = this.timers.filter((other) => other !== timer);
  };

  async advance(ms: number): Promise<void> {
    this.time += ms;
    for (const timer of this.timers.filter((candidate) => candidate.at <= this.time)) {
      this.cancel(timer);
      timer.callback();
    }
    await settle();
  }

  async send(text: string): Promise<void> {
    this.streams[this.streams.length - 1]?.enqueue(new TextEncoder().encode(text));
    await settle();
  }

  async cut(): Promise<void> {
    this.streams[this.streams.length - 1]?.error(new Error('cut'));
    await settle();
  }
}

const settle = async () => {
  for (let round = 0; round < 20; round += 1) await Promise.resolve();
  await new Promise((done) => setTimeout(done, 0));
};

class Tab {
  messages: TabMessage[] = [];
  postMessage(message: TabMessage): void {
    this.messages.push(message);
  }
  get states(): string[] {
    return this.messages.flatMap((message) => (message.kind === 'state' ? [message.state.state] : []));
  }
  get entities(): unknown[] {
    return this.messages.flatMap((message) => (message.kind === 'frame' ? message.p.map((change) => [change.k, change.v]) : []));
  }
}

const frame = (seq: number, p: [string, string, unknown][]) => `data: ${JSON.stringify({ seq, at: 5, p: p.map(([t, k, v]) => ({ t, k, v })) })}\n\n`;
const subscribe = (topics: string[]) => ({ kind: 'subscribe' as const, topics, key: 'k' });

describe('the live connection', () => {
  it('is shared by all tabs, and a new tab receives the cached entities', async () => {
    const [fake, first, second] = [new FakeEnvironment(), new Tab(), new Tab()];
    const connection = new LiveConnection(fake);
    connection.handleRequest(first, subscribe(['head']));
    await settle();
    await fake.send(`event: reset\ndata: {"topics":["head"]}\n\n${frame(9, [['head', 'head', 1]])}`);
    connection.handleRequest(second, subscribe(['head']));
    await settle();
    expect(fake.urls).toEqual(['/api/v1/live?topics=head']);
    expect(second.entities).toEqual([['head', 1]]);
    await fake.send(frame(10, [['head', 'head', 2]]));
    expect([first.entities, second.entities]).toEqual([[['head', 1], ['head', 2]], [['head', 1], ['head', 2]]]);
  });

  it('reconnects for new topics, and resumes each known topic at its revision', async () => {
    const [fake, tab] = [new FakeEnvironment(), new Tab()];
    const connection = new LiveConnection(fake);
    connection.handleRequest(tab, subscribe(['head']));
    await settle();
    await fake.send(frame(9, [['head', 'head', 1]]));
    connection.handleRequest(tab, subscribe(['head', 'T9']));
    await settle();
    expect(fake.urls[1]).toBe('/api/v1/live?topics=T9,head@9');
    connection.handleRequest(tab, subscribe(['head', 'T9']));
    await settle();
    expect(fake.urls.length).toBe(2);
  });

  it('reports when it is lost, since when, and when it is back', async () => {
    const [fake, tab] = [new FakeEnvironment(), new Tab()];
    const connection = new LiveConnection(fake);
    connection.handleRequest(tab, subscribe(['head']));
    await settle();
    await fake.send(frame(9, [['head', 'head', 1]]));
    expect(tab.states).toEqual(['opening', 'live']);
    await fake.advance(3_000);
    fake.status = 0;
    await fake.cut();
    expect(tab.messages.at(-1)).toEqual({ kind: 'state', state: { state: 'lost', since: 1_000 } });
    await fake.advance(250);
    fake.status = 200;
    await fake.advance(600);
    await fake.send(': still here\n\n');
    expect(tab.states).toEqual(['opening', 'live', 'lost', 'live']);
    expect(fake.urls.at(-1)).toBe('/api/v1/live?topics=head@9');
  });

  it('counts as lost when the daemon sends no heartbeat', async () => {
    const [fake, tab] = [new FakeEnvironment(), new Tab()];
    const connection = new LiveConnection(fake);
    connection.handleRequest(tab, subscribe(['head']));
    await settle();
    await fake.send(frame(9, []));
    await fake.advance(11_000);
    await fake.send(': still here\n\n');
    await fake.advance(11_000);
    expect(tab.states.at(-1)).toBe('live');
    await fake.advance(12_000);
    expect(tab.states.at(-1)).toBe('lost');
  });

  it('sends a hidden tab the newest version of each entity when it becomes visible', async () => {
    const [fake, tab] = [new FakeEnvironment(), new Tab()];
    const connection = new LiveConnection(fake);
    connection.handleRequest(tab, subscribe(['head']));
    await settle();
    connection.handleRequest(tab, { kind: 'visibility', hidden: true, urgent: [] });
    for (let index = 0; index < 100; index += 1) await fake.send(frame(index, [['head', 'head', index]]));
    expect(tab.entities).toEqual([]);
    connection.handleRequest(tab, { kind: 'visibility', hidden: false, urgent: [] });
    expect(tab.entities).toEqual([['head', 99]]);
  });

  it('sends a hidden tab the changes of its urgent topics at once, and the others later', async () => {
    const [fake, tab] = [new FakeEnvironment(), new Tab()];
    const connection = new LiveConnection(fake);
    connection.handleRequest(tab, subscribe(['head', 'inbox']));
    await settle();
    connection.handleRequest(tab, { kind: 'visibility', hidden: true, urgent: ['inbox'] });
    await fake.send(frame(1, [['head', 'head', 1], ['inbox', 'Q1', 1]]));
    expect(tab.entities).toEqual([['Q1', 1]]);
    connection.handleRequest(tab, { kind: 'visibility', hidden: false, urgent: ['inbox'] });
    expect(tab.entities).toEqual([['Q1', 1], ['head', 1]]);
  });

  it('stops when the daemon rejects its key, and starts again with a new key', async () => {
    const [fake, tab] = [new FakeEnvironment(), new Tab()];
    const connection = new LiveConnection(fake);
    fake.status = 401;
    connection.handleRequest(tab, subscribe(['head']));
    await settle();
    expect(tab.states.at(-1)).toBe('unauthorized');
    await fake.advance(60_000);
    expect(fake.urls.length).toBe(1);
    fake.status = 200;
    connection.handleRequest(tab, { ...subscribe(['head']), key: 'new' });
    // A tab that is told `unauthorized` forgets its key, so the new key must not be answered with it.
    expect(tab.states.at(-1)).toBe('opening');
    await settle();
    expect(fake.urls.length).toBe(2);
  });

  it('closes when the last tab leaves', async () => {
    const [fake, tab] = [new FakeEnvironment(), new Tab()];
    const connection = new LiveConnection(fake);
    connection.handleRequest(tab, subscribe(['head']));
    await settle();
    connection.handleRequest(tab, { kind: 'close' });
    await settle();
    await fake.advance(60_000);
    expect(fake.urls.length).toBe(1);
  });
});
