// The board: a column for each state. The server sends each column in parts.

import { useSignal } from '@preact/signals';
import { plain, shortName } from '../format';
import { Age, Glyph } from '../ui';
import { useRows } from '../virtual-list';
import type { DisplayState, TaskListRow, TaskWindow } from '../api';
import { STATES, TASK_STATES } from '../states';
import { useEffect } from 'preact/hooks';
import { Lines } from './tasks';

const COLUMN_PAGE_SIZE = 50;
/** The largest part that the server sends at once. The list shows the rest. */
const MAX_COLUMN_ROWS = 300;

function Tile({ row }: { row: TaskListRow }) {
  const why = plain(row.text.split('\n')[0] ?? '', 90);
  return (
    <a class={`tile edge-${row.at}`} href={`/t/${row.id}`} data-row title={plain(row.subject, 400)}>
      <span class="tile-head">
        <b>{row.id}</b>
        {row.word !== STATES[row.at].word && <span class="dim">{plain(row.word, 30)}</span>}
        <Age since={row.since_wall} />
      </span>
      <span class="tile-subject">{plain(row.subject, 120)}</span>
      {why && <span class="dim tile-why">{why}</span>}
      {(row.agent || row.added !== undefined) && (
        <span class="tile-foot">
          <span class="dim">{shortName(row.agent ?? '')}</span>
          <Lines row={row} />
        </span>
      )}
    </a>
  );
}

function BoardColumn({ at, query, count }: { at: DisplayState; query: string; count: number }) {
  const limit = useSignal(COLUMN_PAGE_SIZE);
  const loader = useRows<TaskListRow, TaskWindow>('/api/v1/page/tasks', `${query}${query ? '&' : ''}at=${at}`, (answer) => answer.is_counting);
  useEffect(() => loader.setRange(0, limit.value), [loader, limit.value]);
  const total = loader.answer.value?.total ?? count;
  const rows = Array.from({ length: Math.min(limit.value, total) }, (_, index) => loader.rows.get(index)).filter((row) => row !== undefined);
  const hidden = total - rows.length;
  const more = Math.min(COLUMN_PAGE_SIZE, hidden, MAX_COLUMN_ROWS - limit.value);
  const listQuery = new URLSearchParams(query);
  return (
    <section aria-label={`${STATES[at].word}, ${total}`} class={`column column-${at}`}>
      <h3>
        <Glyph at={at} /> {STATES[at].word} <span class="dim">{total.toLocaleString('en')}</span>
      </h3>
      <div class="column-rows" tabIndex={-1}>
        {loader.problem.value && <p class="error">{loader.problem.value}</p>}
        {rows.map((row) => (
          <Tile key={row.id} row={row} />
        ))}
        {total === 0 && <p class="empty">none</p>}
        {hidden > 0 && loader.answer.value && (
          <p class="dim column-more">
            {more > 0 ? (
              <button type="button" class="do" onClick={() => (limit.value += COLUMN_PAGE_SIZE)}>
                Show {more} more
              </button>
            ) : (
              <a href={`/tasks?at=${at}${listQuery.get('text') ? `&q=${encodeURIComponent(listQuery.get('text') ?? '')}` : ''}`}>all {total.toLocaleString('en')} in the list</a>
            )}{' '}
            {hidden.toLocaleString('en')} not shown
          </p>
        )}
      </div>
    </section>
  );
}

export function TaskBoard({ query, counts }: { query: string; counts: TaskWindow['counts'] }) {
  const count = (at: DisplayState) => counts.find((entry) => entry.at === at)?.count ?? 0;
  // An empty backlog says nothing, and the other columns always stand at the same place.
  const shown = TASK_STATES.filter((at) => at !== 'backlog' || count(at) > 0);
  return (
    <div class="task-board" tabIndex={0} role="group" aria-label="Board">
      {shown.map((at) => (
        <BoardColumn key={at} at={at} query={query} count={count(at)} />
      ))}
    </div>
  );
}
