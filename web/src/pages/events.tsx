// The event log and the audit log.

import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { age, clockTime, plain, usd } from '../format';
import { EventReader } from '../live/frames';
import { revision, topic } from '../live/client';
import { queryParam, setQueryParam } from '../route';
import { call, fetchText } from '../session';
import { Empty, Panel, Table, useTopics } from '../ui';
import type { AuditLineView, EventView } from '../api';

const MAX_EVENTS = 300;

/** Parses the events of a stream that has ended. */
export function parseEvents(text: string): EventView[] {
  return new EventReader().feed(text).flatMap((event) => (event.kind === 'frame' ? [event.frame as unknown as EventView] : []));
}

const localTime = (time: string) => clockTime(Date.parse(time));

/** Calls `refresh` after each change of the head, at most once per `intervalMs`. Returns the error text of the last call.
 * The head changes with everything that people can see, so no second subscription is needed. */
function useRefresh(refresh: () => Promise<void>, first: boolean, intervalMs: number, ...inputs: unknown[]): string {
  useTopics('head');
  const problem = useSignal('');
  const version = topic('head').changed.value;
  useEffect(() => {
    let cancelled = false;
    const timer = setTimeout(
      () =>
        refresh().then(
          () => !cancelled && (problem.value = ''),
          (error: Error) => !cancelled && (problem.value = error.message),
        ),
      first ? 0 : intervalMs,
    );
    return () => {
      cancelled = true;
      clearTimeout(timer);
    };
  }, [version, ...inputs]);
  return problem.value;
}

function EventList() {
  const rows = useSignal<EventView[] | null>(null);
  const last = useSignal(0);
  const kind = queryParam('kind');
  const about = queryParam('about');
  useEffect(() => {
    rows.value = null;
    last.value = 0;
  }, [kind, about]);
  const problem = useRefresh(
    async () => {
      const filters = kind + about;
      const query = `follow=false&kind=${encodeURIComponent(kind)}${about ? `&about=${encodeURIComponent(about)}` : ''}`;
      let after = last.peek();
      if (after === 0) after = Math.max(0, revision.peek() - (kind || about ? 20_000 : 400));
      const found = parseEvents(await fetchText(`/api/v1/events?after=${after}&${query}`));
      if (filters !== queryParam('kind') + queryParam('about')) return;
      rows.value = [...(rows.peek() ?? []), ...found].slice(-MAX_EVENTS);
      last.value = found[found.length - 1]?.revision ?? after;
    },
    rows.peek() === null,
    1_000,
    kind,
    about,
  );
  const shown = [...(rows.value ?? [])].reverse();
  const open = Number(queryParam('event'));
  return (
    <>
      {problem && <p class="error">{problem}</p>}
      {shown.length === 0 ? (
        !problem && <Empty known={rows.value !== null}>{kind || about ? 'No event matches.' : 'No events yet.'}</Empty>
      ) : (
        <Table heads={['>Revision', 'Time', 'Kind', 'About', 'By', 'Data']}>
          {shown.flatMap((event) => [
            <tr key={event.revision} data-row tabIndex={0}>
              <td class="right">
                <button type="button" class="plain" aria-expanded={open === event.revision} title="show the whole event" onClick={() => setQueryParam('event', open === event.revision ? null : String(event.revision))}>
                  {event.revision}
                </button>
              </td>
              <td title={event.time}>{localTime(event.time)}</td>
              <td>
                <button type="button" class="plain" title="show only this kind" onClick={() => setQueryParam('kind', event.kind, true)}>
                  {event.kind}
                </button>
              </td>
              <td class="about">
                <button type="button" class="plain" title="show only events about this" onClick={() => setQueryParam('about', event.subject, true)}>
                  {plain(event.subject, 60)}
                </button>
                {/^T\d+$/.test(event.subject) && <a href={`/t/${event.subject}`} aria-label={`Open ${event.subject}`}>→</a>}
              </td>
              <td>{plain(event.by.replace(/:$/, ''), 60)}</td>
              <td class="dim">{plain(eventSummary(event.data, event.subject), 200)}</td>
            </tr>,
            open === event.revision && (
              <tr key={`${event.revision}-whole`}>
                <td colSpan={6}>
                  <pre class="what" tabIndex={0}>{plain(JSON.stringify(event.data, null, 2), 20_000)}</pre>
                </td>
              </tr>
            ),
          ])}
        </Table>
      )}
    </>
  );
}

/** Formats one field of an event: numbers with units, hashes shortened, times left out because the row has its own. */
function fieldText(name: string, value: unknown, about: string, depth: number): string {
  if (value === about || /(^|_)(wall|at|day|n|token)$/.test(name)) return '';
  if (name === 'micro_usd') return typeof value === 'number' && value > 0 ? `cost ${usd(value)}` : '';
  if (name.endsWith('_ms')) return typeof value === 'number' ? `${name.slice(0, -3).replace(/_/g, ' ')} ${age(value)}` : '';
  const text = typeof value === 'string' && /^[0-9a-f]{40}$/.test(value) ? value.slice(0, 10) : eventSummary(value, about, depth + 1);
  if (text === '' || text === '0' || depth > 2) return '';
  // Do not repeat the name: `said usage`, not `said said usage`.
  const shown = text.startsWith(`${name} `) ? text : `${name.replace(/_/g, ' ')} ${text}`;
  return shown.length > 160 ? `${shown.slice(0, 159)}…` : shown;
}

/** Summarizes an event's data in one line, without the subject that the row already shows. */
export function eventSummary(data: unknown, about = '', depth = 0): string {
  if (data === null || data === undefined || data === '' || data === false) return '';
  if (Array.isArray(data)) return data.length > 4 ? `${data.length} of them` : data.map((item) => eventSummary(item, about, depth + 1)).filter(Boolean).join(', ');
  if (typeof data !== 'object') return String(data);
  const parts = Object.entries(data)
    .sort(([nameA], [nameB]) => Number(nameB === 'said') - Number(nameA === 'said'))
    .map(([name, value]) => fieldText(name, value, about, depth))
    .filter(Boolean);
  return parts.slice(0, depth === 0 ? 12 : 5).join(depth === 0 ? ' · ' : ', ');
}

function AuditLog() {
  const rows = useSignal<AuditLineView[] | null>(null);
  const query = queryParam('kind').replace(/\*/g, '').toLowerCase();
  const problem = useRefresh(async () => void (rows.value = await call('audit', { limit: 200 })), rows.peek() === null, 2_000);
  if (problem) return <p class="error">{problem}</p>;
  const shown = (rows.value ?? []).filter((entry) => `${entry.verb} ${entry.about ?? ''} ${entry.by}`.toLowerCase().includes(query)).reverse();
  if (shown.length === 0) return <Empty known={rows.value !== null}>{query ? 'No request matches.' : 'No requests yet.'}</Empty>;
  return (
    <Table heads={['>Line', 'Time', 'Verb', 'About', 'By', 'From', 'Result']}>
      {shown.map((entry) => (
        <tr key={entry.n} data-row tabIndex={0}>
          <td class="right">{entry.n}</td>
          <td title={entry.time}>
            {new Date(entry.time).toLocaleDateString('en-CA')} {localTime(entry.time)}
          </td>
          <td>{entry.verb}</td>
          <td>{plain(entry.about ?? '', 80)}</td>
          <td>{plain(entry.by, 60)}</td>
          <td class="dim">{plain(entry.from, 60)}</td>
          <td class={entry.refused ? 'bad' : 'good'}>{entry.refused ? `✕ refused: ${entry.refused}` : entry.revision ? `✓ done at ${entry.revision}` : '· disconnected'}</td>
        </tr>
      ))}
    </Table>
  );
}

export function Events() {
  useTopics('head');
  void topic('head').changed.value;
  const head = topic('head').get('head');
  const tab = queryParam('tab') || 'bus';
  const chosen = ['kind', 'about'].filter((name) => queryParam(name));
  return (
    <Panel
      title="Events"
      aside={
        <span class="filters">
          <span class="tabs" role="group" aria-label="Log">
            {['bus', 'audit'].map((name) => (
              <button key={name} type="button" class="chip" aria-pressed={tab === name} onClick={() => setQueryParam('tab', name === 'bus' ? null : name, true)}>
                {name === 'bus' ? 'events' : 'audit log'}
              </button>
            ))}
          </span>
          <input id="filter" type="search" aria-label={tab === 'bus' ? 'Kinds' : 'Filter'} placeholder={tab === 'bus' ? 'kinds, such as task.*  /' : 'verb, about or by  /'} value={queryParam('kind')} onChange={(event) => setQueryParam('kind', event.currentTarget.value)} />
          {chosen.map((name) => (
            <button key={name} type="button" class="chip" aria-pressed="true" onClick={() => setQueryParam(name, null, true)}>
              {name} {queryParam(name)} ✕
            </button>
          ))}
          <code class="aside">{tab === 'bus' ? 'regatta events --follow' : 'regatta audit'}</code>
        </span>
      }
    >
      {tab === 'audit' ? <AuditLog /> : head?.size === 'many' && !queryParam('kind') && !queryParam('about') && queryParam('all') !== 'yes' ? <EventCounts /> : <EventList />}
    </Panel>
  );
}

/** Returns the time span of events in minutes, and the number of events per kind, most frequent first. */
export function perMinute(events: Pick<EventView, 'kind' | 'time'>[]): { minutes: number; kinds: [string, number][] } {
  const walls = events.map((event) => Date.parse(event.time));
  const minutes = Math.max(1, ((walls[walls.length - 1] ?? 0) - (walls[0] ?? 0)) / 60_000);
  const counts = new Map<string, number>();
  for (const event of events) counts.set(event.kind, (counts.get(event.kind) ?? 0) + 1);
  return { minutes, kinds: [...counts].sort((a, b) => b[1] - a[1]) };
}

/** Event counts per kind, shown instead of the list for a large fleet. */
function EventCounts() {
  const found = useSignal<EventView[] | null>(null);
  const problem = useSignal('');
  const version = useSignal(0);
  useEffect(() => {
    const after = Math.max(0, revision.peek() - 1_000);
    fetchText(`/api/v1/events?after=${after}&follow=false`).then(
      (text) => (found.value = parseEvents(text)),
      (error: Error) => (problem.value = error.message),
    );
  }, [version.value]);
  const { minutes, kinds } = perMinute(found.value ?? []);
  return (
    <>
      <p class="empty">
        This fleet has too many events to list them all. Select a kind below, or{' '}
        <button type="button" class="plain" onClick={() => setQueryParam('all', 'yes', true)}>
          show all
        </button>{' '}
        <button type="button" class="plain" onClick={() => (version.value += 1)}>
          count again
        </button>
      </p>
      {problem.value && <p class="error">{problem.value}</p>}
      {!found.value && !problem.value && <Empty known={false}>…</Empty>}
      <Table heads={['Kind', '>In the last 1,000 events', '>Per minute']}>
        {kinds.map(([kind, count]) => (
          <tr key={kind} data-row tabIndex={0}>
            <td>
              <button type="button" class="plain" onClick={() => setQueryParam('kind', kind, true)}>
                {kind}
              </button>
            </td>
            <td class="right">{count}</td>
            <td class="right">{(count / minutes).toFixed(1)}</td>
          </tr>
        ))}
      </Table>
    </>
  );
}
