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

const known = new Map<string, Signal<Drafts>>();
const name = (task: string) => `regatta-drafts-${task}`;

function stored(task: string): Drafts {
  try {
    const it = JSON.parse(localStorage.getItem(name(task)) ?? '{}') as Partial<Drafts>;
    return { words: String(it.words ?? ''), comments: Array.isArray(it.comments) ? it.comments : [] };
  } catch {
    return { words: '', comments: [] }; // whatever it was, it is no draft of ours
  }
}

export function draftsOf(task: string): Signal<Drafts> {
  let it = known.get(task);
  if (!it) known.set(task, (it = signal(stored(task))));
  return it;
}

export function keep(task: string, made: Drafts): void {
  draftsOf(task).value = made;
  if (made.words || made.comments.length > 0) localStorage.setItem(name(task), JSON.stringify(made));
  else localStorage.removeItem(name(task));
}

/** Says something of a line; nothing takes it back. */
export function comment(task: string, path: string, line: number, text: string | null): void {
  const { words, comments } = draftsOf(task).peek();
  const others = comments.filter((it) => it.path !== path || it.line !== line);
  keep(task, { words, comments: text === null ? others : [...others, { path, line, text }] });
}

/** What would be sent: the words, then a line for each comment. */
export function lines(made: Drafts): string[] {
  const said = made.comments.filter((it) => it.text.trim());
  const sorted = [...said].sort((a, b) => a.path.localeCompare(b.path) || a.line - b.line);
  return [...(made.words.trim() ? [made.words.trim()] : []), ...sorted.map((it) => `${it.path}:${it.line}: ${it.text.trim()}`)];
}

const quoted = (text: string) => `'${text.replace(/'/g, `'\\''`)}'`;

/** Revise with what was collected, in place of Revise with words that are asked for. */
export function withDrafts(it: Action, task: string): Action {
  const made = draftsOf(task).value;
  const said = lines(made);
  if (it.verb !== 'revise' || said.length === 0) return it;
  const many = said.length - (made.words.trim() ? 1 : 0);
  const shell = said.map((one, nth) => (nth === 0 && made.words.trim() ? quoted(one) : `--comment ${quoted(one)}`));
  return {
    ...it,
    label: many > 0 ? `Revise with ${many} comment${many === 1 ? '' : 's'}` : 'Revise with your words',
    words: undefined,
    input: { ...it.input, text: said.join('\n') },
    cli: `regatta revise ${task} ${shell.join(' ')}`,
    after: () => keep(task, { words: '', comments: [] }),
  };
}
