// The keys of a task's page.

import { withDrafts } from '../drafts';
import { topic } from '../live/client';
import { get, set } from '../route';
import { press, toast } from '../ui';
import type { TaskPage } from '../views';

/** The next file of a change. */
function file(by: number): void {
  const files = [...document.querySelectorAll<HTMLElement>('[data-file]')];
  const top = files.findIndex((it) => it.getBoundingClientRect().top > 60);
  const at = by > 0 ? top : (top < 0 ? files.length : top) - 2;
  const next = files[Math.max(0, Math.min(files.length - 1, at < 0 && by > 0 ? files.length - 1 : at))];
  next?.scrollIntoView({ block: 'start' });
  next?.querySelector('summary')?.focus({ preventScroll: true });
}

/** Says how to go on in a terminal, and has it at hand to be pasted. */
export function takeOver(id: string): void {
  const line = `regatta takeover ${id}`;
  const said = (how: string) => toast(true, `Work in its workspace yourself, in a terminal${how}:`, line);
  // A browser may keep its clipboard to itself.
  const copied = navigator.clipboard?.writeText(line);
  if (copied) copied.then(() => said(' (it can be pasted)'), () => said(''));
  else said('');
}

const LINES = '.lines tr:not(.hunk, .draft)';

/** The line of a change where the reader is. */
function line(by: number): boolean {
  const rows = [...document.querySelectorAll<HTMLElement>(LINES)];
  const at = rows.findIndex((it) => it.classList.contains('cur'));
  const next = rows[at < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, at + by))];
  rows[at]?.classList.remove('cur');
  next?.classList.add('cur');
  next?.scrollIntoView({ block: 'nearest' });
  return next !== undefined;
}

/** Begins a comment where the reader is, else on the first line that changed, else on the whole. */
function remark(): void {
  const row = document.querySelector(`${LINES}.cur`) ?? document.querySelector('.lines tr.i, .lines tr.d') ?? document.querySelector('.lines td.i')?.parentElement;
  if (row) row.dispatchEvent(new CustomEvent('regatta-comment', { bubbles: true }));
  else document.getElementById('comment')?.focus();
}

/** What a key does on a task's page; whether it did anything. */
export function onTask(key: string, id: string): boolean {
  const it = topic(id).one<TaskPage>(id);
  const action = it?.actions.find((one) => one.key === key);
  if (action) {
    press(withDrafts(action, id));
    return true;
  }
  switch (key) {
    case 'n':
    case 'p':
      file(key === 'n' ? 1 : -1);
      return true;
    case 'T':
      takeOver(id);
      return true;
    case 'j':
    case 'k':
      return line(key === 'j' ? 1 : -1);
    case 'c':
      remark();
      return true;
    case 's':
      set('spaces', get('spaces') === 'no' ? null : 'no');
      return true;
    case 'i':
      if (it?.reviewed || get('since')) set('since', get('since') ? null : 'review');
      return true;
    case 'u':
      set('diff', get('diff') === 'split' ? null : 'split');
      return true;
    case 'w':
      set('log', get('log') === 'raw' ? null : 'raw');
      return true;
    case 'f': {
      const box = document.querySelector('.say-box');
      if (box) box.scrollTop = box.scrollHeight;
      return true;
    }
    default:
      return false;
  }
}
