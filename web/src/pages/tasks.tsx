// All tasks, as a list, a board or a graph. The server selects, sorts and counts the tasks.

import { useComputed, useSignal } from '@preact/signals';
import { lazy } from '../lazy';
import { plain, shortName, usd } from '../format';
import { topic } from '../live/client';
import { Graph } from '../plots/graph';
import { queryParam, route, setQueryParam } from '../route';
import { Age, Glyph, Mark, Panel, TaskLink, useTopics } from '../ui';
import { type ListColumn, VirtualList, useRows } from '../virtual-list';
import type { TaskListRow, TaskWindow } from '../api';
import { STATES, TASK_STATES } from '../states';
import { Views } from './task-views';
import './tasks.css';

const TaskPeek = lazy<{ row: TaskListRow; close: () => void }>(() => import('./task-peek').then((module) => module.TaskPeek));
const TaskBoard = lazy<{ query: string; counts: TaskWindow['counts'] }>(() => import('./task-board').then((module) => module.TaskBoard));

const PATH = '/api/v1/page/tasks';

const COLUMNS: ListColumn[] = [
  { name: 'state', head: 'State', isSortable: true },
  { name: 'id', head: 'Task', isSortable: true },
  { name: 'subject', head: 'Subject', isSortable: true },
  { name: 'agent', head: 'Agent', isSortable: true },
  { name: 'mission', head: 'Mission', isSortable: true },
  { name: 'lines', head: 'Lines', isRight: true },
  { name: 'commit', head: 'Commit' },
  { name: 'cost', head: 'Cost', isSortable: true, isRight: true },
  { name: 'since', head: 'Age', isSortable: true, isRight: true },
];

/** The parameters of the address that select tasks, under the names that the server knows. */
const FILTERS: [string, string][] = [
  ['q', 'text'],
  ['at', 'at'],
  ['agent', 'agent'],
  ['mission', 'mission'],
  ['file', 'file'],
  ['age', 'age'],
  ['sort', 'sort'],
];

/** Returns the query for the server from the page's address. */
export function serverQuery(without: string[] = []): string {
  const query = new URLSearchParams();
  for (const [name, to] of FILTERS) if (queryParam(name) && !without.includes(name)) query.set(to, queryParam(name));
  return query.toString();
}

export function Lines({ row }: { row: TaskListRow }) {
  if (row.added === undefined || row.removed === undefined) return null;
  return (
    <span class="mono" title={`${row.added} lines added, ${row.removed} removed`}>
      <span class="plus">+{row.added}</span> <span class="minus">−{row.removed}</span>
    </span>
  );
}

function cells(row: TaskListRow, missions: Map<string, string>) {
  const why = plain(row.text.split('\n')[0] ?? '', 200);
  return [
    <Mark at={row.at} word={row.word} />,
    <TaskLink id={row.id} />,
    <span title={plain(why ? `${row.subject}\n${why}` : row.subject, 600)}>
      <span class="task-subject">{plain(row.subject, 200)}</span>
      {why && <span class="dim task-why">{why}</span>}
    </span>,
    row.agent && (
      <a class="quiet" href={`/agents/${row.agent}`} title={row.agent}>
        {shortName(row.agent, 20)}
      </a>
    ),
    row.mission && (
      <a class="quiet" href={`/m/${row.mission}`} title={plain(missions.get(row.mission) ?? '', 120)}>
        {row.mission}
      </a>
    ),
    <Lines row={row} />,
    row.commit && <code>{row.commit.slice(0, 8)}</code>,
    row.micro_usd === undefined ? null : usd(row.micro_usd),
    <Age since={row.since_wall} />,
  ];
}

/** Buttons that select states, each with the number of tasks. Several states can be selected. */
function StateChips({ answer }: { answer: TaskWindow | null }) {
  const selected = queryParam('at').split(',').filter(Boolean);
  const toggle = (name: string) => {
    const others = selected.filter((other) => other !== name && other !== 'needs-you');
    setQueryParam('at', selected.includes(name) ? others.join(',') : [...others, name].join(','), true);
  };
  const counts = new Map(answer?.counts.map((entry) => [entry.at, entry.count]) ?? []);
  return (
    <span class="row" role="group" aria-label="States" tabIndex={0}>
      {TASK_STATES.map((state) => (
        <button key={state} type="button" class="chip" aria-pressed={selected.includes(state)} disabled={!counts.get(state) && !selected.includes(state)} onClick={() => toggle(state)}>
          <Glyph at={state} /> {STATES[state].word} <b class="count">{counts.get(state) ?? '–'}</b>
        </button>
      ))}
    </span>
  );
}

/** The conditions of the address that have no control of their own, each with a button that removes it. */
function Conditions({ missions }: { missions: Map<string, string> }) {
  const shown = ['mission', 'agent', 'file', 'age'].filter((name) => queryParam(name));
  return (
    <>
      {shown.map((name) => (
        <button key={name} type="button" class="chip" aria-pressed="true" title={`remove this condition: ${name}`} onClick={() => setQueryParam(name, null, true)}>
          {name} {plain(queryParam(name), 60)} {name === 'mission' && plain(missions.get(queryParam(name)) ?? '', 40)} ✕
        </button>
      ))}
    </>
  );
}

function tasksText(count: number): string {
  return `${count.toLocaleString('en')} task${count === 1 ? '' : 's'}`;
}

function Summary({ answer }: { answer: TaskWindow | null }) {
  if (!answer) return <>Tasks</>;
  const isAll = answer.total === answer.all;
  return (
    <>
      {isAll ? tasksText(answer.total) : `${answer.total.toLocaleString('en')} of ${tasksText(answer.all)}`}
      {answer.micro_usd !== undefined && <span class="aside"> · {usd(answer.micro_usd)}</span>}
    </>
  );
}

export function Tasks() {
  useTopics('head');
  const view = queryParam('view') || 'list';
  const query = serverQuery();
  const loader = useRows<TaskListRow, TaskWindow>(PATH, query, (answer) => answer.is_counting);
  const peeked = useSignal<TaskListRow | null>(null);
  const answer = loader.answer.value;
  const missions = useComputed(() => new Map([...(topic('head').get('head')?.missions ?? []), ...(loader.answer.value?.missions ?? [])].map((mission) => [mission.id, mission.title]))).value;
  const isFiltered = FILTERS.some(([name]) => name !== 'sort' && queryParam(name));
  void route.value;
  const isGraphFiltered = answer !== null && FILTERS.some(([name]) => name !== 'sort' && name !== 'mission' && queryParam(name));
  const empty = isFiltered ? (
    <>
      No task matches. <a href="/tasks">Show all tasks</a>
    </>
  ) : (
    <>
      No tasks yet. Add one: <code>regatta add "Fix the login"</code>
    </>
  );
  return (
    <Panel
      class="tasks-page"
      title={<Summary answer={answer} />}
      aside={
        <span class="tabs" role="group" aria-label="View">
          {['list', 'board', 'graph'].map((name) => (
            <button key={name} type="button" class="chip" aria-pressed={view === name} onClick={() => setQueryParam('view', name === 'list' ? null : name, true)}>
              {name}
            </button>
          ))}
        </span>
      }
    >
      <Views answer={answer} />
      <div class="list-bar">
        <input
          id="filter"
          type="search"
          aria-label="Filter"
          placeholder="filter: words, agent:codex-1, mission:M3, file:src/auth, newer:2h  /"
          value={queryParam('q')}
          onInput={(event) => setQueryParam('q', event.currentTarget.value)}
        />
        <Conditions missions={missions} />
        <StateChips answer={answer} />
      </div>
      {view === 'graph' ? (
        <Graph scope={queryParam('around') || queryParam('mission')} matchesFilter={isGraphFiltered ? matching(loader.rows) : null} />
      ) : view === 'board' ? (
        <TaskBoard query={serverQuery(['at', 'sort'])} counts={answer?.counts ?? []} />
      ) : (
        <div class={peeked.value ? 'with-peek' : ''}>
          <VirtualList loader={loader} columns={COLUMNS} label="Tasks" name="task-list" rowKey={(row) => row.id} cells={(row) => cells(row, missions)} peek={(row) => (peeked.value = row)} empty={empty} />
          {peeked.value && <TaskPeek key={peeked.value.id} row={peeked.value} close={() => (peeked.value = null)} />}
        </div>
      )}
      {answer !== null && answer.unlisted > 0 && <p class="list-note">{tasksText(answer.unlisted)} that ended longest ago are not in this list: regatta task list --all</p>}
    </Panel>
  );
}

/** Returns a test for the tasks of a graph: whether they are among the loaded rows. */
function matching(rows: Map<number, TaskListRow>): (id: string) => boolean {
  const ids = new Set([...rows.values()].map((row) => row.id as string));
  return (id) => ids.has(id);
}
