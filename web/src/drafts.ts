// Comments on a change. They are drafts until Revise sends them, and they are stored in the browser.

import { type Signal, signal } from '@preact/signals';
import type { Action } from './action';

export interface Comment {
  path: string;
  line: number;
  text: string;
}

export interface Drafts {
  /** The comment on the whole change. */
  words: string;
  comments: Comment[];
}

const draftsByTask = new Map<string, Signal<Drafts>>();
const storageKey = (task: string) => `regatta-drafts-${task}`;

function loadDrafts(task: string): Drafts {
  try {
    const stored = JSON.parse(localStorage.getItem(storageKey(task)) ?? '{}') as Partial<Drafts>;
    return { words: String(stored.words ?? ''), comments: Array.isArray(stored.comments) ? stored.comments : [] };
  } catch {
    return { words: '', comments: [] }; // not a draft that this page wrote
  }
}

export function draftsOf(task: string): Signal<Drafts> {
  let drafts = draftsByTask.get(task);
  if (!drafts) draftsByTask.set(task, (drafts = signal(loadDrafts(task))));
  return drafts;
}

export function saveDrafts(task: string, drafts: Drafts): void {
  draftsOf(task).value = drafts;
  if (drafts.words || drafts.comments.length > 0) localStorage.setItem(storageKey(task), JSON.stringify(drafts));
  else localStorage.removeItem(storageKey(task));
}

/** Sets the comment on a line; `null` removes it. */
export function setComment(task: string, path: string, line: number, text: string | null): void {
  const { words, comments } = draftsOf(task).peek();
  const others = comments.filter((comment) => comment.path !== path || comment.line !== line);
  saveDrafts(task, { words, comments: text === null ? others : [...others, { path, line, text }] });
}

/** Returns how many comments are written and not sent: those on lines, and the one on the whole change. */
export function unsentComments(task: string): number {
  return draftLines(draftsOf(task).value).length;
}

/** Returns the lines that Revise sends: the comment on the whole change, then one line per comment. */
export function draftLines(drafts: Drafts): string[] {
  const written = drafts.comments.filter((comment) => comment.text.trim());
  const sorted = [...written].sort((a, b) => a.path.localeCompare(b.path) || a.line - b.line);
  return [...(drafts.words.trim() ? [drafts.words.trim()] : []), ...sorted.map((comment) => `${comment.path}:${comment.line}: ${comment.text.trim()}`)];
}

const quoted = (text: string) => `'${text.replace(/'/g, `'\\''`)}'`;

/** Returns the Revise action with the stored drafts as its text. Other actions are returned unchanged. */
export function withDrafts(action: Action, task: string): Action {
  const drafts = draftsOf(task).value;
  const lines = draftLines(drafts);
  if (action.verb !== 'revise' || lines.length === 0) return action;
  const commentCount = lines.length - (drafts.words.trim() ? 1 : 0);
  const shellWords = lines.map((line, index) => (index === 0 && drafts.words.trim() ? quoted(line) : `--comment ${quoted(line)}`));
  return {
    ...action,
    label: commentCount > 0 ? `Revise with ${commentCount} comment${commentCount === 1 ? '' : 's'}` : 'Revise with your comment',
    words: undefined,
    input: { ...action.input, text: lines.join('\n') },
    cli: `regatta revise ${task} ${shellWords.join(' ')}`,
    after: () => saveDrafts(task, { words: '', comments: [] }),
  };
}
