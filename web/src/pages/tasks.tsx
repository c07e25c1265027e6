// All tasks, as a list, a board or a graph.

import { plain, shortName, usd } from '../format';
import { byName, topic } from '../live/client';
import { Graph } from '../plots/graph';
import { queryParam, setQueryParam } from '../route';
import { type Column, Heads, sortRows } from '../table';
import { Age, Empty, Glyph, Panel, TaskLink, useTopics } from '../ui';
import type { TaskRowView } from '../api';
import { STATES, TASK_STATES } from '../states';

const MAX_BOARD_TASKS = 150;
const LIST_PAGE_SIZE = 200;

export function matches(row: TaskRowView, query: string, at: string, mission: string): boolean {
  if (at && row.at !== at) return false;
  if (mission && row.mission !== mission) return false;
  const text = `${row.id} ${row.subject} ${row.agent ?? ''} ${row.text}`.toLowerCase();
  return query
    .toLowerCase()
    .split(/\s+/)
    .every((term) => text.includes(term));
}

function TaskRow({ row }: { row: TaskRowView }) {
  return (
    <tr data-row tabIndex={0}>
      <td class={`mark at-${row.at}`}>
        <i aria-hidden="true">{STATES[row.at].glyph}</i> {row.word}
      </td>
      <td>
        <TaskLink id={row.id} />
      </td>
      <td class="subject" title={plain(row.subject, 200)}>
        {plain(row.subject, 200)}
      </td>
      <td class="who" title={row.agent ?? ''}>
        {shortName(row.agent ?? '')}
      </td>
      <td class="dim" title={plain(row.text, 400)}>
        {plain(row.text, 140)}
      </td>
      <td class="right">{row.micro_usd === undefined ? '' : usd(row.micro_usd)}</td>
      <td class="right">
        <Age since={row.since_wall} />
      </td>
    </tr>
  );
}

const HEADS: Column<TaskRowView>[] = [
  { name: 'at', head: 'State', sortKey: (row) => row.rank },
  { name: 'id', head: 'Task', sortKey: (row) => row.id },
  { name: 'subject', head: 'Subject', sortKey: (row) => row.subject },
  { name: 'agent', head: 'Agent', sortKey: (row) => row.agent },
  { name: 'why', head: 'Why' },
  { name: 'cost', head: 'Cost', sortKey: (row) => row.micro_usd, right: true },
  { name: 'since', head: 'For', sortKey: (row) => -row.since_wall, right: true },
];

/** A button that shows more entries. The number of entries is stored in the address. */
function MoreButton({ name, value, text }: { name: string; value: string; text: string }) {
  return (
    <button type="button" class="do" onClick={() => setQueryParam(name, value)}>
      {text}
    </button>
  );
}

function List({ rows, missions }: { rows: TaskRowView[]; missions: Map<string, string> }) {
  const limit = Math.max(LIST_PAGE_SIZE, Number(queryParam('most')) || 0);
  const groups = new Map<string, TaskRowView[]>();
  for (const row of rows.slice(0, limit)) groups.set(row.mission ?? '', [...(groups.get(row.mission ?? '') ?? []), row]);
  return (
    <div class="scroll">
      <table class="list tasks">
        <Heads columns={HEADS} />
        {[...groups].map(([mission, members]) => (
          <tbody key={mission}>
            <tr class="group">
              <th colSpan={HEADS.length} scope="rowgroup">
                {mission ? (
                  <>
                    <a href={`/tasks?mission=${mission}`}>
                      {mission} {plain(missions.get(mission) ?? '', 120)}
                    </a>{' '}
                    · {rows.filter((row) => row.mission === mission).length} · <a href={`/tasks?mission=${mission}&view=graph`}>graph</a> · <a href={`/replay?mission=${mission}`}>replay</a>
                  </>
                ) : (
                  `no mission · ${rows.filter((row) => !row.mission).length}`
                )}
              </th>
            </tr>
            {members.map((row) => (
              <TaskRow key={row.id} row={row} />
            ))}
          </tbody>
        ))}
      </table>
      {rows.length > limit && (
        <p class="row">
          <MoreButton name="most" value={String(limit + LIST_PAGE_SIZE)} text={`Show ${Math.min(LIST_PAGE_SIZE, rows.length - limit)} more`} /> <span class="dim">{rows.length - limit} are not shown. Use the filter to narrow them down.</span>
        </p>
      )}
    </div>
  );
}

const COLUMN_PAGE_SIZE = 50;

function Board({ rows }: { rows: TaskRowView[] }) {
  return (
    <div class="board">
      {TASK_STATES.map((at) => {
        const column = rows.filter((row) => row.at === at);
        const showAll = queryParam('whole') === at;
        if (column.length === 0 && (at === 'failed' || at === 'needs' || at === 'review' || at === 'backlog')) return null;
        return (
          <section key={at} aria-label={STATES[at].word}>
            <h3>
              <Glyph at={at} /> {STATES[at].word} {column.length}
            </h3>
            {column.slice(0, showAll ? MAX_BOARD_TASKS : COLUMN_PAGE_SIZE).map((row) => (
              <a key={row.id} class={`tile edge-${at}`} href={`/t/${row.id}`} data-row>
                <b>{row.id}</b> {plain(row.subject, 80)}
                <small>
                  {shortName(row.agent ?? '')} {plain(row.text, 70)}
                </small>
              </a>
            ))}
            {column.length > COLUMN_PAGE_SIZE && !showAll && <MoreButton name="whole" value={at} text={`Show ${column.length - COLUMN_PAGE_SIZE} more`} />}
          </section>
        );
      })}
    </div>
  );
}

export function Tasks() {
  useTopics('tasks', 'head');
  const head = topic('head').get('head');
  const missions = new Map(head?.missions.map((mission) => [mission.id, mission.title]) ?? []);
  const all = topic('tasks').all();
  const [query, at, mission] = [queryParam('q'), queryParam('at'), queryParam('mission')];
  const matching = all.filter((row) => matches(row, query, at, mission)).sort((a, b) => a.rank - b.rank || byName(a.id, b.id));
  const rows = sortRows(matching, HEADS, queryParam('sort'));
  const requestedView = queryParam('view');
  const view = requestedView === 'board' && rows.length > MAX_BOARD_TASKS ? 'list' : requestedView || 'list';
  // The daemon sends all open tasks, but only the newest of the finished ones.
  const older = Math.max(0, (head?.tasks ?? 0) - all.length);
  const counts = TASK_STATES.map((state) => [state, all.filter((row) => row.at === state && (!mission || row.mission === mission)).length] as const);
  let emptyText = older > 0 ? 'No listed task matches.' : 'No task matches.';
  if (all.length === 0) emptyText = 'No tasks yet. Add one with regatta add "…", or try regatta demo.';
  return (
    <Panel
      title={older > 0 ? `${rows.length} of ${all.length + older} tasks` : `${rows.length} task${rows.length === 1 ? '' : 's'}`}
      aside={
        <span class="filters">
          <input id="filter" type="search" aria-label="Filter" placeholder="filter  /" value={query} onInput={(event) => setQueryParam('q', event.currentTarget.value)} />
          {counts.map(([state, count]) => (
            <button key={state} type="button" class="chip" aria-pressed={at === state} onClick={() => setQueryParam('at', at === state ? null : state, true)}>
              <Glyph at={state} /> {STATES[state].word} {count}
            </button>
          ))}
          {mission && (
            <button type="button" class="chip" aria-pressed="true" onClick={() => setQueryParam('mission', null, true)}>
              {mission} ✕
            </button>
          )}
          <span class="tabs" role="group" aria-label="View">
            {['list', 'board', 'graph'].map((name) => (
              <button key={name} type="button" class="chip" aria-pressed={view === name} onClick={() => setQueryParam('view', name === 'list' ? null : name, true)}>
                {name}
              </button>
            ))}
          </span>
        </span>
      }
    >
      {older > 0 && <p class="dim">{older} older tasks are not listed. To list them, run: regatta task list --all</p>}
      {requestedView === 'board' && view === 'list' && <p class="empty">The board shows at most {MAX_BOARD_TASKS} tasks, so this is the list.</p>}
      {view === 'graph' ? (
        <Graph scope={queryParam('around') || mission} matchesFilter={query || at ? (id) => rows.some((row) => row.id === id) : null} />
      ) : rows.length === 0 ? (
        <Empty known={topic('tasks').known.value}>{emptyText}</Empty>
      ) : view === 'board' ? (
        <Board rows={rows} />
      ) : (
        <List rows={rows} missions={missions} />
      )}
    </Panel>
  );
}
