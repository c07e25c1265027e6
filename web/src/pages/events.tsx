// The event log and the audit log. The server filters the events and describes them as sentences.

import { type Signal, effect, signal, useSignal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import { clockTime, plain } from '../format';
import { lazy } from '../lazy';
import { connection, paused, revision } from '../live/client';
import { queryParam, setQueryParam } from '../route';
import { fetchText } from '../session';
import { Glyph, Panel, TaskLink } from '../ui';
import { type ListColumn, type Loader, VirtualList } from '../virtual-list';
import type { EventRow, EventWindow } from '../api';
import './events.css';

const AuditLog = lazy<object>(() => import('./audit').then((module) => module.AuditLog));
const EventPeek = lazy<{ row: EventRow; close: () => void }>(() => import('./event-peek').then((module) => module.EventPeek));

const PATH = '/api/v1/page/events';
const REFRESH_INTERVAL_MS = 1_000;
/** Rows that the list keeps. Older events are found with a filter or a time. */
const MAX_ROWS = 3_000;
/** How many parts of the log are searched before a person has to ask for more. */
const MAX_SEARCHES = 5;
/** Rows below the screen that are loaded in advance. */
const LOADED_MARGIN = 30;

/** Loads events, the newest first: new ones at the top, and older ones as a person scrolls down. */
export class EventLoader implements Loader<EventRow> {
  readonly answer: Signal<{ total: number } | null> = signal(null);
  readonly problem = signal('');
  readonly rows = new Map<number, EventRow>();
  /** Number of events that arrived while a person looks at older ones. */
  readonly newCount = signal(0);
  /** The number of the event before which the search goes on, if a person has to ask for it. */
  readonly searchBefore = signal<number | null>(null);
  private query = '';
  private list: EventRow[] = [];
  private next: number | null = null;
  private range = { first: 0, last: 0 };
  private searches = 0;
  private generation = 0;
  private loading = false;
  private timer: ReturnType<typeof setTimeout> | undefined;

  setQuery(query: string): void {
    this.query = query;
    this.generation += 1;
    this.loading = false;
    void this.loadNewest(true);
  }

  setRange(first: number, last: number): void {
    this.range = { first, last };
    if (first === 0 && this.newCount.peek() > 0) this.refresh();
    const isNearEnd = last + LOADED_MARGIN >= this.list.length;
    if (isNearEnd && this.next !== null && this.list.length < MAX_ROWS && this.searches < MAX_SEARCHES) void this.loadOlder();
  }

  /** Searches further back, because a person asked for it. */
  searchOn(): void {
    this.searches = 0;
    void this.loadOlder();
  }

  refresh(): void {
    if (this.timer || document.hidden || paused.peek()) return;
    this.timer = setTimeout(() => {
      this.timer = undefined;
      if (!new URLSearchParams(this.query).has('until')) void this.loadNewest(false);
    }, REFRESH_INTERVAL_MS);
  }

  stop(): void {
    this.generation += 1;
    clearTimeout(this.timer);
  }

  private async fetch(more: string): Promise<EventWindow | null> {
    if (this.loading) return null;
    this.loading = true;
    const generation = this.generation;
    try {
      const text = await fetchText(`${PATH}?${[this.query, more].filter(Boolean).join('&')}`);
      if (generation !== this.generation) return null;
      this.problem.value = '';
      return JSON.parse(text) as EventWindow;
    } catch (error) {
      if (generation === this.generation) this.problem.value = error instanceof Error ? error.message : String(error);
      return null;
    } finally {
      if (generation === this.generation) this.loading = false;
    }
  }

  private async loadNewest(isFresh: boolean): Promise<void> {
    const found = await this.fetch('');
    if (!found) return;
    const known = this.list[0]?.revision ?? 0;
    const fresh = found.rows.filter((row) => row.revision > known);
    if (isFresh) {
      this.searches = 0;
      this.next = found.next_before ?? null;
      this.show(found.rows);
    } else if (this.range.first > 0) {
      this.newCount.value = fresh.length;
    } else if (fresh.length === found.rows.length && found.next_before !== undefined) {
      // More events arrived than one window has, so the list begins anew.
      this.next = found.next_before;
      this.show(found.rows);
    } else if (fresh.length > 0) {
      this.show([...fresh, ...this.list].slice(0, MAX_ROWS));
    }
    if (this.range.first === 0) this.newCount.value = 0;
    this.setRange(this.range.first, this.range.last);
  }

  private async loadOlder(): Promise<void> {
    if (this.next === null) return;
    const found = await this.fetch(`before=${this.next}`);
    if (!found) return;
    this.next = found.next_before ?? null;
    this.searches = found.rows.length > 0 ? 0 : this.searches + 1;
    this.show([...this.list, ...found.rows]);
    this.setRange(this.range.first, this.range.last);
  }

  private show(list: EventRow[]): void {
    this.list = list;
    this.rows.clear();
    list.forEach((row, index) => this.rows.set(index, row));
    this.searchBefore.value = this.next !== null && (this.searches >= MAX_SEARCHES || list.length >= MAX_ROWS) ? this.next : null;
    this.answer.value = { total: list.length };
  }
}

const COLUMNS: ListColumn[] = [
  { name: 'time', head: 'Time' },
  { name: 'sign', head: 'State', isHeadHidden: true },
  { name: 'text', head: 'What happened' },
  { name: 'by', head: 'By' },
  { name: 'kind', head: 'Kind' },
  { name: 'number', head: 'Number', isRight: true },
];

/** Groups of kinds, by the words that people use for them. */
const KINDS: [string, string][] = [
  ['', 'everything'],
  ['task.*', 'tasks'],
  ['attempt.*', 'attempts'],
  ['approval.*,inbox.*', 'questions and inbox'],
  ['landing.*,queue.*,trunk.*', 'merge queue'],
  ['message.*,conversation.*', 'messages'],
  ['claim.*', 'claims'],
  ['agent.*,provider.*,runner.*', 'agents and runners'],
  ['mission.*,launch.*,team.*', 'missions and teams'],
  ['budget.*,policy.*,project.*,fleet.*,hook.*', 'settings, rules and budgets'],
];

function isToday(wall: number): boolean {
  return new Date(wall).toDateString() === new Date().toDateString();
}

/** Where a person finds more about the object of an event. */
function linkOf(row: EventRow): string | undefined {
  if (row.task) return undefined;
  if (row.kind.startsWith('mission.')) return `/m/${row.about}`;
  if (row.kind.startsWith('agent.')) return `/agents/${row.about}`;
  if (row.kind.startsWith('queue.') || row.kind.startsWith('landing.')) return '/queue';
  return undefined;
}

/** The sentence of an event, in which the id of its task is a link. */
function Sentence({ row }: { row: EventRow }) {
  const text = plain(row.text, 220);
  const link = linkOf(row);
  if (link) return <a href={link}>{text}</a>;
  if (!row.task) return <>{text}</>;
  const [before, ...after] = text.split(new RegExp(`\\b${row.task}\\b`));
  if (after.length === 0) {
    return (
      <>
        {text} <TaskLink id={row.task} class="event-task" />
      </>
    );
  }
  return (
    <>
      {before}
      <TaskLink id={row.task} class="event-task" />
      {after.join(row.task)}
    </>
  );
}

function cells(row: EventRow) {
  return [
    <time title={new Date(row.wall).toLocaleString()}>
      {!isToday(row.wall) && <span class="dim">{new Date(row.wall).toLocaleDateString('en-CA').slice(5)} </span>}
      {clockTime(row.wall)}
    </time>,
    row.at && <Glyph at={row.at} />,
    <span title={plain(`${row.text}\n${row.subject}`, 500)}>
      <Sentence row={row} />
      {row.subject && <span class="dim event-subject">{plain(row.subject, 120)}</span>}
    </span>,
    <span class="dim">{plain(row.by, 40)}</span>,
    <button type="button" class="plain dim" title="show only this kind" tabIndex={-1} onClick={() => setQueryParam('kind', row.kind, true)}>
      {row.kind}
    </button>,
    <span class="dim">{row.revision}</span>,
  ];
}

function serverQuery(): string {
  const query = new URLSearchParams();
  for (const [name, to] of [['q', 'text'], ['kind', 'kind'], ['about', 'about'], ['by', 'by']] as const) if (queryParam(name)) query.set(to, queryParam(name));
  const until = Date.parse(queryParam('until'));
  if (Number.isFinite(until)) query.set('until', String(until));
  if (queryParam('all') === 'yes') query.set('housekeeping', 'true');
  return query.toString();
}

function Filters() {
  const kind = queryParam('kind');
  const chosen = ['about', 'by'].filter((name) => queryParam(name));
  return (
    <div class="list-bar">
      <input id="filter" type="search" aria-label="Filter" placeholder="filter: words, T12, an agent  /" value={queryParam('q')} onInput={(event) => setQueryParam('q', event.currentTarget.value)} />
      <label class="choose">
        <span class="dim">show</span>
        <select aria-label="Kinds of events" value={kind} onChange={(event) => setQueryParam('kind', event.currentTarget.value, true)}>
          {KINDS.map(([value, name]) => (
            <option key={value} value={value}>
              {name}
            </option>
          ))}
          {!KINDS.some(([value]) => value === kind) && <option value={kind}>{plain(kind, 60)}</option>}
        </select>
      </label>
      <label class="choose">
        <span class="dim">before</span>
        <input type="datetime-local" step="1" aria-label="Before this time" value={queryParam('until')} onChange={(event) => setQueryParam('until', event.currentTarget.value, true)} />
      </label>
      <label class="choose">
        <input type="checkbox" checked={queryParam('all') === 'yes'} onChange={(event) => setQueryParam('all', event.currentTarget.checked ? 'yes' : null, true)} />
        <span class="dim">also Regatta’s own records</span>
      </label>
      {chosen.map((name) => (
        <button key={name} type="button" class="chip" aria-pressed="true" onClick={() => setQueryParam(name, null, true)}>
          {name} {plain(queryParam(name), 60)} ✕
        </button>
      ))}
    </div>
  );
}

function EventList() {
  const query = serverQuery();
  const loader = useMemo(() => new EventLoader(), []);
  const peeked = useSignal<EventRow | null>(null);
  useEffect(() => loader.setQuery(query), [loader, query]);
  useEffect(() => {
    let isFirst = true;
    const unwatch = effect(() => {
      void revision.value;
      void paused.value;
      if (connection.value.state !== 'unauthorized' && !isFirst) loader.refresh();
      isFirst = false;
    });
    return () => {
      unwatch();
      loader.stop();
    };
  }, [loader]);
  void loader.answer.value;
  const before = loader.searchBefore.value;
  return (
    <>
      <Filters />
      {loader.newCount.value > 0 && (
        <button type="button" class="do new-events" onClick={() => document.querySelector('.event-list')?.scrollTo({ top: 0 })}>
          {loader.newCount.value} new ↑
        </button>
      )}
      <div class={peeked.value ? 'with-peek' : ''}>
        <VirtualList
          loader={loader}
          columns={COLUMNS}
          label="Events, newest first"
          name="event-list"
          rowKey={(row) => String(row.revision)}
          cells={cells}
          peek={(row) => (peeked.value = row)}
          empty={before === null ? 'No event matches.' : 'No event matches so far.'}
        />
        {peeked.value && <EventPeek key={peeked.value.revision} row={peeked.value} close={() => (peeked.value = null)} />}
      </div>
      {before !== null && (
        <p class="list-note">
          Events before number {before.toLocaleString('en')} are not searched yet.{' '}
          <button type="button" class="do" onClick={() => loader.searchOn()}>
            Search further back
          </button>
        </p>
      )}
    </>
  );
}

export function Events() {
  const tab = queryParam('tab') || 'bus';
  return (
    <Panel
      title="Events"
      aside={
        <>
          <span class="tabs" role="group" aria-label="Log">
            {['bus', 'audit'].map((name) => (
              <button key={name} type="button" class="chip" aria-pressed={tab === name} onClick={() => setQueryParam('tab', name === 'bus' ? null : name, true)}>
                {name === 'bus' ? 'what happened' : 'who asked for it'}
              </button>
            ))}
          </span>
          <code class="aside">{tab === 'bus' ? 'regatta events --follow' : 'regatta audit'}</code>
        </>
      }
    >
      {tab === 'audit' ? <AuditLog /> : <EventList />}
    </Panel>
  );
}
