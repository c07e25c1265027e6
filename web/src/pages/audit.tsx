// The audit log: who asked for which change, and whether it was made.

import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { clockTime, plain } from '../format';
import { topic } from '../live/client';
import { queryParam, setQueryParam } from '../route';
import { call } from '../session';
import { Empty, Table, useTopics } from '../ui';
import type { AuditLineView } from '../api';

const MAX_LINES = 200;
const REFRESH_INTERVAL_MS = 2_000;

export function AuditLog() {
  useTopics('head');
  const rows = useSignal<AuditLineView[] | null>(null);
  const problem = useSignal('');
  const version = topic('head').changed.value;
  const query = queryParam('q').toLowerCase();
  useEffect(() => {
    let cancelled = false;
    const refresh = () =>
      call('audit', { limit: MAX_LINES }).then(
        (found) => !cancelled && ((rows.value = found), (problem.value = '')),
        (error: Error) => !cancelled && (problem.value = error.message),
      );
    const timer = setTimeout(() => void refresh(), rows.peek() ? REFRESH_INTERVAL_MS : 0);
    return () => {
      cancelled = true;
      clearTimeout(timer);
    };
  }, [version]);
  const shown = (rows.value ?? []).filter((entry) => `${entry.verb} ${entry.about ?? ''} ${entry.by}`.toLowerCase().includes(query)).reverse();
  return (
    <>
      <div class="list-bar">
        <input id="filter" type="search" aria-label="Filter" placeholder="filter the newest 200: verb, about or by  /" value={queryParam('q')} onInput={(event) => setQueryParam('q', event.currentTarget.value)} />
      </div>
      {problem.value && <p class="error">{problem.value}</p>}
      {shown.length === 0 ? (
        <Empty known={rows.value !== null}>{query ? 'None of the newest 200 requests matches.' : 'No requests yet.'}</Empty>
      ) : (
        <Table heads={['>Line', 'Time', 'Verb', 'About', 'By', 'From', 'Result']}>
          {shown.map((entry) => (
            <tr key={entry.n} data-row tabIndex={0}>
              <td class="right">{entry.n}</td>
              <td title={entry.time}>
                {new Date(entry.time).toLocaleDateString('en-CA')} {clockTime(Date.parse(entry.time))}
              </td>
              <td>{entry.verb}</td>
              <td>{plain(entry.about ?? '', 80)}</td>
              <td>{plain(entry.by, 60)}</td>
              <td class="dim">{plain(entry.from, 60)}</td>
              <td class={entry.refused ? 'bad' : 'good'}>{entry.refused ? `✕ refused: ${entry.refused}` : entry.revision ? `✓ done at ${entry.revision}` : '· disconnected'}</td>
            </tr>
          ))}
        </Table>
      )}
    </>
  );
}
