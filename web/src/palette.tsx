// Every verb that applies, found by a few letters, with its line for a shell.

import { untracked, useSignal } from '@preact/signals';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { useBack } from './focus-restore';
import { withDrafts } from './drafts';
import { plain } from './format';
import { PAGES, letters, over, pause, setLetters } from './keys';
import { topic } from './live/client';
import { go, place } from './route';
import { theme } from './theme';
import { press, useTopics } from './ui';
import { type Head, type Item, type Lane, type Row, STATES, type TaskPage, type Train } from './views';

interface Entry {
  label: string;
  hint: string;
  run(): void;
}

/** Whether the letters come in that order, and how far apart. */
export function fits(words: string, text: string): number | null {
  let at = -1;
  let apart = 0;
  for (const letter of words.toLowerCase().replace(/\s+/g, '')) {
    const next = text.toLowerCase().indexOf(letter, at + 1);
    if (next < 0) return null;
    apart += next - at - 1;
    at = next;
  }
  return apart;
}

function entries(): Entry[] {
  const found: Entry[] = [];
  const path = place.peek().path;
  // Ways come before deeds: an Enter too early goes somewhere and decides nothing.
  for (const [key, to, name] of PAGES) found.push({ label: `Go to ${name}`, hint: `g ${key}`, run: () => go(to) });
  if (path.startsWith('/t/')) {
    const id = path.slice(3);
    for (const it of topic(id).one<TaskPage>(id)?.actions ?? []) found.push({ label: `${it.label} ${id}`, hint: it.cli, run: () => press(withDrafts(it, id)) });
  }
  for (const it of topic('inbox').all<Item>().slice(0, 50)) {
    for (const action of it.actions) found.push({ label: `${action.label} · ${it.id} ${it.subject}`, hint: action.cli, run: () => press(action) });
  }
  for (const it of topic('tasks').all<Row>().slice(0, 500)) found.push({ label: `${it.id} ${it.subject}`, hint: `regatta show ${it.id}`, run: () => go(`/t/${it.id}`) });
  for (const it of topic('lanes').all<Lane>()) {
    found.push({ label: `Agent ${it.agent} ${STATES[it.at].word}`, hint: `regatta why ${it.agent}`, run: () => go(`/agents/${it.agent}`) });
    for (const action of it.actions) found.push({ label: `${action.label} · ${it.agent}`, hint: action.cli, run: () => press(action) });
  }
  for (const it of topic('queue').all<Train>()) for (const action of it.actions) found.push({ label: `${action.label} · ${it.project}`, hint: action.cli, run: () => press(action) });
  for (const it of topic('head').one<Head>('head')?.missions ?? []) found.push({ label: `Replay ${it.id} ${it.title}`, hint: `regatta replay ${it.id}`, run: () => go(`/replay?mission=${it.id}`) });
  found.push({ label: 'What needs you', hint: 'regatta inbox', run: () => go('/inbox') });
  found.push({ label: 'Say what the team should do', hint: 'regatta run "…"', run: () => (go('/'), setTimeout(() => document.getElementById('composer')?.focus())) });
  found.push({ label: 'Keys', hint: '?', run: () => (over.value = 'help') });
  found.push({ label: 'Switch between light and dark', hint: '', run: theme.turn });
  found.push({ label: 'Hold back updates, or let them come', hint: '.', run: pause });
  found.push({ label: letters.peek() ? 'Turn single-letter keys off' : 'Turn single-letter keys on', hint: '', run: () => setLetters(!letters.peek()) });
  return found;
}

/** The best twelve. */
export function matching(all: Entry[], words: string): Entry[] {
  return all
    .map((it) => ({ it, far: fits(words, `${it.label} ${it.hint}`) }))
    .filter((one) => one.far !== null)
    .sort((a, b) => (a.far ?? 0) - (b.far ?? 0))
    .slice(0, 12)
    .map((one) => one.it);
}

export function Palette() {
  useBack();
  useTopics('tasks', 'lanes', 'queue');
  const box = useRef<HTMLDialogElement>(null);
  const words = useSignal('');
  const at = useSignal(0);
  // What is found stays as it is until somebody types: nothing slips under the Enter that was meant for another.
  const list = useSignal<Entry[]>([]);
  const look = (text: string) => {
    words.value = text;
    at.value = 0;
    list.value = matching(untracked(entries), text);
  };
  const open = over.value === 'palette';
  useLayoutEffect(() => {
    look('');
    if (open && !box.current?.open) box.current?.showModal();
    if (!open && box.current?.open) box.current.close();
  }, [open]);
  const found = list.value;
  const run = (nth: number) => {
    const chosen = found[nth];
    over.value = null;
    chosen?.run();
  };
  const key = (event: KeyboardEvent) => {
    if (event.key === 'ArrowDown') at.value = Math.min(found.length - 1, at.peek() + 1);
    else if (event.key === 'ArrowUp') at.value = Math.max(0, at.peek() - 1);
    else if (event.key === 'Enter') run(at.peek());
    else return;
    event.preventDefault();
  };
  return (
    <dialog ref={box} class="palette" aria-label="Commands" onClose={() => (over.value = null)}>
      <input
        type="text"
        role="combobox"
        aria-expanded="true"
        aria-controls="found"
        aria-activedescendant={found.length > 0 ? `found-${at.value}` : undefined}
        aria-label="What to do"
        placeholder="What to do"
        value={words.value}
        onInput={(it) => look(it.currentTarget.value)}
        onKeyDown={key}
        autofocus
      />
      <ul id="found" role="listbox" aria-label="Commands">
        {found.map((it, nth) => (
          <li key={it.label + it.hint} id={`found-${nth}`} role="option" aria-selected={nth === at.value} onClick={() => run(nth)}>
            {plain(it.label, 90)} <code>{plain(it.hint, 80)}</code>
          </li>
        ))}
      </ul>
      {found.length === 0 && <p class="empty">Nothing matches. Every command of the shell: regatta help</p>}
    </dialog>
  );
}

const HELP: [string, string][] = [
  ['?', 'this help'],
  ['Ctrl-K', 'every command, with its line for a shell'],
  ['/', 'filter'],
  ['j k', 'next and previous'],
  ['Enter', 'open'],
  ['1–9', 'choose an answer of the chosen item'],
  ['r', 'reply in your own words'],
  ['z', 'put it off for an hour'],
  ['g, then n t q f c a m v e s', 'go to Now, Tasks, Queue, Files, Cost, Agents, Team, Conversations, Events, Setup'],
  ['.', 'hold back updates, or let them come'],
  ['L R X', 'on a task: land, revise or tell, drop or cancel'],
  ['n p', 'on a task: next and previous file'],
  ['T', 'on a task: how to take over in a terminal'],
  ['c', 'on a task: comment on the line; it goes with Revise'],
  ['u s i', 'on a task: split, without spaces, since your last review'],
  ['f w', 'on a task: follow the log, raw log'],
  ['Esc', 'closes; it never decides anything'],
];

export function Help() {
  useBack();
  const box = useRef<HTMLDialogElement>(null);
  const open = over.value === 'help';
  useLayoutEffect(() => {
    if (open && !box.current?.open) box.current?.showModal();
    if (!open && box.current?.open) box.current.close();
  }, [open]);
  return (
    <dialog ref={box} class="help" aria-label="Keys" onClose={() => over.peek() === 'help' && (over.value = null)}>
      {open && (
        <>
          <h2>Keys</h2>
          <dl>
            {HELP.map(([key, words]) => (
              <div key={key}>
                <dt>
                  <kbd>{key}</kbd>
                </dt>
                <dd>{words}</dd>
              </div>
            ))}
          </dl>
          <label>
            <input type="checkbox" checked={letters.value} onChange={(it) => setLetters(it.currentTarget.checked)} /> single letters are keys
          </label>
          <button type="button" class="do" onClick={() => (over.value = null)}>
            Close <kbd>Esc</kbd>
          </button>
        </>
      )}
    </dialog>
  );
}
