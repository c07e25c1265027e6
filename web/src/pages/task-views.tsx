// Views of the list of tasks: named queries, as tabs. Some are built in, and a browser keeps those that a person saves.

import { signal, useSignal } from '@preact/signals';
import { plain } from '../format';
import { navigate, route } from '../route';
import type { TaskWindow } from '../api';

interface View {
  name: string;
  /** The query of the address, without the question mark. */
  query: string;
}

const BUILT_IN: View[] = [
  { name: 'All', query: '' },
  { name: 'Needs you', query: 'at=needs-you' },
  { name: 'Active', query: 'at=working,landing' },
  { name: 'Waiting', query: 'at=waiting' },
  { name: 'Failed', query: 'at=failed' },
  { name: 'Landed', query: 'at=landed' },
];
const STORAGE_KEY = 'regatta-task-views';

function storedViews(): View[] {
  try {
    const parsed: unknown = JSON.parse(localStorage.getItem(STORAGE_KEY) ?? '[]');
    const isView = (view: unknown): view is View => typeof view === 'object' && view !== null && typeof (view as View).name === 'string' && typeof (view as View).query === 'string';
    return Array.isArray(parsed) ? parsed.filter(isView) : [];
  } catch {
    return []; // without storage, or with a value of another program, there are no saved views
  }
}

const saved = signal(storedViews());

function save(views: View[]): void {
  saved.value = views;
  try {
    localStorage.setItem(STORAGE_KEY, JSON.stringify(views));
  } catch {
    // without storage, the views end with the tab
  }
}

/** Returns a query in a form in which equal queries are equal texts. The drawing of the list does not count. */
function normalize(query: string): string {
  const params = new URLSearchParams(query);
  for (const name of ['view', 'around']) params.delete(name);
  params.sort();
  return params.toString();
}

export function Views({ answer }: { answer: TaskWindow | null }) {
  const isNaming = useSignal(false);
  const current = normalize(route.value.query.toString());
  const all = [...BUILT_IN, ...saved.value];
  const isKnown = all.some((view) => normalize(view.query) === current);
  const open = (query: string) => (query ? `/tasks?${query}` : '/tasks');
  const onSubmit = (event: SubmitEvent) => {
    event.preventDefault();
    const name = String(new FormData(event.currentTarget as HTMLFormElement).get('name') ?? '').trim();
    if (name) save([...saved.value.filter((view) => view.name !== name), { name, query: current }]);
    isNaming.value = false;
  };
  return (
    <nav class="views" aria-label="Views of the list">
      {all.map((view, index) => (
        <span key={view.name + view.query}>
          <a href={open(view.query)} aria-current={normalize(view.query) === current ? 'page' : undefined}>
            {plain(view.name, 40)}
            {view.query === 'at=needs-you' && answer !== null && answer.needs_you > 0 && <b class="view-count">{answer.needs_you}</b>}
          </a>
          {index >= BUILT_IN.length && normalize(view.query) === current && (
            <button
              type="button"
              class="remove"
              aria-label={`Remove the view ${view.name}`}
              onClick={() => {
                save(saved.value.filter((other) => other !== view));
                navigate('/tasks');
              }}
            >
              ✕
            </button>
          )}
        </span>
      ))}
      {isNaming.value ? (
        <form onSubmit={onSubmit}>
          <input name="name" aria-label="Name of the view" placeholder="name of this view" maxLength={40} ref={(input) => input?.focus()} onKeyDown={(event) => event.key === 'Escape' && (isNaming.value = false)} />
          <button type="submit" class="do first">
            Save
          </button>
        </form>
      ) : (
        !isKnown && (
          <button type="button" class="end" onClick={() => (isNaming.value = true)}>
            + Save this view
          </button>
        )
      )}
    </nav>
  );
}
