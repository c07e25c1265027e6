import { signal } from '@preact/signals';
import { render } from 'preact';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { place } from '../route';
import { Conversations } from './conversations';
import { Replay } from './replay';
import { topic } from '../live/client';

vi.mock('../live/worker?sharedworker&url', () => ({ default: '/assets/worker.js' }));
vi.mock('../live/client', async (load) => ({ ...(await load<typeof import('../live/client')>()), look: () => () => {} }));

afterEach(() => vi.unstubAllGlobals());

function at(path: string): void {
  history.replaceState(null, '', path);
  place.value = { path: location.pathname, query: new URLSearchParams(location.search) };
}

async function until(holds: () => boolean): Promise<void> {
  for (let nth = 0; nth < 200 && !holds(); nth += 1) await new Promise((done) => setTimeout(done, 10));
  expect(holds()).toBe(true);
}

const ROW = { id: 'T1', project: 'shop', mission: 'M1', subject: 'First <b>', word: 'working', at: 'working', agent: 'ann', text: 'editing', since_wall: 1, blocked_by: [], wave: 0, priority: 2 };

describe('replay', () => {
  it('shows a mission at the moment in the address, and asks for another', async () => {
    const asked: unknown[] = [];
    vi.stubGlobal('fetch', async (url: string, init: RequestInit) => {
      asked.push([url, JSON.parse(String(init.body))]);
      const data = { mission: 'M1', title: 'Add login', first: 3, last: 40, at: 12, wall: 1_700_000_000_000, event: 'task.started', tasks: [ROW], queue: [], marks: [{ revision: 3, wall: 1, text: 'M1 begins' }, { revision: 12, wall: 2, text: 'T1 is started' }] };
      return new Response(JSON.stringify({ data }));
    });
    at('/replay?mission=M1&at=12');
    const box = document.createElement('div');
    render(<Replay />, box);
    await until(() => box.querySelector('input[type=range]') !== null);
    expect(asked).toEqual([['/api/v1/mission.replay', { id: 'M1', at: 12 }]]);
    expect(box.textContent).toContain('T1 is started');
    expect(box.textContent).toContain('First <b>');
    expect(box.textContent).toContain('regatta replay M1 --at 12');
    [...box.querySelectorAll('button')].find((it) => it.textContent?.includes('before'))?.click();
    expect(location.search).toContain('at=3');
    await until(() => asked.length === 2);
    expect(asked[1]).toEqual(['/api/v1/mission.replay', { id: 'M1', at: 3 }]);
    render(null, box);
  });
});

describe('conversations', () => {
  it('shows who asked what, and what may be done; text of others is text', async () => {
    const line = { id: 'V1', service: 'slack', agent: 'ann', project: 'shop', title: '#dev <i>', url: 'javascript:alert(1)', task: 'T1', word: 'held', turns: 1, queued: 0, last: 'Eve: <script>', unshown: 0, dead: 0, updated_wall: 5, actions: [{ label: 'Accept', verb: 'conversation.accept', input: { conversation: 'V1' }, cli: 'regatta bridge accept V1', first: true }] };
    topic('conversations').entities.set('conversation/V1', signal(line));
    topic('conversations').keys.value = ['conversation/V1'];
    vi.stubGlobal('fetch', async () => new Response(JSON.stringify({ data: { turns: [{ n: 1, by: { id: 'U1', name: 'Ann' }, text: 'fix it', state: 'done', answer: '<img src=x>', asked_wall: 1 }], turn_count: 3, held: [{ by: { id: 'U2', name: 'Eve' }, text: 'let me in', wall: 2 }] } })));
    at('/conversations?id=V1');
    const box = document.createElement('div');
    render(<Conversations />, box);
    await until(() => box.textContent?.includes('fix it') ?? false);
    expect(box.querySelector('img, script, a[href^="javascript"]')).toBeNull();
    expect(box.textContent).toContain('2 turns before these');
    expect(box.textContent).toContain('Eve is on no list');
    expect(box.textContent).toContain('Accept');
    render(null, box);
  });
});
