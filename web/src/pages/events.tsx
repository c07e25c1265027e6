import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { age, clockTime, plain, usd } from '../format';
import { Reader } from '../live/frames';
import { revision, topic } from '../live/client';
import { get, set } from '../route';
import { call, read } from '../session';
import { Empty, Panel, Table, useTopics } from '../ui';
import type { Head } from '../views';

interface Event {
  revision: number;
  time: string;
  kind: string;
  subject: string;
  by: string;
  data: unknown;
}

interface Audit {
  n: number;
  time: string;
  verb: string;
  about?: string;
  by: string;
  from: string;
  revision?: number;
  refused?: string;
}

const MOST = 300;

/** Events out of a stream that has ended. */
export function parsed(text: string): Event[] {
  return new Reader().feed(text).flatMap((it) => (it.kind === 'frame' ? [it.frame as unknown as Event] : []));
}

const local = (time: string) => clockTime(Date.parse(time));

/** Fetches again when something changed, at most once in a while: the head changes with what people see. */
function useAgain(ask: () => Promise<void>, first: boolean, pace: number, ...on: unknown[]): string {
  useTopics('head');
  const problem = useSignal('');
  const turn = topic('head').changed.value;
  useEffect(() => {
    let over = false;
    const timer = setTimeout(
      () =>
        ask().then(
          () => !over && (problem.value = ''),
          (error: Error) => !over && (problem.value = error.message),
        ),
      first ? 0 : pace,
    );
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [turn, ...on]);
  return problem.value;
}

function Bus() {
  const rows = useSignal<Event[] | null>(null);
  const last = useSignal(0);
  const kind = get('kind');
  const about = get('about');
  useEffect(() => {
    rows.value = null;
    last.value = 0;
  }, [kind, about]);
  const problem = useAgain(
    async () => {
      const asked = kind + about;
      const query = `follow=false&kind=${encodeURIComponent(kind)}${about ? `&about=${encodeURIComponent(about)}` : ''}`;
      let after = last.peek();
      if (after === 0) after = Math.max(0, revision.peek() - (kind || about ? 20_000 : 400));
      const found = parsed(await read(`/api/v1/events?after=${after}&${query}`));
      if (asked !== get('kind') + get('about')) return;
      rows.value = [...(rows.peek() ?? []), ...found].slice(-MOST);
      last.value = found[found.length - 1]?.revision ?? after;
    },
    rows.peek() === null,
    1_000,
    kind,
    about,
  );
  const shown = [...(rows.value ?? [])].reverse();
  const open = Number(get('event'));
  return (
    <>
      {problem && <p class="error">{problem}</p>}
      {shown.length === 0 ? (
        !problem && <Empty known={rows.value !== null}>{kind || about ? 'No event matches.' : 'Nothing has happened yet.'}</Empty>
      ) : (
        <Table heads={['>Revision', 'Time', 'Kind', 'About', 'By', 'Data']}>
          {shown.flatMap((it) => [
            <tr key={it.revision} data-row tabIndex={0}>
              <td class="right">
                <button type="button" class="plain" aria-expanded={open === it.revision} title="the whole event" onClick={() => set('event', open === it.revision ? null : String(it.revision))}>
                  {it.revision}
                </button>
              </td>
              <td title={it.time}>{local(it.time)}</td>
              <td>
                <button type="button" class="plain" title="only this kind" onClick={() => set('kind', it.kind, true)}>
                  {it.kind}
                </button>
              </td>
              <td class="about">
                <button type="button" class="plain" title="only what is about it" onClick={() => set('about', it.subject, true)}>
                  {plain(it.subject, 60)}
                </button>
                {/^T\d+$/.test(it.subject) && <a href={`/t/${it.subject}`} aria-label={`Open ${it.subject}`}>→</a>}
              </td>
              <td>{plain(it.by.replace(/:$/, ''), 60)}</td>
              <td class="dim">{plain(brief(it.data, it.subject), 200)}</td>
            </tr>,
            open === it.revision && (
              <tr key={`${it.revision}-whole`}>
                <td colSpan={6}>
                  <pre class="what" tabIndex={0}>{plain(JSON.stringify(it.data, null, 2), 20_000)}</pre>
                </td>
              </tr>
            ),
          ])}
        </Table>
      )}
    </>
  );
}

/** One thing an event says: figures with their unit, long names cut, moments left out (the line has its own). */
function said(name: string, value: unknown, about: string, deep: number): string {
  if (value === about || /(^|_)(wall|at|day|n|token)$/.test(name)) return '';
  if (name === 'micro_usd') return typeof value === 'number' && value > 0 ? `cost ${usd(value)}` : '';
  if (name.endsWith('_ms')) return typeof value === 'number' ? `${name.slice(0, -3).replace(/_/g, ' ')} ${age(value)}` : '';
  const text = typeof value === 'string' && /^[0-9a-f]{40}$/.test(value) ? value.slice(0, 10) : brief(value, about, deep + 1);
  if (text === '' || text === '0' || deep > 2) return '';
  // What is said twice, is said once: `said usage`, not `said said usage`.
  const once = text.startsWith(`${name} `) ? text : `${name.replace(/_/g, ' ')} ${text}`;
  return once.length > 160 ? `${once.slice(0, 159)}…` : once;
}

/** What an event tells, in a line: names and values, without what the line says already. */
export function brief(data: unknown, about = '', deep = 0): string {
  if (data === null || data === undefined || data === '' || data === false) return '';
  if (Array.isArray(data)) return data.length > 4 ? `${data.length} of them` : data.map((it) => brief(it, about, deep + 1)).filter(Boolean).join(', ');
  if (typeof data !== 'object') return String(data);
  const parts = Object.entries(data)
    .sort(([one], [other]) => Number(other === 'said') - Number(one === 'said'))
    .map(([name, value]) => said(name, value, about, deep))
    .filter(Boolean);
  return parts.slice(0, deep === 0 ? 12 : 5).join(deep === 0 ? ' · ' : ', ');
}

function AuditLog() {
  const rows = useSignal<Audit[] | null>(null);
  const words = get('kind').replace(/\*/g, '').toLowerCase();
  const problem = useAgain(async () => void (rows.value = await call<Audit[]>('audit', { limit: 200 })), rows.peek() === null, 2_000);
  if (problem) return <p class="error">{problem}</p>;
  const shown = (rows.value ?? []).filter((it) => `${it.verb} ${it.about ?? ''} ${it.by}`.toLowerCase().includes(words)).reverse();
  if (shown.length === 0) return <Empty known={rows.value !== null}>{words ? 'Nothing that was asked matches.' : 'Nobody has asked for anything yet.'}</Empty>;
  return (
    <Table heads={['>Line', 'Time', 'Verb', 'About', 'By', 'From', 'What came of it']}>
      {shown.map((it) => (
        <tr key={it.n} data-row tabIndex={0}>
          <td class="right">{it.n}</td>
          <td title={it.time}>
            {new Date(it.time).toLocaleDateString('en-CA')} {local(it.time)}
          </td>
          <td>{it.verb}</td>
          <td>{plain(it.about ?? '', 80)}</td>
          <td>{plain(it.by, 60)}</td>
          <td class="dim">{plain(it.from, 60)}</td>
          <td class={it.refused ? 'bad' : 'good'}>{it.refused ? `✕ refused: ${it.refused}` : it.revision ? `✓ done at ${it.revision}` : '· hung up'}</td>
        </tr>
      ))}
    </Table>
  );
}

export function Events() {
  useTopics('head');
  void topic('head').changed.value;
  const head = topic('head').one<Head>('head');
  const tab = get('tab') || 'bus';
  const chosen = ['kind', 'about'].filter((it) => get(it));
  return (
    <Panel
      title="Events"
      aside={
        <span class="filters">
          <span class="tabs" role="group" aria-label="Which">
            {['bus', 'audit'].map((it) => (
              <button key={it} type="button" class="chip" aria-pressed={tab === it} onClick={() => set('tab', it === 'bus' ? null : it, true)}>
                {it === 'bus' ? 'what happened' : 'who asked'}
              </button>
            ))}
          </span>
          <input id="filter" type="search" aria-label={tab === 'bus' ? 'Kinds' : 'Filter'} placeholder={tab === 'bus' ? 'kinds, such as task.*  /' : 'verb, about or by  /'} value={get('kind')} onChange={(it) => set('kind', it.currentTarget.value)} />
          {chosen.map((it) => (
            <button key={it} type="button" class="chip" aria-pressed="true" onClick={() => set(it, null, true)}>
              {it} {get(it)} ✕
            </button>
          ))}
          <code class="aside">{tab === 'bus' ? 'regatta events --follow' : 'regatta audit'}</code>
        </span>
      }
    >
      {tab === 'audit' ? <AuditLog /> : head?.size === 'many' && !get('kind') && !get('about') && get('all') !== 'yes' ? <Off /> : <Bus />}
    </Panel>
  );
}

/** How many of each kind came in the minutes that some events span, most first. */
export function perMinute(events: Pick<Event, 'kind' | 'time'>[]): { minutes: number; kinds: [string, number][] } {
  const walls = events.map((it) => Date.parse(it.time));
  const minutes = Math.max(1, ((walls[walls.length - 1] ?? 0) - (walls[0] ?? 0)) / 60_000);
  const counts = new Map<string, number>();
  for (const it of events) counts.set(it.kind, (counts.get(it.kind) ?? 0) + 1);
  return { minutes, kinds: [...counts].sort((a, b) => b[1] - a[1]) };
}

/** A fleet of this size says too much to be read along: how much of what, and each kind on demand. */
function Off() {
  const found = useSignal<Event[] | null>(null);
  const problem = useSignal('');
  const turn = useSignal(0);
  useEffect(() => {
    const after = Math.max(0, revision.peek() - 1_000);
    read(`/api/v1/events?after=${after}&follow=false`).then(
      (text) => (found.value = parsed(text)),
      (error: Error) => (problem.value = error.message),
    );
  }, [turn.value]);
  const { minutes, kinds } = perMinute(found.value ?? []);
  return (
    <>
      <p class="empty">
        A fleet of this size says too much to be read along: this is how much of what it said last. Open one kind, or{' '}
        <button type="button" class="plain" onClick={() => set('all', 'yes', true)}>
          show all
        </button>{' '}
        <button type="button" class="plain" onClick={() => (turn.value += 1)}>
          count again
        </button>
      </p>
      {problem.value && <p class="error">{problem.value}</p>}
      {!found.value && !problem.value && <Empty known={false}>…</Empty>}
      <Table heads={['Kind', '>Of the last 1,000', '>A minute']}>
        {kinds.map(([kind, many]) => (
          <tr key={kind} data-row tabIndex={0}>
            <td>
              <button type="button" class="plain" onClick={() => set('kind', kind, true)}>
                {kind}
              </button>
            </td>
            <td class="right">{many}</td>
            <td class="right">{(many / minutes).toFixed(1)}</td>
          </tr>
        ))}
      </Table>
    </>
  );
}
