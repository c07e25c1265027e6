// Small parts that every page uses.

import { type Signal, signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { age, clockTime, plain } from './format';
import { ahead, link, look, paused } from './live/client';
import { Refused, call } from './session';
import { type Action, type At, type Choice, STATES } from './views';

/** The daemon's time, once a second, while somebody sees it and as long as it is heard. */
export const clock = signal(Date.now());
setInterval(() => {
  clock.value = moment();
}, 1_000);

/** The daemon's time now: what has just begun is not later than it. What nobody hears of, or holds back, does not go on:
 * bars end there. */
export function moment(): number {
  const stands = document.hidden || paused.peek() || link.peek().state === 'lost';
  return stands ? clock.value : Math.max(clock.value, Date.now() + ahead.peek());
}

/** Looks at topics as long as the part is on the page. */
export function useTopics(...names: string[]): void {
  useEffect(() => look(names), [names.join()]);
}

export function Age({ since }: { since: number }) {
  return <time title={new Date(since).toLocaleString()}>{age(clock.value - since)}</time>;
}

export function Mark({ at }: { at: At }) {
  const it = STATES[at];
  return (
    <span class={`mark at-${at}`}>
      <i aria-hidden="true">{it.glyph}</i> {it.word}
    </span>
  );
}

export function Glyph({ at }: { at: At }) {
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

/** Text of others. */
export function Text({ of, max }: { of: string; max?: number }) {
  return <bdi>{plain(of, max)}</bdi>;
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

/** A table; a head that begins with `>` is over figures. */
export function Table({ heads, children, class: name }: { heads: string[]; children: ComponentChildren; class?: string }) {
  return (
    <div class="scroll">
      <table class={`list ${name ?? ''}`}>
        <thead>
          <tr>
            {heads.map((it) => (
              <th key={it} class={it.startsWith('>') ? 'right' : undefined}>
                {it.replace('>', '')}
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
let made = 0;

export function toast(good: boolean, text: string, hint = ''): void {
  const it = { id: (made += 1), good, text, hint };
  toasts.value = [...toasts.peek().slice(-3), it];
  setTimeout(() => (toasts.value = toasts.peek().filter((other) => other.id !== it.id)), good ? 6_000 : 15_000);
}

export function complain(error: unknown): void {
  if (error instanceof Refused) toast(false, error.problem.message, error.problem.hint);
  else toast(false, error instanceof Error ? error.message : String(error));
}

/** What is under way, so that nothing is sent twice. */
const busy = signal<ReadonlySet<string>>(new Set());

/** Carries out what a button stands for, for all that it is for; `words` where it needs some. */
export async function perform(it: Action, words?: string): Promise<boolean> {
  const name = it.verb + JSON.stringify(it.input);
  if (busy.peek().has(name)) return false;
  busy.value = new Set(busy.peek()).add(name);
  const all = [it, ...(it.also ?? [])];
  let done = 0;
  let rules: string[] = [];
  for (const one of all) {
    try {
      const said = await call<{ rules?: unknown; answered?: unknown } | null>(one.verb, one.words === undefined ? one.input : withWords(one.input, one.words, words ?? ''));
      // What was allowed for good is a rule, and is shown.
      if (Array.isArray(said?.rules)) rules = [...rules, ...said.rules.map(String)];
      done += typeof said?.answered === 'number' && one.input.alike === true ? said.answered : 1;
      it.after?.(said);
    } catch (error) {
      complain(error);
    }
  }
  const many = done > 1 || all.length > 1 ? `${done} ` : '';
  const rule = rules.map((one) => ` · ${one}`).join('');
  if (done > 0) toast(true, `${it.label.replace('…', '')}: ${many}done${rule}`, it.cli.replace('…', words ? JSON.stringify(words) : ''));
  const left = new Set(busy.peek());
  left.delete(name);
  busy.value = left;
  return done >= all.length;
}

/** Puts words where a JSON pointer says. */
export function withWords(input: Record<string, unknown>, pointer: string, words: string): Record<string, unknown> {
  const copy = structuredClone(input);
  const path = pointer.split('/').slice(1);
  const last = path.pop();
  let at: Record<string, unknown> = copy;
  for (const part of path) at = at[part] as Record<string, unknown>;
  if (last) at[last] = words;
  return copy;
}

/** An action with what somebody chose for it; as it is where nobody did. */
export function chosen(it: Action, name: string): Action {
  if (!it.choice || !name) return it;
  return { ...it, input: withWords(it.input, it.choice.to, name), cli: `${it.cli} ${it.choice.flag} ${name}` };
}

/** What can be chosen for an action. */
export function Choose({ of, value, set }: { of: Choice; value: string; set: (name: string) => void }) {
  return (
    <label class="choose">
      <span class="dim">{of.label}</span>
      <select aria-label={of.label} value={value} onChange={(event) => set(event.currentTarget.value)}>
        {!of.now && <option value="">as the settings say</option>}
        {of.of.map((name) => (
          <option key={name} value={name}>
            {plain(name, 80)}
          </option>
        ))}
      </select>
    </label>
  );
}

/** What waits for words or for a second thought. */
export const pending: Signal<Action | null> = signal(null);

/** Presses a button: at once, or after words or a second thought. */
export function press(it: Action): void {
  if (it.words !== undefined || it.grave) pending.value = it;
  else void perform(it);
}

/** How what has the focus, or is pointed at, is typed in a shell. */
export const hinted = signal('');

/** What makes a button say how it is typed. */
export function says(cli: string) {
  const on = () => (hinted.value = cli);
  const off = () => hinted.peek() === cli && (hinted.value = '');
  return { title: cli, onFocus: on, onMouseEnter: on, onBlur: off, onMouseLeave: off };
}

export function Do({ action, nth }: { action: Action; nth?: number }) {
  return (
    <button type="button" class={`do ${action.first ? 'first' : ''} ${action.grave ? 'grave' : ''}`} {...says(action.cli)} onClick={() => press(action)}>
      {plain(action.label, 80)} {nth !== undefined && nth <= 9 && <kbd>{nth}</kbd>}
      {action.key && <kbd>{action.key}</kbd>}
    </button>
  );
}

export function When({ wall }: { wall: number }) {
  return <time>{clockTime(wall)}</time>;
}

/** Nothing yet, or nothing known: they are not the same, and are said apart. */
export function Empty({ known, children }: { known: boolean; children: ComponentChildren }) {
  return <p class="empty">{known ? children : 'asking the daemon…'}</p>;
}
