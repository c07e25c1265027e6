import { signal } from '@preact/signals';
import { render } from 'preact';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { route } from '../route';
import { handleKey, pageKeys } from '../keys';
import { topic } from '../live/client';
import { EventLoader } from './events';
import { Agents } from './agents';
import { Tasks } from './tasks';
import { RowLoader } from '../virtual-list';
import { STATES, TASK_STATES } from '../states';
import type { EventRow, TaskListRow, TaskWindow } from '../api';

vi.mock('../live/worker?sharedworker&url', () => ({ default: '/assets/worker.js' }));
vi.mock('../live/client', async (load) => ({ ...(await load<typeof import('../live/client')>()), subscribe: () => () => {} }));

afterEach(() => vi.unstubAllGlobals());

function visit(path: string): void {
  history.replaceState(null, '', path);
  route.value = { path: location.pathname, query: new URLSearchParams(location.search) };
}

async function until(holds: () => boolean): Promise<void> {
  for (let index = 0; index < 3_000 && !holds(); index += 1) await new Promise((done) => setTimeout(done, 10));
  expect(holds()).toBe(true);
}

const ROW = { id: 'T1', project: 'shop', mission: 'M1', subject: 'First <b>', word: 'working', at: 'working', rank: 4, agent: 'ann', text: 'editing', since_wall: 1, blocked_by: [], wave: 0, priority: 2 };

/** A server with `count` tasks, half of them working. Records the addresses that are asked for. */
function serveTasks(count: number): { asked: URL[]; setCount: (count: number) => void } {
  const asked: URL[] = [];
  let total = count;
  vi.stubGlobal('fetch', async (path: string) => {
    const url = new URL(path, 'http://localhost');
    asked.push(url);
    const [offset, limit] = [Number(url.searchParams.get('offset')), Number(url.searchParams.get('limit'))];
    const rows = Array.from({ length: Math.max(0, Math.min(limit, total - offset)) }, (_, index) => ({ ...ROW, id: `T${offset + index + 1}`, subject: `Work ${offset + index + 1}` }));
    const counts = TASK_STATES.map((at) => ({ at, count: at === 'working' ? total : 0 }));
    return new Response(JSON.stringify({ revision: total, total, all: total + 7, counts, needs_you: 2, offset, rows, missions: [{ id: 'M1', title: 'Add login' }], unlisted: 3, is_counting: false }));
  });
  return { asked, setCount: (next) => (total = next) };
}

describe('the list of tasks', () => {
  it('asks the server for what the address says, and draws only the rows on the screen with exact counts', async () => {
    const { asked } = serveTasks(100_000);
    visit('/tasks?q=login&at=working&agent=ann&sort=-cost');
    const box = document.createElement('div');
    document.body.append(box);
    render(<Tasks />, box);
    await until(() => box.querySelectorAll('[data-row]').length > 5);
    const query = asked[0]?.searchParams;
    expect(asked[0]?.pathname).toBe('/api/v1/page/tasks');
    expect(['text', 'at', 'agent', 'sort', 'offset'].map((name) => query?.get(name))).toEqual(['login', 'working', 'ann', '-cost', '0']);
    expect(box.querySelectorAll('[data-row]').length).toBeLessThan(60);
    expect(box.textContent).toContain('100,000 of 100,007 tasks');
    expect(box.textContent).toContain('3 tasks that ended longest ago are not in this list');
    expect(box.querySelector('[role=table]')?.getAttribute('aria-rowcount')).toBe('100001');
    expect(box.querySelector('[role=columnheader][aria-sort=descending]')?.textContent).toContain('Cost');
    expect([...box.querySelectorAll('.chip')].find((chip) => chip.textContent?.includes('working'))?.getAttribute('aria-pressed')).toBe('true');
    expect(box.querySelector('.views')?.textContent).toContain('Needs you2');
    render(null, box);
    box.remove();
  });

  it('is used by keys across windows, and the focus follows', async () => {
    const { asked } = serveTasks(5_000);
    visit('/tasks');
    const box = document.createElement('div');
    document.body.append(box);
    render(<Tasks />, box);
    await until(() => box.querySelectorAll('[data-row] a.id').length > 5);
    const focused = () => document.activeElement?.querySelector('a.id')?.textContent?.trim();
    const press = (key: string) => handleKey(new KeyboardEvent('keydown', { key }));
    expect(pageKeys.keys).not.toBeNull();
    press('j');
    expect(focused()).toBe('T1');
    press('j');
    press('j');
    await until(() => focused() === 'T3');
    press('k');
    await until(() => focused() === 'T2');
    press('End');
    await until(() => focused() === 'T5000');
    expect(asked.some((url) => Number(url.searchParams.get('offset')) > 4_000)).toBe(true);
    press('Home');
    await until(() => focused() === 'T1');
    render(null, box);
    box.remove();
    await until(() => pageKeys.keys === null);
  });

  it('keeps views under a name, which are addresses', async () => {
    serveTasks(3);
    visit('/tasks?q=file:src/auth&sort=-cost');
    const box = document.createElement('div');
    document.body.append(box);
    render(<Tasks />, box);
    await until(() => box.querySelectorAll('[data-row]').length === 3);
    [...box.querySelectorAll('button')].find((button) => button.textContent === '+ Save this view')?.click();
    await until(() => box.querySelector('.views input') !== null);
    (box.querySelector('.views input') as HTMLInputElement).value = 'Mine <b>';
    box.querySelector('.views form')?.dispatchEvent(new Event('submit', { cancelable: true, bubbles: true }));
    await until(() => box.querySelector('.views a[aria-current]')?.textContent === 'Mine <b>');
    expect(box.querySelector('.views a[aria-current]')?.getAttribute('href')).toBe('/tasks?q=file%3Asrc%2Fauth&sort=-cost');
    expect(JSON.parse(localStorage.getItem('regatta-task-views') ?? '[]')).toHaveLength(1);
    (box.querySelector('.views .remove') as HTMLButtonElement).click();
    await until(() => location.search === '');
    expect(JSON.parse(localStorage.getItem('regatta-task-views') ?? '[]')).toHaveLength(0);
    render(null, box);
    box.remove();
  });

  it('is a board with a part of each column, the failed ones included', async () => {
    const { asked } = serveTasks(120);
    visit('/tasks?view=board&q=login');
    const box = document.createElement('div');
    render(<Tasks />, box);
    await until(() => box.querySelectorAll('.column-working .tile').length === 50);
    expect(box.querySelector('.column-failed')).not.toBeNull();
    expect(asked.some((url) => url.searchParams.get('at') === 'landed' && url.searchParams.get('text') === 'login')).toBe(true);
    expect(box.querySelector('.column-working h3')?.textContent).toContain('120');
    ([...box.querySelectorAll('.column-working button')].find((button) => button.textContent === 'Show 50 more') as HTMLButtonElement).click();
    await until(() => box.querySelectorAll('.column-working .tile').length === 100);
    render(null, box);
  });

  it('drops rows of an older state, so that all rows belong together', async () => {
    const { setCount } = serveTasks(500);
    const loader = new RowLoader<TaskListRow, TaskWindow>('/api/v1/page/tasks');
    loader.setQuery('');
    await until(() => loader.answer.value?.total === 500);
    expect(loader.rows.size).toBeGreaterThan(60);
    setCount(10);
    loader.refresh();
    await until(() => loader.answer.value?.total === 10);
    expect(loader.rows.size).toBe(10);
    loader.stop();
  });
});

const AGENT = { agent: 'ann', provider: 'claude', at: 'working', word: 'working', text: 'busy', task: 'T1', subject: 'Add login', since_wall: 1, capacity: { current: 1, max: 2, available: 1 }, wanted: 'big', running: 'small', context: 85, band: 'full', advice: 'nearly full', doing: 'cargo test', attempt: 'A1', actions: [{ label: 'Stop', verb: 'agent.stop', input: {}, cli: 'regatta stop ann', grave: true }] };

function serveAgents(rows: object[]): URL[] {
  const asked: URL[] = [];
  vi.stubGlobal('fetch', async (path: string) => {
    const url = new URL(path, 'http://localhost');
    asked.push(url);
    if (url.pathname.endsWith('/tasks')) return new Response(JSON.stringify({ revision: 1, total: 1, all: 9, counts: [{ at: 'landed', count: 3 }, { at: 'failed', count: 1 }], needs_you: 0, micro_usd: 900_000, offset: 0, rows: [{ ...ROW, micro_usd: 420_000 }], missions: [], unlisted: 0, is_counting: false }));
    return new Response(JSON.stringify({ revision: 1, total: rows.length, all: rows.length, counts: [{ at: 'working', count: rows.length }], providers: [{ provider: 'claude', count: rows.length }], offset: 0, rows }));
  });
  return asked;
}

describe('agents', () => {
  it('say the tool that they use, and have their actions in a menu', async () => {
    const asked = serveAgents([AGENT]);
    visit('/agents?at=working&provider=claude&q=a');
    const box = document.createElement('div');
    document.body.append(box);
    render(<Agents />, box);
    await until(() => box.querySelectorAll('[data-row]').length === 1);
    expect(['text', 'at', 'provider'].map((name) => asked[0]?.searchParams.get(name))).toEqual(['a', 'working', 'claude']);
    expect(box.querySelector('[data-row] .c-doing')?.textContent).toContain('cargo test');
    expect(box.querySelector('[data-row] .c-provider')?.textContent).toContain('→ small !');
    expect(box.querySelector('.band-full')?.textContent).toContain('nearly full');
    expect(box.querySelectorAll('.do').length).toBe(0);
    (box.querySelector('.menu-button') as HTMLButtonElement).click();
    await until(() => box.querySelectorAll('.agent-menu .do').length === 1);
    await until(() => document.activeElement?.textContent?.trim() === 'Stop');
    dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }));
    await until(() => box.querySelector('.agent-menu') === null);
    render(null, box);
    box.remove();
  });

  it('have a page with their work, requests and results, or it says that there is no such agent', async () => {
    serveAgents([AGENT]);
    topic('inbox').entities.set('item/Q1', signal({ id: 'Q1', kind: 'permission', task: 'T1', agent: 'ann', subject: 'cargo test', why: '', since_wall: 1, escalated: false, group: 'g', actions: [] }));
    topic('inbox').keys.value = ['item/Q1'];
    topic('head').entities.set('head', signal({ size: 'many' }));
    visit('/agents/ann');
    const box = document.createElement('div');
    render(<Agents onlyAgent="ann" />, box);
    await until(() => box.textContent?.includes('$0.30 for each landed task') ?? false);
    const text = box.textContent ?? '';
    for (const expected of [STATES.working.word, 'cargo test', '75 % of 4 ended tasks', '$0.90', '85 %', 'runs small !', '1 of 2 slots', 'First <b>', 'regatta why ann']) expect(text).toContain(expected);
    expect(box.querySelector('a[href="/t/T1?tab=log"]')).not.toBeNull();
    await until(() => box.querySelectorAll('.card').length === 1);
    render(null, box);
    serveAgents([]);
    render(<Agents onlyAgent="bob" />, box);
    await until(() => box.textContent?.includes('Agent bob does not exist') ?? false);
    render(null, box);
    for (const name of ['inbox', 'head']) {
      topic(name).entities.clear();
      topic(name).keys.value = [];
    }
  });
});

describe('events', () => {
  const serveEvents = (newest: () => number, matches: (revision: number) => boolean) => {
    const asked: URL[] = [];
    vi.stubGlobal('fetch', async (path: string) => {
      const url = new URL(path, 'http://localhost');
      asked.push(url);
      const before = Number(url.searchParams.get('before') ?? newest() + 1);
      const oldest = Math.max(1, before - 100);
      const rows: Partial<EventRow>[] = [];
      for (let revision = before - 1; revision >= oldest && rows.length < 60; revision -= 1) if (matches(revision)) rows.push({ revision });
      const next = rows.length === 60 ? (rows[59]?.revision ?? 1) : oldest;
      return new Response(JSON.stringify({ revision: newest(), rows, ...(next > 1 ? { next_before: next } : {}) }));
    });
    return asked;
  };

  it('are loaded in parts, the newest first, without a gap or a repetition', async () => {
    let newest = 150;
    serveEvents(() => newest, () => true);
    const loader = new EventLoader();
    loader.setQuery('');
    await until(() => loader.answer.value?.total === 60);
    loader.setRange(20, 60);
    await until(() => loader.answer.value?.total === 120);
    loader.setRange(90, 120);
    await until(() => loader.answer.value?.total === 150);
    expect([...loader.rows.values()].map((row) => row.revision)).toEqual(Array.from({ length: 150 }, (_, index) => 150 - index));
    newest = 153;
    loader.refresh();
    await until(() => loader.newCount.value === 3);
    loader.setRange(0, 20);
    await until(() => loader.rows.get(0)?.revision === 153);
    expect(loader.answer.value?.total).toBe(153);
    loader.stop();
  });

  it('are not searched without end, and a person can go on', async () => {
    const asked = serveEvents(() => 5_000, (revision) => revision === 7);
    const loader = new EventLoader();
    loader.setQuery('text=rare');
    await until(() => loader.searchBefore.value !== null);
    const count = asked.length;
    expect(count).toBeLessThan(10);
    loader.searchOn();
    await until(() => asked.length > count + 3 && loader.searchBefore.value !== null);
    expect(loader.searchBefore.value ?? 0).toBeLessThan(5_000 - 600);
    loader.stop();
  });
});
