import { describe, expect, it } from 'vitest';
import { Line, type Tell, type World } from './connection';

/** A daemon that says what it is told to, and a clock that goes when it is told to. */
class Fake implements World {
  time = 1_000;
  asked: string[] = [];
  timers: { at: number; then: () => void }[] = [];
  streams: ReadableStreamDefaultController<Uint8Array>[] = [];
  status = 200;

  fetch = (async (url: string, init: RequestInit) => {
    this.asked.push(decodeURIComponent(url));
    if (this.status === 0) throw new TypeError('no network');
    if (this.status !== 200) return new Response('{}', { status: this.status });
    const body = new ReadableStream<Uint8Array>({
      start: (it) => {
        this.streams.push(it);
        init.signal?.addEventListener('abort', () => {
          try {
            it.error(new Error('aborted'));
          } catch {
            // it has ended
          }
        });
      },
    });
    return new Response(body);
  }) as unknown as typeof fetch;
  now = () => this.time;
  after = (ms: number, then: () => void) => {
    const it = { at: this.time + ms, then };
    this.timers.push(it);
    return it;
  };
  cancel = (it: unknown) => {
    this.timers = this.timers.filter((other) => other !== it);
  };

  async pass(ms: number): Promise<void> {
    this.time += ms;
    for (const it of this.timers.filter((one) => one.at <= this.time)) {
      this.cancel(it);
      it.then();
    }
    await settle();
  }

  async say(text: string): Promise<void> {
    this.streams[this.streams.length - 1]?.enqueue(new TextEncoder().encode(text));
    await settle();
  }

  async cut(): Promise<void> {
    this.streams[this.streams.length - 1]?.error(new Error('cut'));
    await settle();
  }
}

const settle = async () => {
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
  await new Promise((done) => setTimeout(done, 0));
};

class Tab {
  told: Tell[] = [];
  postMessage(it: Tell): void {
    this.told.push(it);
  }
  get links(): string[] {
    return this.told.flatMap((it) => (it.tell === 'link' ? [it.link.state] : []));
  }
  get seen(): unknown[] {
    return this.told.flatMap((it) => (it.tell === 'frame' ? it.p.map((one) => [one.k, one.v]) : []));
  }
}

const frame = (seq: number, p: [string, string, unknown][]) => `data: ${JSON.stringify({ seq, at: 5, p: p.map(([t, k, v]) => ({ t, k, v })) })}\n\n`;
const look = (topics: string[]) => ({ ask: 'look' as const, topics, key: 'k' });

describe('the line', () => {
  it('is one connection for all tabs, and a newcomer is told what is known', async () => {
    const [fake, one, two] = [new Fake(), new Tab(), new Tab()];
    const line = new Line(fake);
    line.ask(one, look(['head']));
    await settle();
    await fake.say(`event: reset\ndata: {"topics":["head"]}\n\n${frame(9, [['head', 'head', 1]])}`);
    line.ask(two, look(['head']));
    await settle();
    expect(fake.asked).toEqual(['/api/v1/live?topics=head']);
    expect(two.seen).toEqual([['head', 1]]);
    await fake.say(frame(10, [['head', 'head', 2]]));
    expect([one.seen, two.seen]).toEqual([[['head', 1], ['head', 2]], [['head', 1], ['head', 2]]]);
  });

  it('opens anew for more topics, and goes on from where each is', async () => {
    const [fake, tab] = [new Fake(), new Tab()];
    const line = new Line(fake);
    line.ask(tab, look(['head']));
    await settle();
    await fake.say(frame(9, [['head', 'head', 1]]));
    line.ask(tab, look(['head', 'T9']));
    await settle();
    expect(fake.asked[1]).toBe('/api/v1/live?topics=T9,head@9');
    line.ask(tab, look(['head', 'T9']));
    await settle();
    expect(fake.asked.length).toBe(2);
  });

  it('says when it is lost, since when, and when it is back', async () => {
    const [fake, tab] = [new Fake(), new Tab()];
    const line = new Line(fake);
    line.ask(tab, look(['head']));
    await settle();
    await fake.say(frame(9, [['head', 'head', 1]]));
    expect(tab.links).toEqual(['opening', 'live']);
    await fake.pass(3_000);
    fake.status = 0;
    await fake.cut();
    expect(tab.told.at(-1)).toEqual({ tell: 'link', link: { state: 'lost', since: 1_000 } });
    await fake.pass(250);
    fake.status = 200;
    await fake.pass(600);
    await fake.say(': still here\n\n');
    expect(tab.links).toEqual(['opening', 'live', 'lost', 'live']);
    expect(fake.asked.at(-1)).toBe('/api/v1/live?topics=head@9');
  });

  it('takes silence for a loss', async () => {
    const [fake, tab] = [new Fake(), new Tab()];
    const line = new Line(fake);
    line.ask(tab, look(['head']));
    await settle();
    await fake.say(frame(9, []));
    await fake.pass(11_000);
    await fake.say(': still here\n\n');
    await fake.pass(11_000);
    expect(tab.links.at(-1)).toBe('live');
    await fake.pass(12_000);
    expect(tab.links.at(-1)).toBe('lost');
  });

  it('gives a hidden tab the newest of each when it is seen again', async () => {
    const [fake, tab] = [new Fake(), new Tab()];
    const line = new Line(fake);
    line.ask(tab, look(['head']));
    await settle();
    line.ask(tab, { ask: 'hidden', hidden: true });
    for (let nth = 0; nth < 100; nth += 1) await fake.say(frame(nth, [['head', 'head', nth]]));
    expect(tab.seen).toEqual([]);
    line.ask(tab, { ask: 'hidden', hidden: false });
    expect(tab.seen).toEqual([['head', 99]]);
  });

  it('stops when the daemon does not know it any more, and starts with a new key', async () => {
    const [fake, tab] = [new Fake(), new Tab()];
    const line = new Line(fake);
    fake.status = 401;
    line.ask(tab, look(['head']));
    await settle();
    expect(tab.links.at(-1)).toBe('shut');
    await fake.pass(60_000);
    expect(fake.asked.length).toBe(1);
    fake.status = 200;
    line.ask(tab, { ...look(['head']), key: 'new' });
    await settle();
    expect(fake.asked.length).toBe(2);
  });

  it('lets go when the last tab leaves', async () => {
    const [fake, tab] = [new Fake(), new Tab()];
    const line = new Line(fake);
    line.ask(tab, look(['head']));
    await settle();
    line.ask(tab, { ask: 'bye' });
    await settle();
    await fake.pass(60_000);
    expect(fake.asked.length).toBe(1);
  });
});
