import { render } from 'preact';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { formJson } from './confirm-dialog';
import { forecastText, price } from './format-cost';
import { groupItems } from './inbox';
import { safeUrl } from './pages/conversations';
import { cached } from './pages/cost';
import { eventSummary } from './event-summary';
import { heat, heldUntil, isOpen, matchingFolders } from './pages/files';
import { FIGURES, type FigureRow, canJudge, difference, timeRows } from './pages/compare';
import { rowsInView } from './pages/mission-tasks';
import { groupMarks, markAt, sliderMarks } from './pages/replay';
import { moveTask, parseBlockers, removeTask } from './pages/plan-edit';
import { differs } from './pages/team';
import { call, codeIn, exchangeCode, key } from './session';
import { Text, withText } from './ui';
import { visibleBatches } from './plots/queue-batches';
import type { BatchView, CostSum, FileCell, FolderCell, InboxItemView, LandingView, MissionFiguresView, PlannedTask, PlannedTaskFields, QueuePage } from './api';

vi.mock('./live/worker?sharedworker&url', () => ({ default: '/assets/worker.js' }));

afterEach(() => vi.unstubAllGlobals());

describe('sign-in', () => {
  it('removes the code from the address and stores the key', async () => {
    const requests: unknown[] = [];
    vi.stubGlobal('fetch', async (url: string, init: RequestInit) => {
      requests.push([url, init.method, init.body, (init.headers as Record<string, string> | undefined)?.['x-regatta-page']]);
      return new Response(JSON.stringify({ key: 'rk_1', data: 'done' }));
    });
    history.replaceState(null, '', '/t/T9?diff=split#abcdefgh23456789');
    expect(await exchangeCode()).toBeNull();
    expect(location.hash).toBe('');
    expect(location.pathname + location.search).toBe('/t/T9?diff=split');
    expect(key.value).toBe('rk_1');
    await call('land', { id: 'T9' });
    expect(requests).toEqual([
      ['/enter', 'POST', '{"code":"abcdefgh23456789"}', undefined],
      ['/api/v1/land', 'POST', '{"id":"T9"}', 'rk_1'],
    ]);
  });

  it('finds the code in what a person pastes at the gate', () => {
    for (const text of ['abcdefgh23456789', ' http://127.0.0.1:7777/#abcdefgh23456789 ', 'http://127.0.0.1:7777/t/T9?diff=split#abcdefgh23456789']) expect(codeIn(text)).toBe('abcdefgh23456789');
    for (const text of ['', 'regatta open', 'abcdefgh2345678', 'http://127.0.0.1:7777/abcdefgh23456789x']) expect(codeIn(text)).toBeNull();
  });

  it('forgets a key that the daemon rejects', async () => {
    key.value = 'old';
    vi.stubGlobal('fetch', async () => new Response(JSON.stringify({ code: 'pass_over', message: 'over', hint: 'regatta open' }), { status: 401 }));
    await expect(call('status', {})).rejects.toMatchObject({ problem: { code: 'pass_over' } });
    expect(key.value).toBe('');
  });
});

describe('hostile text (S12)', () => {
  it('is shown as text', () => {
    const box = document.createElement('div');
    render(<Text text={'<img src=x onerror=alert(1)>\u202e[x](javascript:alert(1))'} />, box);
    expect(box.querySelector('img, a, script')).toBeNull();
    expect(box.textContent).toBe('<img src=x onerror=alert(1)>⟨202E⟩[x](javascript:alert(1))');
  });
});

describe('helpers', () => {
  it('text is put where the JSON pointer points', () => {
    const input = { id: 'Q7', answer: { say: 'text', text: '' } };
    expect(withText(input, '/answer/text', 'hi')).toEqual({ id: 'Q7', answer: { say: 'text', text: 'hi' } });
    expect(input.answer.text).toBe('');
  });

  it('a form becomes the JSON object that the agent asked for', () => {
    const form = { properties: { name: { type: 'string' }, count: { type: 'integer', default: 3 }, sure: { type: 'boolean' }, note: {} }, required: ['name'] };
    expect(JSON.parse(formJson(form, { name: 'x', sure: 'true' }))).toEqual({ name: 'x', count: 3, sure: true });
  });

  it('items that ask the same are one group, longest waiting first', () => {
    const item = (id: string, group: string, since_wall: number) => ({ id, group, since_wall }) as InboxItemView;
    const grouped = groupItems([item('Q3', 'b', 3), item('Q2', 'a', 2), item('Q1', 'b', 1)]);
    expect(grouped.map((group) => [group.key, group.items.map((item) => item.id)])).toEqual([['b', ['Q1', 'Q3']], ['a', ['Q2']]]);
  });

  it('the file tree is filtered, opens folders with conflicts, and shows when claims end', () => {
    const file = (path: string, clash: string[] = [], wanted: string[] = []) => ({ path, held: [], wanted, hot: 0, clash });
    const folder = (path: string, own: FileCell[]): FolderCell => ({ path, depth: 2, spots: own.length, held: [], wanted: 0, hot: 0, clashes: 0, clash: [], own });
    const all = [folder('', [file('a.rs')]), folder('src', [file('src/b.rs', ['T1', 'T2']), file('src/c.rs', [], ['T3'])])];
    expect(matchingFolders(all, '').length).toBe(2);
    expect(matchingFolders(all, 'src/').map((folder) => [folder.path, folder.own.length, folder.depth])).toEqual([['src', 2, 0]]);
    expect(matchingFolders(all, 't3').map((folder) => folder.own.map((file) => file.path))).toEqual([['src/c.rs']]);
    expect(all.map((folder) => isOpen(folder, '', ''))).toEqual([false, true]);
    expect(all.map((folder) => isOpen(folder, '.,-src', ''))).toEqual([true, false]);
    expect(heldUntil({ until: 'until T1 has landed' })).toBe('until T1 has landed');
    expect(heldUntil({ until_wall: 1_760_000_000_000 })).toMatch(/^until \d\d:\d\d$/);
    expect([0, 1, 2, 3, 4, 9, 400].map(heat)).toEqual([0, 1, 2, 2, 3, 4, 4]);
  });

  it('unknown costs are not shown as zero', () => {
    const sum = (input: number, micro_usd?: number, unpriced = 0): CostSum => ({ tasks: 1, unpriced, spent: { usage: { input, cached_input: 0, cache_write: 0, output: 0, micro_usd }, turns: 1, attempts: 1, wall_ms: 0 } });
    expect([price(sum(0)), price(sum(9)), price(sum(9, 0)), price(sum(9, 2_840_000)), price(sum(9, 2_840_000, 1_500))]).toEqual(['–', 'no price reported', '$0.00', '$2.84', '$2.84 + 2 k tok unpriced']);
    expect(cached(sum(9))).toBe('n/a');
    expect(forecastText({ when: 'at', wall: 1_760_000_000_000 })).toMatch(/^cap reached about \d\d:\d\d at this rate$/);
    expect(forecastText({ when: 'reached' })).toBe('the cap is reached');
  });

  it('a queue is shown in batches, and the landings that are left out are counted', () => {
    const car = (n: number): LandingView => ({ landing: `L${n}`, task: `T${n}`, subject: '', agent: 'a', position: n, state: 'testing', at: 'working', detail: '', commit: null, files: [], queued_wall: 0, branch: '', conflicts: 0, fixups: 0, settled: 0 });
    const batch = (...cars: number[]): BatchView => ({ ride: 'testing', state: 'testing', at: 'working', cars: cars.map((n) => `L${n}`) });
    const train = { queue: [1, 2, 3, 4].map(car), batches: [batch(1, 2), batch(3), batch(4)] } as unknown as QueuePage;
    const visible = visibleBatches(train, 2);
    expect(visible.batches.map(([, cars]) => cars.map((landing) => landing.task))).toEqual([['T1', 'T2'], ['T3']]);
    expect(visible.more).toBe(1);
  });

  it('moving a task keeps all blockers, and removing a task removes it as a blocker', () => {
    const task = (subject: string, after: number[]): PlannedTask => ({ task: { subject } as PlannedTaskFields, after });
    const plan = [task('a', []), task('b', [0]), task('c', [0, 1])];
    const describePlan = (plan: PlannedTask[]) => plan.map((task) => `${task.task.subject}<${task.after.map((blocker) => plan[blocker]?.task.subject).join('')}`);
    expect(describePlan(moveTask(plan, 2, 0))).toEqual(['c<ab', 'a<', 'b<a']);
    expect(describePlan(moveTask(plan, 0, 9))).toEqual(['b<a', 'c<ba', 'a<']);
    expect(describePlan(removeTask(plan, 0))).toEqual(['b<', 'c<b']);
    expect(plan[2]?.after).toEqual([0, 1]);
    expect(parseBlockers('1, 3 3 x 9 2', 1, 3)).toEqual([0, 2]);
  });

  it('an event is summarized in one line', () => {
    expect(eventSummary({ attempt: 'A4', cause: 'submitted', detail: '', spend: { turns: 0, usage: { input: 22000 } } }, 'A4')).toBe('cause submitted · spend usage input 22000');
    expect(eventSummary({ files: ['a', 'b'], many: [1, 2, 3, 4, 5], no: null })).toBe('files a, b · many 5 of them');
    const turn = { n: 12, said: { said: 'usage', usage: { input: 22000, micro_usd: 210000 }, session: 'x' }, wall_ms: 61_000, asked_wall: 1794839147597, base: '4b508f8b5b479d65d08eb68655ec0c0cee1b9113' };
    expect(eventSummary(turn, 'A4')).toBe('said usage, usage input 22000, cost $0.21, session x · wall 1m · base 4b508f8b5b');
  });

  it('a member differs only in fields that were specified', () => {
    expect(differs({ provider: 'codex' }, { provider: 'codex', model: 'small' })).toBe(false);
    expect(differs({ provider: 'codex', model: 'big' }, { provider: 'codex', model: 'small' })).toBe(true);
    expect(differs({ model: 'big' }, undefined)).toBe(false);
  });

  it('only http and https URLs are links', () => {
    expect(safeUrl('https://example.com/a')).toBe('https://example.com/a');
    expect([safeUrl('javascript:alert(1)'), safeUrl('data:text/html,x'), safeUrl(''), safeUrl(undefined)]).toEqual([null, null, null, null]);
  });

  it('compared missions have the same activity rows, longest first', () => {
    const all = [{ time: [{ doing: 'working', times: 2, ms: 5_000 }] }, { time: [{ doing: { waiting: 'rate_limit' }, times: 1, ms: 60_000 }, { doing: 'working', times: 1, ms: 1_000 }] }, { time: [] }] as unknown as MissionFiguresView[];
    const rows = timeRows(all).map((row) => [row.name, ...all.map((figures) => row.value(figures))]);
    expect(rows).toEqual([['tasks waiting for a rate limit', 0, 60_000, null], ['tasks working', 5_000, 1_000, null]]);
  });

  it('a difference says whether it is better or worse', () => {
    const row = (name: string) => FIGURES.find((figure) => figure.name === name) as FigureRow;
    expect(difference(row('Cost'), 1_500_000, 1_000_000)).toEqual({ text: '+$0.50 (+50 %)', judgement: 'worse' });
    expect(difference(row('Duration'), 60_000, 120_000)).toEqual({ text: '−1m (−50 %)', judgement: 'better' });
    expect(difference(row('Landed share'), 100, 60)).toEqual({ text: '+40 %', judgement: 'better' });
    expect(difference(row('Tasks'), 4, 2)).toEqual({ text: '+2 (+100 %)', judgement: '' });
    expect(difference(row('Failed'), 0, 0)).toBeNull();
    expect(difference(row('Cost'), null, 1)).toBeNull();
    const judged = (name: string, value: [number, boolean], base: [number, boolean]) => canJudge(row(name), { of: value[0], running: value[1] }, { of: base[0], running: base[1] });
    // A running mission that has cost less may still cost more, but one that has cost more will not cost less.
    expect([judged('Cost', [1, true], [2, false]), judged('Cost', [3, true], [2, false]), judged('Cost', [1, false], [2, true]), judged('Cost', [3, false], [2, true])]).toEqual([false, true, true, false]);
    expect([judged('Cost', [1, true], [2, true]), judged('Landed share', [90, true], [10, false]), judged('Landed share', [90, false], [10, false])]).toEqual([false, false, true]);
  });

  it('moments of the same kind in a row are one group', () => {
    const mark = (revision: number, text: string, task?: string) => ({ revision, wall: 0, text, at: 'idle' as const, ...(task ? { task } : {}) });
    const added = [1, 2, 3, 4, 5].map((n) => mark(n, `T${n} is added`, `T${n}`));
    const groups = groupMarks([mark(0, 'the mission begins'), ...added, mark(6, 'T1 is started by ann', 'T1'), mark(7, 'T2 is started by bob', 'T2')]);
    expect(groups.map((group) => [group.from, group.to, group.text])).toEqual([[0, 1, 'the mission begins'], [1, 6, '5 tasks added'], [6, 7, 'T1 is started by ann'], [7, 8, 'T2 is started by bob']]);
  });

  it('the slider of a replay has a bounded number of marks, and shows the most urgent state of each place', () => {
    const marks = Array.from({ length: 3_000 }, (_, index) => ({ at: index === 1_500 ? ('failed' as const) : ('working' as const) }));
    const shown = sliderMarks(marks);
    expect(shown.length).toBe(300);
    expect(shown.filter((mark) => mark.at === 'failed').length).toBe(1);
    expect(sliderMarks([{ at: 'idle' }, { at: 'landed' }])).toEqual([{ percent: 100, at: 'landed' }]);
  });

  it('a long table has only the rows in view', () => {
    expect(rowsInView(1_000, 0, 600)).toEqual({ from: 0, to: 26 });
    expect(rowsInView(1_000, 34_000, 600)).toEqual({ from: 992, to: 1_000 });
    expect(rowsInView(0, 0, 600)).toEqual({ from: 0, to: 0 });
  });

  it('a revision belongs to the mark before it', () => {
    const marks = [{ revision: 3 }, { revision: 7 }];
    expect([2, 3, 6, 7, 99].map((revision) => markAt(marks, revision))).toEqual([-1, 0, 0, 1, 1]);
  });
});
