// The keyboard shortcuts of a task's page.

import { withDrafts } from '../drafts';
import { taskTopic } from '../live/client';
import { navigate, queryParam, setQueryParam } from '../route';
import { neighbours } from '../task-list';
import { press, toast } from '../ui';
import { LINE_SELECTOR } from './diff-file';

/** The tabs of a task's page, in their order. */
export const TABS = ['change', 'log', 'checks', 'why', 'result'] as const;
export type Tab = (typeof TABS)[number];

/** Returns the height that the header and the tabs cover at the top of the window. */
function coveredHeight(): number {
  return (document.querySelector('.task-tab-bar')?.getBoundingClientRect().bottom ?? 60) + 8;
}

/** Scrolls to the next or previous file of the change. Returns false if no change is shown. */
function moveToFile(by: number): boolean {
  const files = [...document.querySelectorAll<HTMLElement>('[data-file]')];
  if (files.length === 0) return false;
  const edge = coveredHeight();
  const after = files.findIndex((file) => file.getBoundingClientRect().top > edge);
  const firstBelow = after < 0 ? files.length : after;
  // The file that starts above the edge is the present one.
  const target = by > 0 ? firstBelow : firstBelow - 2;
  const next = files[Math.max(0, Math.min(files.length - 1, target))];
  next?.scrollIntoView({ block: 'start' });
  next?.querySelector('summary')?.focus({ preventScroll: true });
  return true;
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

/** Moves the cursor line of the change. With `extend`, the lines on the way are selected for a comment. Returns false if
 * the change has no lines. */
function moveToLine(by: number, extend: boolean): boolean {
  const rows = [...document.querySelectorAll<HTMLElement>(LINE_SELECTOR)];
  const at = rows.findIndex((row) => row.classList.contains('cur'));
  const next = rows[at < 0 ? firstVisible(rows) : Math.min(rows.length - 1, Math.max(0, at + by))];
  if (!next) return false;
  if (!extend) for (const row of document.querySelectorAll('.lines tr.sel')) row.classList.remove('sel');
  else rows[at]?.classList.add('sel');
  rows[at]?.classList.remove('cur');
  next.classList.add('cur');
  const top = next.getBoundingClientRect().top;
  if (top < coveredHeight() + 40 || top > innerHeight - 120) next.scrollIntoView({ block: 'center' });
  return true;
}

/** Returns the position of the first changed row in the visible area, or else of the first row. */
function firstVisible(rows: HTMLElement[]): number {
  const edge = coveredHeight();
  const visible = rows.findIndex((row) => row.getBoundingClientRect().top > edge);
  return Math.max(0, visible);
}

/** Starts a comment on the cursor line, else on the first changed line, else on the whole change. */
function startComment(): void {
  const row = document.querySelector(`${LINE_SELECTOR}.cur`) ?? document.querySelector('.lines tr.i, .lines tr.d') ?? document.querySelector('.lines td.i')?.parentElement;
  if (row) row.dispatchEvent(new CustomEvent('regatta-comment', { bubbles: true }));
  else document.getElementById('comment')?.focus();
}

/** Opens the tab `by` positions away. */
function moveToTab(by: number): void {
  const buttons = [...document.querySelectorAll('.task-tabs button')];
  const at = buttons.findIndex((button) => button.hasAttribute('aria-current'));
  setQueryParam('tab', TABS[(at + by + TABS.length) % TABS.length] ?? 'change', true);
}

/** Marks the file at the top as viewed, or as not viewed. Returns false if no change is shown. */
function toggleViewed(): boolean {
  const edge = coveredHeight();
  const file = [...document.querySelectorAll<HTMLElement>('[data-file]')].find((candidate) => candidate.getBoundingClientRect().bottom > edge + 40);
  file?.parentElement?.querySelector<HTMLInputElement>('.viewed input')?.click();
  return file !== undefined;
}

/** Handles a key on a task's page. Returns whether the key did anything. */
export function handleTaskKey(key: string, id: string): boolean {
  const task = taskTopic(id).get(id);
  const action = task?.actions.find((candidate) => candidate.key === key);
  if (action) {
    press(withDrafts(action, id));
    return true;
  }
  // Digits choose an answer if the task asks something.
  const tab = /^[1-5]$/.test(key) && !document.querySelector('.card') ? TABS[Number(key) - 1] : undefined;
  if (tab) {
    setQueryParam('tab', tab, true);
    return true;
  }
  const place = neighbours(id);
  switch (key) {
    case '[':
    case ']': {
      const target = key === '[' ? place?.previous : place?.next;
      if (target) navigate(`/t/${target}`);
      return place !== null;
    }
    case 'v':
    case 'V':
      moveToTab(key === 'v' ? 1 : -1);
      return true;
    case 'n':
    case 'p':
      return moveToFile(key === 'n' ? 1 : -1);
    case 'T':
      takeOver(id);
      return true;
    case 'j':
    case 'k':
      return moveToLine(key === 'j' ? 1 : -1, false);
    case 'J':
    case 'K':
      return moveToLine(key === 'J' ? 1 : -1, true);
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
      // On the change, x marks a file as viewed. In the log, x goes to the next failure.
      if (key === 'x' && toggleViewed()) return true;
      document.dispatchEvent(new CustomEvent('regatta-log', { detail: key }));
      return true;
    default:
      return false;
  }
}
