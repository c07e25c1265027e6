// The keyboard: everything can be done with it, and nothing is decided by a key that was meant for something else.

import { signal } from '@preact/signals';
import { choose, chosen, move } from './inbox';
import { paused, apply, topic } from './live/client';
import { go, place } from './route';
import { pending, press } from './ui';
import type { Action, Item } from './views';

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

/** The row that has the focus moves; with none, the first. */
function step(by: number): boolean {
  const rows = [...document.querySelectorAll<HTMLElement>('[data-row]')];
  if (rows.length === 0) return false;
  const at = rows.findIndex((it) => it === document.activeElement);
  const next = rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? 0 : at + by))];
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
  else if (inbox && /^[1-9]$/.test(key)) return choose(Number(key));
  else if (inbox && key === 'r') return card((it) => it.words !== undefined);
  else if (inbox && key === 'z') return card((it) => it.key === 'z');
  else return false;
  return true;
}

/** Presses the first button of the chosen card that is meant. */
function card(meant: (it: Action) => boolean): boolean {
  const item = topic('inbox').all<Item>().find((it) => it.group === chosen.peek());
  const action = item?.actions.find(meant);
  if (action) press(action);
  return action !== undefined;
}

export function listen(): void {
  addEventListener('keydown', (event) => {
    if (pressed(event)) event.preventDefault();
  });
}
