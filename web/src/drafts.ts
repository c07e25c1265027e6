// Comments on a change. They are drafts until Revise sends them, and they are stored in the browser.

import { type Signal, signal } from '@preact/signals';
import type { Action } from './action';

/** A comment on one line, or on the lines `from` to `line`. */
export interface Comment {
  path: string;
  line: number;
  from?: number;
  /** The numbers are those of the file before the change. */
  old?: boolean;
  text: string;
}

export interface Drafts {
  /** The comment on the whole change. */
  words: string;
  comments: Comment[];
}

const draftsByTask = new Map<string, Signal<Drafts>>();
const storageKey = (task: string) => `regatta-drafts-${task}`;

function isComment(value: unknown): value is Comment {
  const comment = value as Partial<Comment> | null;
  return typeof comment === 'object' && comment !== null && typeof comment.path === 'string' && typeof comment.line === 'number' && typeof comment.text === 'string';
}

function loadDrafts(task: string): Drafts {
  try {
    const stored = JSON.parse(localStorage.getItem(storageKey(task)) ?? '{}') as Partial<Drafts>;
    return { words: String(stored.words ?? ''), comments: Array.isArray(stored.comments) ? stored.comments.filter(isComment) : [] };
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

/** Identifies the place of a comment. There is at most one draft for each place. */
export function placeKey({ path, line, old }: { path: string; line: number; old?: boolean }): string {
  return `${path}:${line}${old ? ':old' : ''}`;
}

/** Adds a comment, or replaces the one at the same place. */
export function putComment(task: string, comment: Comment): void {
  const { words, comments } = draftsOf(task).peek();
  const at = comments.findIndex((other) => placeKey(other) === placeKey(comment));
  saveDrafts(task, { words, comments: at < 0 ? [...comments, comment] : comments.with(at, comment) });
}

export function removeComment(task: string, place: { path: string; line: number; old?: boolean }): void {
  const { words, comments } = draftsOf(task).peek();
  saveDrafts(task, { words, comments: comments.filter((other) => placeKey(other) !== placeKey(place)) });
}

export function discardDrafts(task: string): void {
  saveDrafts(task, { words: '', comments: [] });
}

/** Returns how many comments are written and not sent: those on lines, and the one on the whole change. */
export function unsentComments(task: string): number {
  return draftLines(draftsOf(task).value).length;
}

/** Returns the place of a comment as the agent reads it: `src/a.rs:12`, `src/a.rs:12-14`, or `src/a.rs:12 (before)`. */
export function placeText({ path, line, from, old }: Comment): string {
  return `${path}:${from !== undefined && from !== line ? `${from}-` : ''}${line}${old ? ' (before)' : ''}`;
}

/** Returns the lines that Revise sends: the comment on the whole change, then one entry per comment. */
export function draftLines(drafts: Drafts): string[] {
  const written = drafts.comments.filter((comment) => comment.text.trim());
  const sorted = [...written].sort((a, b) => a.path.localeCompare(b.path) || a.line - b.line);
  return [...(drafts.words.trim() ? [drafts.words.trim()] : []), ...sorted.map((comment) => `${placeText(comment)}: ${comment.text.trim()}`)];
}

const quoted = (text: string) => `'${text.replace(/'/g, `'\\''`)}'`;

/** `1 comment`, `3 comments`. */
export const commentCountText = (count: number) => `${count} comment${count === 1 ? '' : 's'}`;

/** Returns an action that sends text to the agent, Revise or Tell, with the stored drafts as its text. Other actions are
 * returned unchanged. */
export function withDrafts(action: Action, task: string): Action {
  const drafts = draftsOf(task).value;
  const lines = draftLines(drafts);
  if ((action.verb !== 'revise' && action.verb !== 'tell') || lines.length === 0) return action;
  const name = action.verb === 'revise' ? 'Revise' : 'Tell';
  const shellWords = lines.map((line, index) => (index === 0 && drafts.words.trim() ? quoted(line) : `--comment ${quoted(line)}`));
  return {
    ...action,
    label: `${name} with ${commentCountText(lines.length)}`,
    words: undefined,
    input: { ...action.input, text: lines.join('\n') },
    cli: action.verb === 'revise' ? `regatta revise ${task} ${shellWords.join(' ')}` : `regatta tell ${task} ${quoted(lines.join('\n'))}`,
    after: () => discardDrafts(task),
  };
}

/** Returns the action that turns unsent comments into a new task, because the task has ended and takes no messages. */
export function followUpAction(task: string, subject: string, project: string): Action {
  const lines = draftLines(draftsOf(task).value);
  const title = `Follow up on ${task}: ${subject}`.slice(0, 200);
  const description = lines.join('\n');
  return {
    label: 'Send as a new task',
    verb: 'task.add',
    input: { subject: title, description, project, backlog: true },
    cli: `regatta task add ${quoted(title)} --description ${quoted(description)} --backlog`,
    first: false,
    grave: false,
    after: () => discardDrafts(task),
  };
}
