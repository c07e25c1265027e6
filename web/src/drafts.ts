// Comments on a change: drafts until Revise sends them, and they outlive the tab.

import { type Signal, signal } from '@preact/signals';
import type { Action } from './views';

export interface Comment {
  path: string;
  line: number;
  text: string;
}

export interface Drafts {
  /** What is said of the whole. */
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
    return { words: '', comments: [] }; // whatever it was, it is no draft of ours
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

/** Says something of a line; nothing takes it back. */
export function setComment(task: string, path: string, line: number, text: string | null): void {
  const { words, comments } = draftsOf(task).peek();
  const others = comments.filter((comment) => comment.path !== path || comment.line !== line);
  saveDrafts(task, { words, comments: text === null ? others : [...others, { path, line, text }] });
}

/** What would be sent: the words, then a line for each comment. */
export function draftLines(drafts: Drafts): string[] {
  const written = drafts.comments.filter((comment) => comment.text.trim());
  const sorted = [...written].sort((a, b) => a.path.localeCompare(b.path) || a.line - b.line);
  return [...(drafts.words.trim() ? [drafts.words.trim()] : []), ...sorted.map((comment) => `${comment.path}:${comment.line}: ${comment.text.trim()}`)];
}

const quoted = (text: string) => `'${text.replace(/'/g, `'\\''`)}'`;

/** Revise with what was collected, in place of Revise with words that are asked for. */
export function withDrafts(action: Action, task: string): Action {
  const drafts = draftsOf(task).value;
  const lines = draftLines(drafts);
  if (action.verb !== 'revise' || lines.length === 0) return action;
  const commentCount = lines.length - (drafts.words.trim() ? 1 : 0);
  const shellWords = lines.map((line, index) => (index === 0 && drafts.words.trim() ? quoted(line) : `--comment ${quoted(line)}`));
  return {
    ...action,
    label: commentCount > 0 ? `Revise with ${commentCount} comment${commentCount === 1 ? '' : 's'}` : 'Revise with your words',
    words: undefined,
    input: { ...action.input, text: lines.join('\n') },
    cli: `regatta revise ${task} ${shellWords.join(' ')}`,
    after: () => saveDrafts(task, { words: '', comments: [] }),
  };
}
