// The tasks of a mission as a table. Only the rows in view are in the document, so a thousand tasks are as fast as ten.

import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { plain, shortName, usd } from '../format';
import { byName } from '../live/client';
import { queryParam, setQueryParam } from '../route';
import { type Column, Heads, sortRows } from '../table';
import { Age, Glyph, TaskLink } from '../ui';
import type { DisplayState, StateCount, TaskRowView } from '../api';
import { STATES } from '../states';

/** The height of a row in pixels, as in mission.css. */
const ROW_HEIGHT = 34;
/** Rows above and below the view that are in the document too, so that keys can reach them. */
const OVERSCAN = 8;

/** Returns the rows that are in the document: from the first to before the last. */
export function rowsInView(count: number, scrollTop: number, height: number): { from: number; to: number } {
  const first = Math.floor(scrollTop / ROW_HEIGHT);
  const from = Math.max(0, Math.min(first - OVERSCAN, count - 1));
  return { from, to: Math.min(count, first + Math.ceil(height / ROW_HEIGHT) + OVERSCAN) };
}

/** A table whose rows have the same height and are in the document only while they are in view. */
export function VirtualTable<Row>(props: { rows: Row[]; columns: Column<Row>[]; label: string; target?: number; children: (row: Row) => ComponentChildren }) {
  const { rows, columns, target } = props;
  const box = useRef<HTMLDivElement>(null);
  const view = useSignal({ top: 0, height: 600 });
  const measure = () => {
    const element = box.current;
    if (element && (element.scrollTop !== view.peek().top || element.clientHeight !== view.peek().height)) view.value = { top: element.scrollTop, height: element.clientHeight };
  };
  useLayoutEffect(measure, [rows.length]);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element || target === undefined || target < 0) return;
    const top = target * ROW_HEIGHT;
    if (top < element.scrollTop || top > element.scrollTop + element.clientHeight - 3 * ROW_HEIGHT) element.scrollTop = top - element.clientHeight / 2;
  }, [target]);
  const { from, to } = rowsInView(rows.length, view.value.top, view.value.height);
  return (
    <div class="scroll vtable" ref={box} onScroll={measure} tabIndex={0} role="region" aria-label={props.label}>
      <table class="list" aria-rowcount={rows.length + 1}>
        <Heads columns={columns} />
        <tbody>
          {from > 0 && <tr class="space" aria-hidden="true" style={{ height: `${from * ROW_HEIGHT}px` }} />}
          {rows.slice(from, to).map(props.children)}
          {to < rows.length && <tr class="space" aria-hidden="true" style={{ height: `${(rows.length - to) * ROW_HEIGHT}px` }} />}
        </tbody>
      </table>
    </div>
  );
}

const COLUMNS: Column<TaskRowView>[] = [
  { name: 'at', head: 'State', sortKey: (row) => row.rank },
  { name: 'id', head: 'Task', sortKey: (row) => row.id },
  { name: 'subject', head: 'Subject', sortKey: (row) => row.subject },
  { name: 'agent', head: 'Agent', sortKey: (row) => row.agent },
  { name: 'why', head: 'Now, or why it waits' },
  { name: 'cost', head: 'Cost', sortKey: (row) => row.micro_usd, right: true },
  { name: 'since', head: 'For', sortKey: (row) => -row.since_wall, right: true },
];

export function TaskCells({ row }: { row: TaskRowView }) {
  return (
    <>
      <td class={`mark at-${row.at}`}>
        <i aria-hidden="true">{STATES[row.at].glyph}</i> {row.word}
      </td>
      <td class="task-id">
        <TaskLink id={row.id} />
      </td>
      <td class="cut subject" title={plain(row.subject, 300)}>
        <bdi>{plain(row.subject, 200)}</bdi>
      </td>
      <td class="who" title={row.agent ?? ''}>
        {shortName(row.agent ?? '', 20)}
      </td>
      <td class="cut dim" title={plain(row.text, 400)}>
        {plain(row.text, 160)}
      </td>
    </>
  );
}

/** A filter for each state that occurs. */
export function StateChips({ counts }: { counts: StateCount[] }) {
  const at = queryParam('at');
  return (
    <>
      {counts.map(({ at: state, count }) => (
        <button key={state} type="button" class="chip" aria-pressed={at === state} onClick={() => setQueryParam('at', at === state ? null : state, true)}>
          <Glyph at={state} /> {STATES[state].word} {count}
        </button>
      ))}
    </>
  );
}

export function matchesText(row: TaskRowView, query: string): boolean {
  const text = `${row.id} ${row.subject} ${row.agent ?? ''} ${row.text}`.toLowerCase();
  return query
    .toLowerCase()
    .split(/\s+/)
    .every((term) => text.includes(term));
}

export function TaskTable({ rows, counts, total }: { rows: TaskRowView[]; counts: StateCount[]; total: number }) {
  const [query, at] = [queryParam('q'), queryParam('at') as DisplayState | ''];
  const matching = rows.filter((row) => (!at || row.at === at) && matchesText(row, query)).sort((a, b) => a.rank - b.rank || byName(a.id, b.id));
  const shown = sortRows(matching, COLUMNS, queryParam('sort'));
  return (
    <>
      <div class="filters">
        <input id="filter" type="search" aria-label="Filter" placeholder="filter  /" value={query} onInput={(event) => setQueryParam('q', event.currentTarget.value)} />
        <StateChips counts={counts} />
        <span class="dim">{shown.length < total ? `${shown.length} of ${total}` : total} tasks</span>
        {rows.length < total && <span class="dim">Only the {rows.length} most urgent tasks are listed here.</span>}
      </div>
      {shown.length === 0 ? (
        <p class="empty">{rows.length === 0 ? 'The mission has no task yet.' : 'No task matches.'}</p>
      ) : (
        <VirtualTable rows={shown} columns={COLUMNS} label="Tasks of the mission">
          {(row) => (
            <tr key={row.id} data-row tabIndex={0}>
              <TaskCells row={row} />
              <td class="right">{row.micro_usd === undefined ? '' : usd(row.micro_usd)}</td>
              <td class="right">
                <Age since={row.since_wall} />
              </td>
            </tr>
          )}
        </VirtualTable>
      )}
    </>
  );
}
