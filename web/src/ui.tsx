// Components and helpers that every page uses.

import { type Signal, signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { age, plain } from './format';
import { clockOffset, connection, paused, subscribe } from './live/client';
import { setInterrupted } from './interrupted';
import { navigate } from './route';
import { RequestError, callNamed } from './session';
import type { Action } from './action';
import type { ActionChoice, DisplayState, InboxDecisionView } from './api';
import { STATES } from './states';

/** The daemon's time, updated once a second by `daemonNow`. */
export const clock = signal(Date.now());
setInterval(() => {
  clock.value = daemonNow();
}, 1_000);

/** Returns the daemon's time. It stands still while the tab is hidden, updates are paused or the connection is lost, so
 * that durations do not grow without data. It never runs backwards. */
export function daemonNow(): number {
  const frozen = document.hidden || paused.peek() || connection.peek().state === 'lost';
  return frozen ? clock.value : Math.max(clock.value, Date.now() + clockOffset.peek());
}

/** Subscribes to topics while the component is mounted. */
export function useTopics(...names: string[]): void {
  useEffect(() => subscribe(names), [names.join()]);
}

export function Age({ since }: { since: number }) {
  return <time title={new Date(since).toLocaleString()}>{age(clock.value - since)}</time>;
}

/** A state with its glyph and colour. `word` is more specific than the state's own word. */
export function Mark({ at, word }: { at: DisplayState; word?: string }) {
  const state = STATES[at];
  return (
    <span class={`mark at-${at}`}>
      <i aria-hidden="true">{state.glyph}</i> {word ? plain(word, 60) : state.word}
    </span>
  );
}

export function Glyph({ at }: { at: DisplayState }) {
  return (
    <i class={`glyph at-${at}`} title={STATES[at].word}>
      <span aria-hidden="true">{STATES[at].glyph}</span>
      <span class="sr">{STATES[at].word}</span>
    </i>
  );
}

export function TaskLink({ id, class: name }: { id: string; class?: string }) {
  return (
    <a class={`id ${name ?? ''}`} href={`/t/${id}`}>
      {id}
    </a>
  );
}

/** Text from an untrusted source. */
export function Text({ text, max }: { text: string; max?: number }) {
  return <bdi>{plain(text, max)}</bdi>;
}

export function Panel(props: { title: ComponentChildren; aside?: ComponentChildren; children: ComponentChildren; class?: string; id?: string }) {
  return (
    <section class={`panel ${props.class ?? ''}`} id={props.id} tabIndex={props.id ? -1 : undefined}>
      <header>
        <h2>{props.title}</h2>
        {props.aside}
      </header>
      {props.children}
    </section>
  );
}

/** A table. A heading that starts with `>` is right-aligned, for numbers. On a phone, each row becomes a stack of cells with
 * their headings. */
export function Table({ heads, children, class: name }: { heads: string[]; children: ComponentChildren; class?: string }) {
  const table = useRef<HTMLTableElement>(null);
  useLayoutEffect(() => {
    for (const row of table.current?.tBodies[0]?.rows ?? []) {
      if (row.cells.length === heads.length) heads.forEach((head, index) => row.cells[index]?.setAttribute('data-head', head.replace('>', '')));
    }
  });
  return (
    <div class="scroll">
      <table ref={table} class={`list stacks ${name ?? ''}`}>
        <thead>
          <tr>
            {heads.map((head) => (
              <th key={head} class={head.startsWith('>') ? 'right' : undefined}>
                {head.replace('>', '')}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

export interface Toast {
  id: number;
  good: boolean;
  text: string;
  hint: string;
}
export const toasts = signal<Toast[]>([]);
let lastToastId = 0;

export function toast(good: boolean, text: string, hint = ''): void {
  const entry = { id: (lastToastId += 1), good, text, hint };
  toasts.value = [...toasts.peek().slice(-3), entry];
  setTimeout(() => (toasts.value = toasts.peek().filter((other) => other.id !== entry.id)), good ? 6_000 : 15_000);
}

export function reportError(error: unknown): void {
  if (error instanceof RequestError) toast(false, error.problem.message, error.problem.hint);
  else toast(false, error instanceof Error ? error.message : String(error));
}

/** Requests in flight, so that a double click sends only one. */
const busy = signal<ReadonlySet<string>>(new Set());

/** Calls an action's verb, and the verbs of all actions in `also`. `text` fills the field that `words` names. Returns
 * whether all calls succeeded. */
export async function perform(action: Action, text?: string): Promise<boolean> {
  const name = action.verb + JSON.stringify(action.input);
  if (busy.peek().has(name)) return false;
  busy.value = new Set(busy.peek()).add(name);
  const all = [action, ...(action.also ?? [])];
  let done = 0;
  let rules: string[] = [];
  const unsent: Action[] = [];
  for (const single of all) {
    try {
      const result = (await callNamed(single.verb, single.words === undefined ? single.input : withText(single.input, single.words, text ?? ''))) as Partial<InboxDecisionView> | null;
      // A permanent answer creates policy rules; the toast shows them.
      if (Array.isArray(result?.rules)) rules = [...rules, ...result.rules.map(String)];
      done += typeof result?.answered === 'number' && single.input.alike === true ? result.answered : 1;
      action.after?.(result);
    } catch (error) {
      if (error instanceof RequestError && error.problem.status === 401) unsent.push({ ...single, also: undefined });
      else reportError(error);
    }
  }
  const [next, ...also] = unsent;
  if (next) setInterrupted({ action: { ...next, label: action.label, cli: action.cli, also }, text });
  const countText = done > 1 || all.length > 1 ? `${done} ` : '';
  const rulesText = rules.map((rule) => ` · ${rule}`).join('');
  if (done > 0) toast(true, `${action.label.replace('…', '')}: ${countText}${action.verb.endsWith('.ask') ? 'asked' : 'done'}${rulesText}`, action.cli.replace('…', text ? JSON.stringify(text) : ''));
  const remaining = new Set(busy.peek());
  remaining.delete(name);
  busy.value = remaining;
  return done >= all.length;
}

/** Returns a copy of `input` with `text` at a JSON pointer. */
export function withText(input: Record<string, unknown>, pointer: string, text: string): Record<string, unknown> {
  const copy = structuredClone(input);
  const path = pointer.split('/').slice(1);
  const last = path.pop();
  let at: Record<string, unknown> = copy;
  for (const part of path) at = at[part] as Record<string, unknown>;
  if (last) at[last] = text;
  return copy;
}

/** Returns the action with the chosen option, or unchanged without one. */
export function withChoice(action: Action, name: string): Action {
  if (!action.choice || !name) return action;
  return { ...action, input: withText(action.input, action.choice.to, name), cli: `${action.cli} ${action.choice.flag} ${name}` };
}

/** A select for the options of an action. */
export function ChoiceSelect({ choice, value, set }: { choice: ActionChoice; value: string; set: (name: string) => void }) {
  return (
    <label class="choose">
      <span class="dim">{choice.label}</span>
      <select aria-label={choice.label} value={value} onChange={(event) => set(event.currentTarget.value)}>
        {!choice.now && <option value="">default</option>}
        {choice.of.map((name) => (
          <option key={name} value={name}>
            {plain(name, 80)}
          </option>
        ))}
      </select>
    </label>
  );
}

/** The action whose dialog is open. */
export const pending: Signal<Action | null> = signal(null);

/** Performs an action, or first opens the dialog if the action needs text or a confirmation. A change that nobody opened
 * and a change with unsent comments do not land at once. */
export function press(action: Action): void {
  if (action.to) navigate(action.to);
  else if (action.run) action.run();
  else if (action.lands) void import('./land-question').then(({ landQuestion }) => ask(action, landQuestion(action)), reportError);
  else ask(action);
}

function ask(action: Action, question: Action['question'] = undefined): void {
  if (question) pending.value = { ...action, question };
  else if (action.words !== undefined || action.grave) pending.value = action;
  else void perform(action);
}

/** The shell command for the button under the pointer or with the focus. */
export const shellHint = signal('');

/** Properties that make a button show its shell command. */
export function shellHintProps(cli: string) {
  const show = () => (shellHint.value = cli);
  const hide = () => shellHint.peek() === cli && (shellHint.value = '');
  return { title: cli, onFocus: show, onMouseEnter: show, onBlur: hide, onMouseLeave: hide };
}

export function ActionButton({ action, index }: { action: Action; index?: number }) {
  return (
    <button type="button" class={`do ${action.first ? 'first' : ''} ${action.grave ? 'grave' : ''}`} {...shellHintProps(action.cli)} onClick={() => press(action)}>
      {plain(action.label, 80)} {index !== undefined && index <= 9 && <kbd>{index}</kbd>}
      {action.key && <kbd>{action.key}</kbd>}
    </button>
  );
}

/** An empty state. Until the daemon has answered, it says so instead of claiming that there is nothing. */
export function Empty({ known, children }: { known: boolean; children: ComponentChildren }) {
  return <p class="empty">{known ? children : 'loading…'}</p>;
}
