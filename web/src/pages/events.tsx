import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { plain } from '../format';
import { Reader } from '../live/frames';
import { revision, topic } from '../live/client';
import { get, set } from '../route';
import { call, read } from '../session';
import { Empty, Panel, Table, complain, useTopics } from '../ui';
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

function Bus() {
  useTopics('head');
  const rows = useSignal<Event[] | null>(null);
  const last = useSignal(0);
  const kind = get('kind');
  const about = get('about');
  // The head changes with what people see; the events behind it are fetched then, at most once a second.
  const turn = topic('head').changed.value;
  useEffect(() => {
    rows.value = null;
    last.value = 0;
  }, [kind, about]);
  useEffect(() => {
    let over = false;
    const fetchMore = async () => {
      try {
        const query = `follow=false&kind=${encodeURIComponent(kind)}${about ? `&about=${encodeURIComponent(about)}` : ''}`;
        let after = last.peek();
        if (after === 0) after = Math.max(0, revision.peek() - (kind || about ? 20_000 : 400));
        const found = parsed(await read(`/api/v1/events?after=${after}&${query}`));
        if (over) return;
        rows.value = [...(rows.peek() ?? []), ...found].slice(-MOST);
        last.value = found[found.length - 1]?.revision ?? after;
      } catch (error) {
        if (!over) complain(error);
      }
    };
    const timer = setTimeout(fetchMore, rows.peek() === null ? 0 : 1_000);
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [turn, kind, about]);
  const shown = [...(rows.value ?? [])].reverse();
  return shown.length === 0 ? (
    <Empty known={rows.value !== null}>No event matches.</Empty>
  ) : (
    <Table heads={['>Revision', 'Time', 'Kind', 'About', 'By', 'Data']}>
      {shown.map((it) => (
        <tr key={it.revision} data-row tabIndex={0}>
          <td class="right">{it.revision}</td>
          <td>{it.time.slice(11, 19)}</td>
          <td>
            <button type="button" class="plain" onClick={() => set('kind', it.kind, true)}>
              {it.kind}
            </button>
          </td>
          <td>
            <button type="button" class="plain" onClick={() => set('about', it.subject, true)}>
              {plain(it.subject, 60)}
            </button>
          </td>
          <td>{plain(it.by.replace(/:$/, ''), 60)}</td>
          <td class="dim" title={plain(JSON.stringify(it.data), 900)}>
            {plain(brief(it.data, it.subject), 200)}
          </td>
        </tr>
      ))}
    </Table>
  );
}

/** What an event tells, in a line: names and values, without what the line says already. */
export function brief(data: unknown, about = '', deep = 0): string {
  if (data === null || data === undefined || data === '' || data === false) return '';
  if (Array.isArray(data)) return data.length > 4 ? `${data.length} of them` : data.map((it) => brief(it, about, deep + 1)).filter(Boolean).join(', ');
  if (typeof data !== 'object') return String(data);
  const parts = Object.entries(data).flatMap(([name, value]) => {
    const text = value === about ? '' : brief(value, about, deep + 1);
    return text === '' || text === '0' || deep > 2 ? [] : [`${name.replace(/_/g, ' ')} ${text}`];
  });
  return parts.slice(0, deep === 0 ? 12 : 5).join(deep === 0 ? ' · ' : ', ');
}

function AuditLog() {
  const rows = useSignal<Audit[] | null>(null);
  const problem = useSignal('');
  useEffect(() => {
    call<Audit[]>('audit', { limit: 200 }).then(
      (it) => (rows.value = it),
      (error: Error) => (problem.value = error.message),
    );
  }, []);
  if (problem.value) return <p class="error">{problem.value}</p>;
  if (!rows.value) return <Empty known={false}>…</Empty>;
  return (
    <Table heads={['>Line', 'Time', 'Verb', 'About', 'By', 'From', 'What came of it']}>
      {[...rows.value].reverse().map((it) => (
        <tr key={it.n} data-row tabIndex={0}>
          <td class="right">{it.n}</td>
          <td>{it.time.slice(0, 19).replace('T', ' ')}</td>
          <td>{it.verb}</td>
          <td>{plain(it.about ?? '', 80)}</td>
          <td>{plain(it.by, 60)}</td>
          <td class="dim">{plain(it.from, 60)}</td>
          <td class={it.refused ? 'bad' : 'good'}>{it.refused ? `refused: ${it.refused}` : it.revision ? `done at ${it.revision}` : 'hung up'}</td>
        </tr>
      ))}
    </Table>
  );
}

export function Events() {
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
          <input id="filter" type="search" aria-label="Kinds" placeholder="kinds, such as task.*  /" value={get('kind')} onChange={(it) => set('kind', it.currentTarget.value)} />
          {chosen.map((it) => (
            <button key={it} type="button" class="chip" aria-pressed="true" onClick={() => set(it, null, true)}>
              {it} {get(it)} ✕
            </button>
          ))}
          <code class="aside">{tab === 'bus' ? 'regatta events --follow' : 'regatta audit'}</code>
        </span>
      }
    >
      {tab === 'audit' ? <AuditLog /> : head?.size === 'many' && !get('kind') && get('all') !== 'yes' ? <Off /> : <Bus />}
    </Panel>
  );
}

function Off() {
  return (
    <p class="empty">
      A fleet of this size says too much to be read along. Choose a kind above, or{' '}
      <button type="button" class="plain" onClick={() => set('all', 'yes')}>
        show all
      </button>
    </p>
  );
}
