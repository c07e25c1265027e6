// Keyboard control. Everything on the page can be done by key, and a stray key never decides anything.

import { signal } from '@preact/signals';
import { moveChoice, pressAction } from './inbox';
import { PAGES, overlay, togglePause } from './navigation';
import { navigate, route } from './route';
import { pending } from './ui';

/** Whether single-letter keys are on (WCAG 2.1.4). */
export const letterKeys = signal(localStorage.getItem('regatta-keys') !== 'off');

export function setLetterKeys(on: boolean): void {
  letterKeys.value = on;
  localStorage.setItem('regatta-keys', on ? 'on' : 'off');
}

let pageKeyDeadline = 0;

function isTyping(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest('input, textarea, select, [contenteditable]') !== null;
}

let lastIndex = 0;

/** Moves the focus between rows. Without a focused row, it focuses the row at the last position. */
function moveFocus(by: number): boolean {
  const rows = [...document.querySelectorAll<HTMLElement>('[data-row]')];
  if (rows.length === 0) return false;
  const current = rows.findIndex((row) => row === document.activeElement);
  lastIndex = Math.min(rows.length - 1, Math.max(0, current < 0 ? lastIndex : current + by));
  const next = rows[lastIndex];
  next?.focus();
  next?.scrollIntoView({ block: 'nearest' });
  return true;
}

/** The key handler of the open page, if it has one. */
export const pageKeys: { keys: ((key: string) => boolean) | null } = { keys: null };

/** Handles one key. Returns whether the key did anything. */
export function handleKey(event: KeyboardEvent): boolean {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
    overlay.value = overlay.peek() === 'palette' ? null : 'palette';
    return true;
  }
  if (event.key === 'Escape') {
    if (isTyping(event.target)) (event.target as HTMLElement).blur();
    if (!overlay.peek()) return false;
    overlay.value = null;
    return true;
  }
  // Enter on a row follows the row's first link or button.
  if (event.key === 'Enter' && event.target instanceof HTMLTableRowElement && event.target.dataset.row !== undefined) {
    event.target.querySelector<HTMLElement>('a, button')?.click();
    return true;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || overlay.peek() || pending.peek() || !letterKeys.peek()) return false;
  const key = event.key;
  if (pageKeyDeadline > Date.now()) {
    pageKeyDeadline = 0;
    const page = PAGES.find((entry) => entry.key === key);
    if (page) {
      navigate(page.to);
      return true;
    }
  }
  const path = route.peek().path;
  const inbox = path === '/' || path === '/inbox';
  if (key === '?') overlay.value = 'help';
  else if (key === 'g') pageKeyDeadline = Date.now() + 1_500;
  else if (key === '/') document.getElementById('filter')?.focus() ?? document.getElementById('composer')?.focus();
  else if (key === '.') togglePause();
  else if (pageKeys.keys?.(key)) return true;
  else if (key === 'j' || key === 'k') return inbox ? moveChoice(key === 'j' ? 1 : -1) : moveFocus(key === 'j' ? 1 : -1);
  else if (/^[1-9]$/.test(key)) return pressAction((_, index) => index === Number(key) - 1);
  else if (key === 'r') return pressAction((action) => action.words !== undefined);
  else if (key === 'z') return pressAction((action) => action.key === 'z');
  else return false;
  return true;
}

export function listenForKeys(): void {
  addEventListener('keydown', (event) => {
    if (handleKey(event)) event.preventDefault();
  });
}
