// One event with all its data, beside the list.

import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { plain } from '../format';
import { setQueryParam } from '../route';
import { fetchText } from '../session';
import { TaskLink } from '../ui';
import type { EventRow, EventView } from '../api';

export function EventPeek({ row, close }: { row: EventRow; close: () => void }) {
  const event = useSignal<EventView | null>(null);
  const problem = useSignal('');
  useEffect(() => {
    fetchText(`/api/v1/page/events/${row.revision}`).then(
      (text) => (event.value = JSON.parse(text) as EventView),
      (error: Error) => (problem.value = error.message),
    );
  }, [row.revision]);
  return (
    <aside class="peek" aria-label={`Event ${row.revision}`}>
      <header>
        <b>{row.kind}</b>
        <span class="dim">number {row.revision}</span>
        <button type="button" class="key" aria-label="Close" title="Close: Space or Esc" onClick={close}>
          ✕
        </button>
      </header>
      <p>{plain(row.text, 500)}</p>
      <p class="dim">
        {new Date(row.wall).toLocaleString()} · by {plain(row.by, 80)}
      </p>
      <p class="row">
        {row.task && (
          <>
            <TaskLink id={row.task} /> {plain(row.subject ?? '', 120)}
          </>
        )}
        <button type="button" class="do" onClick={() => setQueryParam('about', row.about, true)}>
          Only about {plain(row.about, 40)}
        </button>
      </p>
      {problem.value && <p class="error">{problem.value}</p>}
      {event.value && (
        <pre class="what event-data" tabIndex={0}>
          {plain(JSON.stringify(event.value.data, null, 2), 20_000)}
        </pre>
      )}
    </aside>
  );
}
