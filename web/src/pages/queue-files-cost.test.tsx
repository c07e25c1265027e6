import { render } from 'preact';
import { describe, expect, it, vi } from 'vitest';
import { seriesClass } from '../components';
import { postsText } from './conversations';
import { costFigures } from './cost';
import { forecastText } from './files';
import { Design } from './design';
import { aheadText, expectedText } from './queue';
import { membersByLane } from './team';
import type { CostSum, LandingView, Lane, MemberSummary, QueuePage, SpendResultsView } from '../api';

vi.mock('../live/worker?sharedworker&url', () => ({ default: '/assets/worker.js' }));
vi.mock('../live/client', async (load) => ({ ...(await load<typeof import('../live/client')>()), subscribe: () => () => {} }));

const landing = (n: number) => ({ landing: `L${n}`, task: `T${n}`, position: n }) as LandingView;

describe('the queue page', () => {
  it('names what is directly ahead of a landing', () => {
    const queue = { trunk: 'main', queue: [1, 2, 3].map(landing), batches: [{ cars: ['L1'], ride: 'testing' }, { cars: ['L2'], ride: 'testing', on: 'T1' }, { cars: ['L3'], ride: 'queued' }] } as unknown as QueuePage;
    expect(queue.queue.map((one) => aheadText(one, queue))).toEqual(['on main', 'on top of T1', 'after T2']);
  });

  it('says when the expected time is over or not known', () => {
    expect([expectedText(undefined, 5), expectedText(5, 9)]).toEqual(['not known', 'later than usual']);
    expect(expectedText(120_000, 0)).toMatch(/^about \d\d:\d\d, in 2m$/);
  });
});

describe('the files page', () => {
  it('says nothing about predictions before the first one', () => {
    const radar = { collisions: [], warned: 0, proved: 0, lapsed: 0 };
    expect(forecastText(radar)).toBe('');
    expect(forecastText({ ...radar, warned: 4, proved: 1, lapsed: 2 })).toContain('1 came true and 2 went away');
  });
});

describe('the cost page', () => {
  const sum = (micro_usd?: number): CostSum => ({ tasks: 1, spent: { usage: { input: micro_usd ? 9 : 0, cached_input: 0, cache_write: 0, output: 0, micro_usd }, turns: 1, attempts: 1, wall_ms: 0 } });
  const outcome = (failed_attempts: number): SpendResultsView => ({ dropped_tasks: 0, failed_attempts, landed: sum(), wasted: sum() });

  it('shows unknown costs as not reported, and no rate without enough data', () => {
    const [spent, rate, each, wasted] = costFigures(sum(), outcome(2), undefined);
    expect([spent?.value, rate?.value, rate?.more, each?.value]).toEqual(['not reported', '–', 'needs 15 minutes of spending', '–']);
    expect([wasted?.value, wasted?.more, wasted?.isBad]).toEqual(['not reported', '2 failed attempts', false]);
  });

  it('shows the used part of the cap', () => {
    expect(costFigures(sum(3_000_000), outcome(0), { cap: 12_000_000 })[0]).toMatchObject({ value: '$3.00', more: '25 % of the cap of $12.00' });
  });

  it('gives a provider one colour under each of its names', () => {
    expect(seriesClass('claude')).toBe(seriesClass('anthropic'));
    expect(new Set(['anthropic', 'codex', 'gemini', 'opencode'].map(seriesClass)).size).toBe(4);
    expect(['series-5', 'series-6']).toContain(seriesClass('goose'));
  });
});

describe('the team page', () => {
  it('groups members by lane, and keeps members without a lane', () => {
    const members = ['amy', 'bob', 'eve'].map((name) => ({ name }) as MemberSummary);
    const lanes: Lane[] = [{ id: 'primary', kind: 'primary', owner: 'codex', members: ['amy'] }, { id: 'opencode:bob', kind: 'secondary', owner: 'opencode', members: ['bob'] }];
    expect(membersByLane(members, lanes).map(([lane, of]) => [lane?.id, of.map((member) => member.name)])).toEqual([['primary', ['amy']], ['opencode:bob', ['bob']], [undefined, ['eve']]]);
  });
});

describe('the conversations page', () => {
  it('describes posts that wait or failed', () => {
    expect(postsText({ queued: 2, unshown: 0, dead: 1 })).toBe('2 queued, 1 could not be posted');
    expect(postsText({ queued: 0, unshown: 0, dead: 0 })).toBe('');
  });
});

describe('the design page', () => {
  it('shows every state with its word, and six series', () => {
    const box = document.createElement('div');
    render(<Design />, box);
    expect(['backlog', 'waiting', 'working', 'needs you', 'review', 'landing', 'landed', 'failed', 'idle', 'offline'].filter((word) => !box.textContent?.includes(word))).toEqual([]);
    expect(box.textContent).toContain('--series-6');
    render(null, box);
  });
});
