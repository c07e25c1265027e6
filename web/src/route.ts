// Where we are: the address is the only state of a page that outlives it, so that it can be pasted anywhere.

import { signal } from '@preact/signals';

export interface Route {
  path: string;
  query: URLSearchParams;
}

function currentRoute(): Route {
  return { path: location.pathname, query: new URLSearchParams(location.search) };
}

export const route = signal<Route>(currentRoute());

addEventListener('popstate', () => {
  route.value = currentRoute();
});

export function navigate(target: string): void {
  if (target === location.pathname + location.search) return;
  history.pushState(null, '', target);
  route.value = currentRoute();
  scrollTo(0, 0);
}

/** Sets a part of the query; nothing takes it away. What is typed or dragged replaces the address; another view is a
 * step of its own, and Back leads to the one before. */
export function setQueryParam(name: string, value: string | null, addHistoryEntry = false): void {
  const query = new URLSearchParams(location.search);
  if (value === null || value === '') query.delete(name);
  else query.set(name, value);
  const text = query.toString();
  const target = location.pathname + (text ? `?${text}` : '');
  if (addHistoryEntry) history.pushState(null, '', target);
  else history.replaceState(null, '', target);
  route.value = currentRoute();
}

export function queryParam(name: string): string {
  return route.value.query.get(name) ?? '';
}

/** Follows links of our own without loading the page anew. */
export function followLink(event: MouseEvent): void {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const link = (event.target as Element | null)?.closest?.('a[href^="/"]');
  if (!link || link.hasAttribute('target')) return;
  event.preventDefault();
  navigate(link.getAttribute('href') ?? '/');
}
