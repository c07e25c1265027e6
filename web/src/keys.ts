// The keyboard: everything can be done with it, and nothing is decided by a key that was meant for something else.

import { signal } from '@preact/signals';
import { choose, move } from './inbox';
import { apply, paused } from './live/client';
import { go, place } from './route';
import { pending } from './ui';

export const PAGES: [string, string, string][] = [
  ['n', '/', 'Now'],
  ['t', '/tasks', 'Tasks'],
  ['q', '/queue', 'Queue'],
  ['f', '/files', 'Files'],
  ['c', '/cost', 'Cost'],
  ['a', '/agents', 'Agents'],
  ['m', '/team', 'Team'],
  ['v', '/conversations', 'Conversations'],
  ['e', '/events', 'Events'],
  ['s', '/setup', 'Setup'],
];

/** What lies over the page. */
export const over = signal<'help' | 'palette' | null>(null);
/** Whether single letters do anything (WCAG 2.1.4). */
export const letters = signal(localStorage.getItem('regatta-keys') !== 'off');

export function setLetters(on: boolean): void {
  letters.value = on;
  localStorage.setItem('regatta-keys', on ? 'on' : 'off');
}

export function pause(): void {
  paused.value = !paused.peek();
  if (!paused.peek()) apply();
}

let going = 0;

function typing(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest('input, textarea, select, [contenteditable]') !== null;
}

let stood = 0;

/** The row that has the focus moves; with none, the first, or the one that stands where a row has gone. */
function step(by: number): boolean {
  const rows = [...document.querySelectorAll<HTMLElement>('[data-row]')];
  if (rows.length === 0) return false;
  const at = rows.findIndex((it) => it === document.activeElement);
  stood = Math.min(rows.length - 1, Math.max(0, at < 0 ? stood : at + by));
  const next = rows[stood];
  next?.focus();
  next?.scrollIntoView({ block: 'nearest' });
  return true;
}

/** Keys of the page that is open, for as long as it is. */
export const own: { keys: ((key: string) => boolean) | null } = { keys: null };

/** What one key does; whether it did anything. */
export function pressed(event: KeyboardEvent): boolean {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
    over.value = over.peek() === 'palette' ? null : 'palette';
    return true;
  }
  if (event.key === 'Escape') {
    if (typing(event.target)) (event.target as HTMLElement).blur();
    if (!over.peek()) return false;
    over.value = null;
    return true;
  }
  // A row opens what it is about.
  if (event.key === 'Enter' && event.target instanceof HTMLTableRowElement && event.target.dataset.row !== undefined) {
    event.target.querySelector<HTMLElement>('a, button')?.click();
    return true;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || over.peek() || pending.peek() || !letters.peek()) return false;
  const key = event.key;
  if (going > Date.now()) {
    going = 0;
    const page = PAGES.find((it) => it[0] === key);
    if (page) {
      go(page[1]);
      return true;
    }
  }
  const path = place.peek().path;
  const inbox = path === '/' || path === '/inbox';
  if (key === '?') over.value = 'help';
  else if (key === 'g') going = Date.now() + 1_500;
  else if (key === '/') document.getElementById('filter')?.focus() ?? document.getElementById('composer')?.focus();
  else if (key === '.') pause();
  else if (own.keys?.(key)) return true;
  else if (key === 'j' || key === 'k') return inbox ? move(key === 'j' ? 1 : -1) : step(key === 'j' ? 1 : -1);
  else if (/^[1-9]$/.test(key)) return choose((_, nth) => nth === Number(key) - 1);
  else if (key === 'r') return choose((it) => it.words !== undefined);
  else if (key === 'z') return choose((it) => it.key === 'z');
  else return false;
  return true;
}

export function listen(): void {
  addEventListener('keydown', (event) => {
    if (pressed(event)) event.preventDefault();
  });
}
