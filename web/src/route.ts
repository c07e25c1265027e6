// Where we are: the address is the only state of a page that outlives it, so that it can be pasted anywhere.

import { signal } from '@preact/signals';

export interface Place {
  path: string;
  query: URLSearchParams;
}

function here(): Place {
  return { path: location.pathname, query: new URLSearchParams(location.search) };
}

export const place = signal<Place>(here());

addEventListener('popstate', () => {
  place.value = here();
});

export function go(to: string): void {
  if (to === location.pathname + location.search) return;
  history.pushState(null, '', to);
  place.value = here();
  scrollTo(0, 0);
}

/** Sets a part of the query; nothing takes it away. What is typed or dragged replaces the address; another view is a
 * step of its own, and Back leads to the one before. */
export function set(name: string, value: string | null, step = false): void {
  const query = new URLSearchParams(location.search);
  if (value === null || value === '') query.delete(name);
  else query.set(name, value);
  const text = query.toString();
  const to = location.pathname + (text ? `?${text}` : '');
  if (step) history.pushState(null, '', to);
  else history.replaceState(null, '', to);
  place.value = here();
}

export function get(name: string): string {
  return place.value.query.get(name) ?? '';
}

/** Follows links of our own without loading the page anew. */
export function follow(event: MouseEvent): void {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const link = (event.target as Element | null)?.closest?.('a[href^="/"]');
  if (!link || link.hasAttribute('target')) return;
  event.preventDefault();
  go(link.getAttribute('href') ?? '/');
}
