// The command palette: every action that applies, found by a few letters, with its shell command.

import { untracked, useSignal } from '@preact/signals';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { useFocusRestore } from './focus-restore';
import { withDrafts } from './drafts';
import { plain } from './format';
import { PAGES, letterKeys, overlay, setLetterKeys, togglePause } from './keys';
import { taskTopic, topic } from './live/client';
import { navigate, route } from './route';
import { theme } from './theme';
import { press, useTopics } from './ui';
import { STATES } from './states';

interface Entry {
  label: string;
  hint: string;
  run(): void;
}

/** Returns how far apart the query's letters are in `text`, or null if they are not there in this order. */
export function matchDistance(query: string, text: string): number | null {
  let position = -1;
  let distance = 0;
  for (const letter of query.toLowerCase().replace(/\s+/g, '')) {
    const next = text.toLowerCase().indexOf(letter, position + 1);
    if (next < 0) return null;
    distance += next - position - 1;
    position = next;
  }
  return distance;
}

function allEntries(): Entry[] {
  const found: Entry[] = [];
  const path = route.peek().path;
  // Navigation comes before actions, so that an early Enter decides nothing.
  for (const [key, to, name] of PAGES) found.push({ label: `Go to ${name}`, hint: `g ${key}`, run: () => navigate(to) });
  if (path.startsWith('/t/')) {
    const id = path.slice(3);
    for (const action of taskTopic(id).get(id)?.actions ?? []) found.push({ label: `${action.label} ${id}`, hint: action.cli, run: () => press(withDrafts(action, id)) });
  }
  for (const item of topic('inbox').all().slice(0, 50)) {
    for (const action of item.actions) found.push({ label: `${action.label} · ${item.id} ${item.subject}`, hint: action.cli, run: () => press(action) });
  }
  for (const row of topic('tasks').all().slice(0, 500)) found.push({ label: `${row.id} ${row.subject}`, hint: `regatta show ${row.id}`, run: () => navigate(`/t/${row.id}`) });
  for (const lane of topic('lanes').all()) {
    found.push({ label: `Agent ${lane.agent} ${STATES[lane.at].word}`, hint: `regatta why ${lane.agent}`, run: () => navigate(`/agents/${lane.agent}`) });
    for (const action of lane.actions) found.push({ label: `${action.label} · ${lane.agent}`, hint: action.cli, run: () => press(action) });
  }
  for (const queue of topic('queue').all()) for (const action of queue.actions) found.push({ label: `${action.label} · ${queue.project}`, hint: action.cli, run: () => press(action) });
  for (const mission of topic('head').get('head')?.missions ?? []) found.push({ label: `Replay ${mission.id} ${mission.title}`, hint: `regatta replay ${mission.id}`, run: () => navigate(`/replay?mission=${mission.id}`) });
  found.push({ label: 'Open the inbox', hint: 'regatta inbox', run: () => navigate('/inbox') });
  found.push({ label: 'Describe work for the team', hint: 'regatta run "…"', run: () => (navigate('/'), setTimeout(() => document.getElementById('composer')?.focus())) });
  found.push({ label: 'Keyboard shortcuts', hint: '?', run: () => (overlay.value = 'help') });
  found.push({ label: 'Switch between light and dark', hint: '', run: theme.toggle });
  found.push({ label: 'Pause or resume updates', hint: '.', run: togglePause });
  found.push({ label: letterKeys.peek() ? 'Turn off single-letter shortcuts' : 'Turn on single-letter shortcuts', hint: '', run: () => setLetterKeys(!letterKeys.peek()) });
  return found;
}

/** Most entries that the list shows. */
const MAX_MATCHES = 12;

/** Returns the entries that match best, best first. */
export function matching(all: Entry[], query: string): Entry[] {
  return all
    .map((entry) => ({ entry, distance: matchDistance(query, `${entry.label} ${entry.hint}`) }))
    .filter((match) => match.distance !== null)
    .sort((a, b) => (a.distance ?? 0) - (b.distance ?? 0))
    .slice(0, MAX_MATCHES)
    .map((match) => match.entry);
}

export function Palette() {
  useFocusRestore();
  useTopics('tasks', 'lanes', 'queue');
  const dialog = useRef<HTMLDialogElement>(null);
  const query = useSignal('');
  const selected = useSignal(0);
  // The list changes only when the query changes, so that Enter runs the entry that the person sees.
  const list = useSignal<Entry[]>([]);
  const search = (text: string) => {
    query.value = text;
    selected.value = 0;
    list.value = matching(untracked(allEntries), text);
  };
  const open = overlay.value === 'palette';
  useLayoutEffect(() => {
    search('');
    if (open && !dialog.current?.open) dialog.current?.showModal();
    if (!open && dialog.current?.open) dialog.current.close();
  }, [open]);
  const found = list.value;
  const runEntry = (index: number) => {
    const chosen = found[index];
    overlay.value = null;
    chosen?.run();
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key === 'ArrowDown') selected.value = Math.min(found.length - 1, selected.peek() + 1);
    else if (event.key === 'ArrowUp') selected.value = Math.max(0, selected.peek() - 1);
    else if (event.key === 'Enter') runEntry(selected.peek());
    else return;
    event.preventDefault();
  };
  return (
    <dialog ref={dialog} class="palette" aria-label="Commands" onClose={() => (overlay.value = null)}>
      <input
        type="text"
        role="combobox"
        aria-expanded="true"
        aria-controls="found"
        aria-activedescendant={found.length > 0 ? `found-${selected.value}` : undefined}
        aria-label="Search commands"
        placeholder="Search commands"
        value={query.value}
        onInput={(event) => search(event.currentTarget.value)}
        onKeyDown={onKey}
        autofocus
      />
      <ul id="found" role="listbox" aria-label="Commands">
        {found.map((entry, index) => (
          <li key={entry.label + entry.hint} id={`found-${index}`} role="option" aria-selected={index === selected.value} onClick={() => runEntry(index)}>
            {plain(entry.label, 90)} <code>{plain(entry.hint, 80)}</code>
          </li>
        ))}
      </ul>
      {found.length === 0 && <p class="empty">No command matches. For all shell commands, run: regatta help</p>}
    </dialog>
  );
}

const HELP: [string, string][] = [
  ['?', 'this help'],
  ['Ctrl-K', 'search all commands'],
  ['/', 'filter'],
  ['j k', 'next and previous'],
  ['Enter', 'open'],
  ['1–9', 'answer the chosen item'],
  ['r', 'reply with your own text'],
  ['z', 'snooze the item for an hour'],
  ['g, then n t q f c a m v e s', 'go to Now, Tasks, Queue, Files, Cost, Agents, Team, Conversations, Events, Setup'],
  ['.', 'pause or resume updates'],
  ['L R X', 'on a task: land, revise or instruct, drop or cancel'],
  ['1–5 v', 'on a task: change, log, checks, why, result; next tab'],
  ['[ ]', 'on a task: previous and next task of the list that you came from'],
  ['n p x', 'on a task: next and previous file, mark it as viewed'],
  ['T', 'on a task: take over in a terminal'],
  ['c J K', 'on a task: comment on the line; select more lines first; Revise sends it'],
  ['u s i', 'on a task: split view, ignore spaces, changes since your last review'],
  ['f w', 'on a task: follow the log, raw log'],
  ['Esc', 'close; it never decides anything'],
];

export function Help() {
  useFocusRestore();
  const dialog = useRef<HTMLDialogElement>(null);
  const open = overlay.value === 'help';
  useLayoutEffect(() => {
    if (open && !dialog.current?.open) dialog.current?.showModal();
    if (!open && dialog.current?.open) dialog.current.close();
  }, [open]);
  return (
    <dialog ref={dialog} class="help" aria-label="Keyboard shortcuts" onClose={() => overlay.peek() === 'help' && (overlay.value = null)}>
      {open && (
        <>
          <h2>Keyboard shortcuts</h2>
          <dl>
            {HELP.map(([onKey, query]) => (
              <div key={onKey}>
                <dt>
                  <kbd>{onKey}</kbd>
                </dt>
                <dd>{query}</dd>
              </div>
            ))}
          </dl>
          <label>
            <input type="checkbox" checked={letterKeys.value} onChange={(event) => setLetterKeys(event.currentTarget.checked)} /> single-letter shortcuts
          </label>
          <button type="button" class="do" onClick={() => (overlay.value = null)}>
            Close <kbd>Esc</kbd>
          </button>
        </>
      )}
    </dialog>
  );
}
