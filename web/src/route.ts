// The page's address. All state of a view that should survive a reload or be shared is in it.

import { signal } from '@preact/signals';
import { rememberFocus } from './focus-memory';

export interface Route {
  path: string;
  query: URLSearchParams;
}

function currentRoute(): Route {
  return { path: location.pathname, query: new URLSearchParams(location.search) };
}

export const route = signal<Route>(currentRoute());

/** The name of the current entry of the history, under which its focus is remembered. */
let entry = entryOf(history.state);

function entryOf(state: unknown): string {
  return (state as { entry?: string } | null)?.entry ?? 'first';
}

/** Adds an entry to the history, and remembers the focus of the entry before it. */
function addEntry(target: string): void {
  rememberFocus(entry);
  entry = crypto.randomUUID();
  history.pushState({ entry }, '', target);
}

addEventListener('popstate', (event) => {
  rememberFocus(entry);
  entry = entryOf(event.state);
  route.value = currentRoute();
  void import('./focus-restore').then((module) => module.restoreFocus(entry));
});

export const TASK_LIST_KEY = 'regatta-task-list';

/** Remembers the tasks that a page links to before one of them is opened. */
export function rememberTaskList(target: string): void {
  if (!target.startsWith('/t/') || location.pathname.startsWith('/t/')) return;
  const links = [...document.querySelectorAll('main a[href^="/t/"]')].slice(0, 2_000);
  try {
    sessionStorage.setItem(TASK_LIST_KEY, JSON.stringify({ address: location.pathname + location.search, paths: links.map((link) => link.getAttribute('href')) }));
  } catch {
    // Without storage, a task's page does not know its neighbours.
  }
}

export function navigate(target: string): void {
  if (target === location.pathname + location.search) return;
  rememberTaskList(target);
  addEntry(target);
  route.value = currentRoute();
  scrollTo(0, 0);
}

/** Sets one parameter of the query, or removes it when `value` is empty. With `addHistoryEntry`, Back returns to the
 * address before. Use it for another view, not for text being typed or a slider being dragged. */
export function setQueryParam(name: string, value: string | null, addHistoryEntry = false): void {
  const query = new URLSearchParams(location.search);
  if (value === null || value === '') query.delete(name);
  else query.set(name, value);
  const text = query.toString();
  const target = location.pathname + (text ? `?${text}` : '');
  if (addHistoryEntry) addEntry(target);
  else history.replaceState(history.state, '', target);
  route.value = currentRoute();
}

export function queryParam(name: string): string {
  return route.value.query.get(name) ?? '';
}

/** Handles a click on a link within the page without loading the page again. */
export function followLink(event: MouseEvent): void {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const link = (event.target as Element | null)?.closest?.('a[href^="/"]');
  if (!link || link.hasAttribute('target')) return;
  event.preventDefault();
  // Safari does not focus a link that is clicked, so that Back would not find it.
  if (!link.contains(document.activeElement)) (link as HTMLElement).focus?.({ preventScroll: true });
  navigate(link.getAttribute('href') ?? '/');
}
