import { signal } from '@preact/signals';
import { render } from 'preact';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { route } from '../route';
import { lazy } from '../lazy';
import { overlay } from '../navigation';
import { Palette } from '../palette';
import { Conversations } from './conversations';
import { Lanes } from '../plots/lanes';
import { PlanPage } from './plan';
import { Replay } from './replay';
import { Setup } from './setup';
import { Tasks } from './tasks';
import { Team } from './team';
import { topic } from '../live/client';
import { pending } from '../ui';
import { ConfirmDialog } from '../confirm-dialog';

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

describe('replay', () => {
  it('shows a mission at the revision in the address, and fetches another revision', async () => {
    const requests: unknown[] = [];
    vi.stubGlobal('fetch', async (url: string, init: RequestInit) => {
      requests.push([url, JSON.parse(String(init.body))]);
      const data = { mission: 'M1', title: 'Add login', first: 3, last: 40, at: 12, wall: 1_700_000_000_000, event: 'task.started', tasks: [ROW], queue: [], marks: [{ revision: 3, wall: 1, text: 'M1 begins', at: 'idle' }, { revision: 12, wall: 2, text: 'T1 is started', at: 'working', task: 'T1' }, { revision: 40, wall: 3, text: 'T1 landed', at: 'landed', task: 'T1' }] };
      return new Response(JSON.stringify({ data }));
    });
    visit('/replay?mission=M1&at=12');
    const box = document.createElement('div');
    render(<Replay />, box);
    await until(() => box.querySelector('[role=slider]') !== null);
    expect(requests).toEqual([['/api/v1/mission.replay', { id: 'M1', at: 12 }]]);
    expect(box.textContent).toContain('T1 is started');
    expect(box.textContent).toContain('First <b>');
    expect(box.textContent).toContain('regatta replay M1 --at 12');
    expect(box.textContent).toContain('moment 2 of 3 · revision 12 of 40');
    expect(box.querySelector('tr[aria-current]')?.textContent).toContain('T1');
    const slider = box.querySelector('[role=slider]');
    expect(slider?.getAttribute('aria-valuenow')).toBe('2');
    box.querySelector<HTMLElement>('[aria-label="previous moment"]')?.click();
    expect(location.search).toContain('at=3');
    await until(() => requests.length === 2);
    expect(requests[1]).toEqual(['/api/v1/mission.replay', { id: 'M1', at: 3 }]);
    slider?.dispatchEvent(new KeyboardEvent('keydown', { key: 'End', bubbles: true }));
    // At the last moment, the address has no revision, so that a running mission shows its newest state.
    expect(location.search).toBe('?mission=M1');
    await until(() => (box.querySelector<HTMLElement>('.thumb')?.style.left ?? '') === '100%');
    render(null, box);
  });
});

describe('conversations', () => {
  it('shows turns and actions, and escapes untrusted text', async () => {
    const line = { id: 'V1', service: 'slack', agent: 'ann', project: 'shop', title: '#dev <i>', url: 'javascript:alert(1)', task: 'T1', word: 'held', at: 'waiting', turns: 1, queued: 0, last: 'Eve: <script>', unshown: 0, dead: 0, updated_wall: 5, actions: [{ label: 'Accept', verb: 'conversation.accept', input: { conversation: 'V1' }, cli: 'regatta bridge accept V1', first: true }] };
    topic('conversations').entities.set('conversation/V1', signal(line));
    topic('conversations').keys.value = ['conversation/V1'];
    vi.stubGlobal('fetch', async () => new Response(JSON.stringify({ data: { turns: [{ n: 1, by: { id: 'U1', name: 'Ann' }, text: 'fix it', state: 'done', answer: '<img src=x>', asked_wall: 1 }], turn_count: 3, held: [{ by: { id: 'U2', name: 'Eve' }, text: 'let me in', wall: 2 }] } })));
    visit('/conversations?id=V1');
    const box = document.createElement('div');
    render(<Conversations />, box);
    await until(() => box.textContent?.includes('fix it') ?? false);
    expect(box.querySelector('img, script, a[href^="javascript"]')).toBeNull();
    expect(box.textContent).toContain('2 earlier turns are no longer stored');
    expect(box.textContent).toContain('Eve is not allowed to ask');
    expect(box.textContent).toContain('Accept');
    render(null, box);
  });
});

describe('a lazy component', () => {
  it('appears in all instances, also in one that was rendered while it loaded', async () => {
    let resolveImport: ((part: () => preact.JSX.Element) => void) | undefined;
    const Part = lazy(() => new Promise<() => preact.JSX.Element>((done) => (resolveImport = done)));
    const [first, second] = [document.createElement('div'), document.createElement('div')];
    render(<Part />, first);
    await until(() => resolveImport !== undefined);
    render(<Part />, second);
    resolveImport?.(() => <b>here</b>);
    await until(() => first.textContent === 'here' && second.textContent === 'here');
    render(null, first);
    render(null, second);
  });
});

describe('a plan', () => {
  it('shows conflicts, is recomputed by the daemon after an edit, and starts with the edits', async () => {
    const requests: [string, Record<string, unknown>][] = [];
    const task = (subject: string, files: string[]) => ({ task: { subject, files, assign: null }, after: [] as number[] });
    const drawn = (tasks: unknown[]) => ({ project: 'shop', title: 'Add login', task: 'T31', planner: 'ann', state: 'ready', text: 'each starts when it is ready', tasks, waves: tasks.map((_, index) => `1.${index + 1}`), owned: tasks.length > 1 ? [{ file: 'a.rs', owner: 0, others: [1], text: '2 after 1' }] : [], conflicts: tasks.length - 1, warnings: ['2 names no files'], agents: ['ann', 'bob'], estimate: '$1.00-$2.00', actions: [{ label: 'Start', verb: 'mission.start', input: { tasks }, cli: "regatta run 'Add login'", first: true }] });
    vi.stubGlobal('fetch', async (url: string, init: RequestInit) => {
      const input = JSON.parse(String(init.body)) as Record<string, unknown>;
      requests.push([url, input]);
      const both = [task('First <i>', ['a.rs']), task('Second', ['a.rs'])];
      const data = url.endsWith('mission.start') ? { id: 'M5' } : drawn(url.endsWith('plan.draw') ? (input.tasks as unknown[]) : both);
      return new Response(JSON.stringify({ data }));
    });
    localStorage.clear();
    visit('/plan/T31');
    const box = document.createElement('div');
    render(<PlanPage id="T31" />, box);
    await until(() => box.querySelectorAll('.plan-task').length === 2);
    expect(box.textContent).toContain('2 tasks · 1 wave');
    expect(box.textContent).toContain('$1.00-$2.00');
    expect(box.textContent).toContain('2 names no files');
    expect(box.querySelectorAll('.plan tr.clash').length).toBe(2);
    expect(box.querySelector('i')).toBeNull();
    (box.querySelector('[aria-label="Remove task 1"]') as HTMLButtonElement).click();
    await until(() => box.textContent?.includes('1 task · 1 wave') ?? false);
    expect(requests.at(-1)).toMatchObject(['/api/v1/plan.draw', { project: 'shop', title: 'Add login', tasks: [{ task: { subject: 'Second' } }] }]);
    expect(localStorage.getItem('regatta-plan-T31')).toContain('Second');
    [...box.querySelectorAll('button')].find((button) => button.textContent?.includes('Start'))?.click();
    await until(() => requests.at(-1)?.[0] === '/api/v1/mission.start' && location.search === '?mission=M5');
    expect(requests.at(-1)?.[1]).toMatchObject({ tasks: [{ task: { subject: 'Second' } }] });
    expect(localStorage.getItem('regatta-plan-T31')).toBeNull();
    render(null, box);
  });
});

describe('a plan that cannot be used', () => {
  it('is requested again with the whole goal and the chosen planner', async () => {
    const requests: [string, Record<string, unknown>][] = [];
    const goal = 'Add login\n\nWith rate limits <b>';
    const again = { label: 'Ask again', verb: 'plan.ask', input: { goal, planner: 'ann' }, cli: "regatta run 'Add login…'", choice: { label: 'Who plans', to: '/planner', flag: '--planner', of: ['ann', 'bob'], now: 'ann' } };
    vi.stubGlobal('fetch', async (url: string, init: RequestInit) => {
      requests.push([url, JSON.parse(String(init.body)) as Record<string, unknown>]);
      const task = url.endsWith('plan.ask') ? 'T32' : 'T31';
      const data = { project: 'shop', title: 'Add login', goal, task, planner: 'ann', state: 'unusable', text: 'it has no tasks', tasks: [], waves: [], owned: [], conflicts: 0, warnings: [], agents: [], estimate: '', actions: [again] };
      return new Response(JSON.stringify({ data }));
    });
    visit('/plan/T31');
    const box = document.createElement('div');
    render(<PlanPage id="T31" />, box);
    await until(() => box.textContent?.includes('With rate limits') ?? false);
    expect(box.querySelector('b')).toBeNull();
    const select = box.querySelector('select') as HTMLSelectElement;
    expect([select.value, [...select.options].map((option) => option.value)]).toEqual(['ann', ['ann', 'bob']]);
    select.value = 'bob';
    select.dispatchEvent(new Event('change'));
    await until(() => [...box.querySelectorAll('button')].some((button) => button.title.endsWith('--planner bob')));
    [...box.querySelectorAll('button')].find((button) => button.textContent?.includes('Ask again'))?.click();
    await until(() => location.pathname === '/plan/T32');
    expect(requests.find((request) => request[0].endsWith('plan.ask'))?.[1]).toEqual({ goal, planner: 'bob' });
    render(null, box);
  });
});

describe('many lanes', () => {
  it('are cells: only a changed cell renders again, and all return after the table', async () => {
    const lane = (index: number, text: string) => ({ agent: `a-${index}`, provider: 'p', at: 'working', text, task: null, subject: '', since_wall: 1, capacity: { current: 1, max: 1 }, wanted: '', running: '', actions: [] });
    const keys = Array.from({ length: 40 }, (_, index) => `lane/a-${index}`);
    keys.forEach((key, index) => topic('lanes').entities.set(key, signal(lane(index, 'first'))));
    topic('lanes').keys.value = keys;
    topic('lanes').known.value = true;
    visit('/');
    const box = document.createElement('div');
    render(<Lanes size="many" />, box);
    const cells = () => [...box.querySelectorAll<HTMLElement>('.cell')];
    await until(() => cells().length === 40);
    const before = cells();
    (topic('lanes').entities.get('lane/a-7') as ReturnType<typeof signal>).value = lane(7, 'second');
    topic('lanes').changed.value += 1;
    await until(() => box.innerHTML.includes('second'));
    expect(cells()[7]?.title).toBe('a-7: working  second');
    expect(cells().every((element, index) => element === before[index])).toBe(true);
    visit('/?as=table');
    await until(() => box.querySelectorAll('tbody tr').length === 40);
    visit('/');
    await until(() => cells().length === 40);
    expect([cells()[7]?.title, cells()[8]?.title]).toEqual(['a-7: working  second', 'a-8: working  first']);
    render(null, box);
  });
});

describe('tasks', () => {
  it('are drawn as a graph in the layout of the daemon, and a filter dims the others', async () => {
    const row = (id: string) => ({ ...ROW, id });
    vi.stubGlobal('fetch', async (path: string) => new Response(JSON.stringify({ revision: 1, total: 1, all: 3, counts: [], needs_you: 0, offset: 0, rows: [row('T2')], missions: [], unlisted: 0, is_counting: false, path })));
    const node = (column: number, row: number, tasks: string[], more: object) => ({ column, row, tasks, label: 'x', word: 'waiting', at: 'waiting', critical: false, ...more });
    const nodes = [node(0, 0, ['T7', 'T8'], { label: '2 landed', word: 'landed', at: 'landed' }), node(0, 1, ['T1'], { critical: true }), node(1, 0, ['T2'], { label: 'Greet <b>', agent: 'ann', needs: ['T1', 'T7'], critical: true })];
    const edges = [{ from: 1, to: 2, through: [[0, 1], [1, 0]], critical: true }, { from: 0, to: 2, through: [[0, 0], [1, 0]], critical: false }];
    const graph = topic('graph.M1');
    graph.entities.set('graph', signal({ title: 'M1 Greet', text: '4 tasks in 2 waves', tasks: 4, columns: 2, rows: 2, nodes, edges, critical: ['T1', 'T2'] }));
    visit('/tasks?view=graph&mission=M1');
    const box = document.createElement('div');
    render(<Tasks />, box);
    const boxes = () => [...box.querySelectorAll('svg [data-node]')];
    await until(() => boxes().length === 3);
    expect(boxes().map((element) => element.getAttribute('href'))).toEqual([null, '/t/T1', '/t/T2']);
    expect(boxes().map((element) => element.querySelector('title')?.textContent)).toEqual(['2 landed: T7 T8. Unfold', 'T1 waiting: x; on the critical path', 'T2 waiting: Greet <b>, ann, needs T1 T7; on the critical path']);
    // All boxes can be reached with j and k, in drawing order. Critical edges are on top and have arrow heads.
    expect(box.querySelectorAll('svg [data-row]').length).toBe(3);
    expect([...box.querySelectorAll('svg path.edge')].map((element) => [element.getAttribute('class'), element.getAttribute('marker-end')])).toEqual([['edge', 'url(#arrow)'], ['edge bold', 'url(#arrow-critical)']]);
    expect(box.textContent).toContain('critical path, the longest chain of open tasks: T1 → T2');
    // A group unfolds in place.
    boxes()[0]?.dispatchEvent(new MouseEvent('click', { bubbles: true }));
    await until(() => box.querySelectorAll('svg [data-row]').length === 5);
    expect([...box.querySelectorAll('svg [data-row][href]')].map((element) => element.getAttribute('href'))).toEqual(['/t/T7', '/t/T8', '/t/T1', '/t/T2']);
    boxes()[0]?.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
    await until(() => box.querySelectorAll('svg [data-row]').length === 3);
    expect(box.textContent).toContain('regatta graph M1');
    expect(box.querySelectorAll('.faint').length).toBe(0);
    visit('/tasks?view=graph&mission=M1&q=T2');
    await until(() => box.querySelectorAll('.faint').length === 2);
    visit('/tasks?view=graph&mission=M1,head');
    await until(() => box.querySelector('svg') === null);
    render(null, box);
    graph.entities.clear();
  });
});

describe('a team', () => {
  it('shows each state as glyph, word and colour, and links to its members', () => {
    const member = (name: string, state: string, got = {}) => ({ name, state, asked: { model: 'big' }, got });
    const team = { summary: { said: '1 of 2 alive', members: [{ name: 'amy', lead: true, provider: 'codex', word: 'alive', said: 'alive' }, { name: 'bob', provider: 'opencode', word: 'did not start', said: 'did not start: no key' }] }, desired: { name: 'harbour', lead: { name: 'amy' }, members: [{ name: 'bob' }] }, resolved: { id: 'N2', lanes: [], members: [member('amy', 'alive', { model: 'small' }), member('bob', 'failed_to_start')], begun_wall: 1 }, live: [{ name: 'amy', live: 'hung' }, { name: 'bob', live: 'coming' }], actions: [], each: [] };
    topic('teams').entities.set('team/harbour', signal(team));
    topic('teams').keys.value = ['team/harbour'];
    const box = document.createElement('div');
    render(<Team />, box);
    const cells = [...box.querySelectorAll('tr[data-row]')].map((row) => [...row.children].map((element) => element.textContent?.trim()));
    expect(cells.map((row) => row.slice(2, 5))).toEqual([['small ! differs from wanted', '✓ alive', '✕ hung'], ['', '✕ did not start', '▶ starting']]);
    expect([...box.querySelectorAll('.failure p')].map((element) => element.textContent)).toEqual(['amy: hung', 'bob: did not start: no key']);
    expect(box.querySelector('.differs')).not.toBeNull();
    expect(box.querySelector('a[href="/agents/harbour/amy"]')).not.toBeNull();
    render(null, box);
    topic('teams').keys.value = [];
  });
});

describe('the palette', () => {
  it('lists navigation before actions, finds agents and their actions, and changes only when the query changes', async () => {
    const requests: string[] = [];
    vi.stubGlobal('fetch', async (url: string) => (requests.push(url), new Response(JSON.stringify({ data: [] }))));
    const act = (label: string, cli: string) => ({ label, verb: label.toLowerCase(), input: {}, cli });
    const put = (name: string, key: string, value: unknown) => {
      topic(name).entities.set(key, signal(value));
      topic(name).keys.value = [...topic(name).entities.keys()];
      topic(name).changed.value += 1;
    };
    put('inbox', 'item/Q1', { id: 'Q1', kind: 'permission', subject: 'x', group: 'g', since_wall: 1, actions: [act('Allow once', 'regatta allow Q1')] });
    put('lanes', 'lane/ann', { agent: 'ann', at: 'working', actions: [act('Pause', 'regatta pause ann')] });
    visit('/');
    overlay.value = 'palette';
    const box = document.createElement('div');
    document.body.append(box);
    render(<Palette />, box);
    const shown = () => [...box.querySelectorAll('[role=option]')].map((element) => element.textContent ?? '');
    await until(() => shown().length === 12);
    expect(shown()[0]).toBe('Now g n');
    const input = box.querySelector('input') as HTMLInputElement;
    const type = (query: string) => {
      input.value = query;
      input.dispatchEvent(new Event('input', { bubbles: true }));
    };
    type('pause ann');
    await until(() => shown()[0] === 'Pause · ann regatta pause ann');
    const before = shown();
    put('lanes', 'lane/aaa', { agent: 'pauseann', at: 'working', actions: [act('Pause', 'regatta pause pauseann')] });
    await new Promise((done) => setTimeout(done, 30));
    expect(shown()).toEqual(before);
    type('zzzz');
    await until(() => box.textContent?.includes('Nothing matches') ?? false);
    expect(requests.filter((url) => !url.includes('/page/tasks'))).toEqual([]);
    overlay.value = null;
    render(null, box);
    box.remove();
    for (const name of ['inbox', 'lanes']) {
      topic(name).entities.clear();
      topic(name).keys.value = [];
    }
  });
});

describe('dialogs', () => {
  it('do not focus the button of an irreversible action, and restore the focus', async () => {
    const box = document.createElement('div');
    const button = document.createElement('button');
    document.body.append(button, box);
    button.focus();
    pending.value = { label: 'Drop', verb: 'drop', input: {}, cli: 'regatta drop T2', first: false, grave: true };
    render(<ConfirmDialog />, box);
    await until(() => box.querySelectorAll('button').length === 2);
    const [drop, close] = [...box.querySelectorAll('button')];
    expect([drop?.textContent, drop?.hasAttribute('autofocus'), close?.hasAttribute('autofocus')]).toEqual(['Drop', false, true]);
    close?.focus();
    pending.value = null;
    render(null, box);
    await until(() => document.activeElement === button);
    button.remove();
    box.remove();
  });
});

describe('setup', () => {
  function stubAnswers(requests: [string, unknown][] = []): void {
    const answers: Record<string, unknown> = {
      'policy.list': [{ id: 'R1', scope: { agent: 'codex-1' }, effect: 'allow', tool: 'execute', command: 'npm install *' }],
      doctor: {
        checks: [
          { id: 'git', level: 'ok', text: '2.47' },
          { id: 'agents', level: 'warn', text: 'no agent', fix: 'regatta provider' },
        ],
        providers: [
          { preset: 'codex', provider: 'codex', program: '/bin/codex', version: '1.0', signed_in: 'yes', fix: null, add: { name: 'codex-1', runtime: 'acp', command: ['codex-acp'], provider: 'codex', profile: { preset: 'codex' } } },
          { preset: 'goose', provider: 'goose', program: null, version: null, signed_in: '', fix: 'npm install -g goose' },
        ],
      },
      'agent.list': [{ name: 'codex-1', at: 'idle', word: 'idle', runtime: { runtime: 'acp', argv: ['codex-acp'] }, profile: { preset: 'codex' }, capacity: { current: 0, max: 1, available: 1 }, max_tasks: 1, role: 'worker' }],
    };
    vi.stubGlobal('fetch', async (url: string, init: RequestInit) => {
      const verb = url.split('/').pop() ?? '';
      requests.push([verb, JSON.parse(String(init.body))]);
      if (verb === 'bridge.list') return new Response(JSON.stringify({ code: 'x', message: 'bridges failed', hint: '' }), { status: 500 });
      return new Response(JSON.stringify({ data: answers[verb] ?? [] }));
    });
  }

  async function showSection(address: string, expected: string): Promise<HTMLElement> {
    visit(address);
    const box = document.createElement('div');
    render(<Setup />, box);
    await until(() => box.textContent?.includes(expected) ?? false);
    return box;
  }

  it('shows rules as text, and an error where a part fails', async () => {
    stubAnswers();
    const box = await showSection('/setup?section=permissions', 'R1');
    const rule = [...box.querySelectorAll('tr')].find((row) => row.textContent?.startsWith('R1'));
    expect([...(rule?.children ?? [])].slice(0, 4).map((element) => element.textContent)).toEqual(['R1', '✓ allow', 'agent codex-1', 'tool execute · command npm install *']);
    render(null, box);
    const bridges = await showSection('/setup?section=bridges', 'bridges failed');
    expect(bridges.querySelector('.error')?.textContent).toBe('bridges failed');
    render(null, bridges);
  });

  it('counts warnings and shows their fixes first', async () => {
    stubAnswers();
    const box = await showSection('/setup', '1 warning in 2 checks');
    expect([...box.querySelectorAll('.checklist b')].map((element) => element.textContent)).toEqual(['agents', 'git']);
    expect(box.querySelector('.checklist .shell code')?.textContent).toBe('regatta provider');
    render(null, box);
  });

  it('adds an agent with the request that the daemon prepared, under the first free name', async () => {
    const requests: [string, unknown][] = [];
    stubAnswers(requests);
    const box = await showSection('/setup?section=agents', 'regatta agent add codex-2 --preset codex');
    const form = box.querySelector('form');
    document.body.append(box);
    form?.requestSubmit();
    await until(() => requests.some(([verb]) => verb === 'agent.add'));
    expect(requests.find(([verb]) => verb === 'agent.add')?.[1]).toEqual({ name: 'codex-2', runtime: 'acp', command: ['codex-acp'], provider: 'codex', max_tasks: 1, profile: { preset: 'codex' } });
    render(null, box);
    box.remove();
  });
});
