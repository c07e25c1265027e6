// The keyboard shortcuts of a task's page.

import { withDrafts } from '../drafts';
import { taskTopic } from '../live/client';
import { queryParam, setQueryParam } from '../route';
import { press, toast } from '../ui';

/** Scrolls to the next or previous file of the change. */
function moveToFile(by: number): void {
  const files = [...document.querySelectorAll<HTMLElement>('[data-file]')];
  const top = files.findIndex((file) => file.getBoundingClientRect().top > 60);
  const at = by > 0 ? top : (top < 0 ? files.length : top) - 2;
  const next = files[Math.max(0, Math.min(files.length - 1, at < 0 && by > 0 ? files.length - 1 : at))];
  next?.scrollIntoView({ block: 'start' });
  next?.querySelector('summary')?.focus({ preventScroll: true });
}

/** Shows the command for working in the task's workspace, and copies it to the clipboard. */
export function takeOver(id: string): void {
  const line = `regatta takeover ${id}`;
  const notify = (suffix: string) => toast(true, `To work in the task's workspace yourself, run this in a terminal${suffix}:`, line);
  // A browser may deny access to the clipboard.
  const copying = navigator.clipboard?.writeText(line);
  if (copying) copying.then(() => notify(' (copied)'), () => notify(''));
  else notify('');
}

const LINE_SELECTOR = '.lines tr:not(.hunk, .draft)';

/** Moves the cursor line of the change. Returns false if the change has no lines. */
function moveToLine(by: number): boolean {
  const rows = [...document.querySelectorAll<HTMLElement>(LINE_SELECTOR)];
  const at = rows.findIndex((row) => row.classList.contains('cur'));
  const next = rows[at < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, at + by))];
  rows[at]?.classList.remove('cur');
  next?.classList.add('cur');
  next?.scrollIntoView({ block: 'nearest' });
  return next !== undefined;
}

/** Starts a comment on the cursor line, else on the first changed line, else on the whole change. */
function startComment(): void {
  const row = document.querySelector(`${LINE_SELECTOR}.cur`) ?? document.querySelector('.lines tr.i, .lines tr.d') ?? document.querySelector('.lines td.i')?.parentElement;
  if (row) row.dispatchEvent(new CustomEvent('regatta-comment', { bubbles: true }));
  else document.getElementById('comment')?.focus();
}

/** Handles a key on a task's page. Returns whether the key did anything. */
export function handleTaskKey(key: string, id: string): boolean {
  const task = taskTopic(id).get(id);
  const action = task?.actions.find((candidate) => candidate.key === key);
  if (action) {
    press(withDrafts(action, id));
    return true;
  }
  switch (key) {
    case 'n':
    case 'p':
      moveToFile(key === 'n' ? 1 : -1);
      return true;
    case 'T':
      takeOver(id);
      return true;
    case 'j':
    case 'k':
      return moveToLine(key === 'j' ? 1 : -1);
    case 'c':
      startComment();
      return true;
    case 's':
      setQueryParam('spaces', queryParam('spaces') === 'no' ? null : 'no');
      return true;
    case 'i':
      if (task?.reviewed || queryParam('since')) setQueryParam('since', queryParam('since') ? null : 'review');
      return true;
    case 'u':
      setQueryParam('diff', queryParam('diff') === 'split' ? null : 'split');
      return true;
    case 'f':
    case 'w':
    case 'x':
      document.dispatchEvent(new CustomEvent('regatta-log', { detail: key }));
      return true;
    default:
      return false;
  }
}
