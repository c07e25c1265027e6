// The command palette: every page, task, agent and action that applies, found by a few letters, with its shell command.

import './palette.css';
import { untracked, useSignal } from '@preact/signals';
import { Fragment } from 'preact';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { useFocusRestore } from './focus-restore';
import { withDrafts } from './drafts';
import { plain } from './format';
import { letterKeys, setLetterKeys } from './keys';
import { PAGES, overlay, togglePause } from './navigation';
import { taskTopic, topic } from './live/client';
import { missionActions } from './mission-actions';
import { type PaletteEntry, type PaletteKind, bestMatches } from './palette-match';
import { navigate, route } from './route';
import { searchTasks } from './task-search';
import { theme } from './theme';
import { press, useTopics } from './ui';
import { STATES } from './states';
import type { Action } from './action';
import type { TaskRowView } from './api';

const RECENT_STORAGE_KEY = 'regatta-recent';
const MAX_RECENT = 8;
const SEARCH_DELAY_MS = 120;

function recentIds(): string[] {
  try {
    return (JSON.parse(localStorage.getItem(RECENT_STORAGE_KEY) ?? '[]') as unknown[]).map(String);
  } catch {
    return []; // not a list that this page wrote
  }
}

function rememberChoice(id: string): void {
  localStorage.setItem(RECENT_STORAGE_KEY, JSON.stringify([id, ...recentIds().filter((other) => other !== id)].slice(0, MAX_RECENT)));
}

const goTo = (kind: PaletteKind, label: string, hint: string, to: string): PaletteEntry => ({ id: to, kind, label, hint, run: () => navigate(to) });
const actionEntry = (action: Action, subject: string, kind: PaletteKind = 'Actions'): PaletteEntry => ({
  id: action.cli,
  kind,
  label: `${action.label} ${subject}`,
  verb: action.label,
  hint: action.cli,
  run: () => press(action),
});

function taskEntry(row: Pick<TaskRowView, 'id' | 'subject'>): PaletteEntry {
  return goTo('Tasks', `${row.id} ${row.subject}`, `regatta show ${row.id}`, `/t/${row.id}`);
}

function commandEntries(): PaletteEntry[] {
  const found: PaletteEntry[] = [];
  const path = route.peek().path;
  for (const page of PAGES) found.push(goTo('Pages', page.name, `g ${page.key}`, page.to));
  if (path.startsWith('/t/')) {
    const id = path.slice(3);
    for (const action of taskTopic(id).get(id)?.actions ?? []) found.push(actionEntry(withDrafts(action, id), id));
  }
  for (const item of topic('inbox').all().slice(0, 50)) for (const action of item.actions) found.push(actionEntry(action, `· ${item.id} ${item.subject}`));
  for (const lane of topic('lanes').all()) {
    found.push(goTo('Agents', `${lane.agent} · ${STATES[lane.at].word}`, `regatta why ${lane.agent}`, `/agents/${lane.agent}`));
    for (const action of lane.actions) found.push(actionEntry(action, `· ${lane.agent}`, 'Agents'));
  }
  for (const queue of topic('queue').all()) for (const action of queue.actions) found.push(actionEntry(action, `· ${queue.project}`));
  for (const mission of topic('head').get('head')?.missions ?? []) {
    const subject = `${mission.id} ${mission.title}`;
    found.push(goTo('Missions', `Mission ${subject}`, `regatta mission show ${mission.id}`, `/tasks?mission=${mission.id}`));
    found.push(goTo('Missions', `Replay ${subject}`, `regatta replay ${mission.id}`, `/replay?mission=${mission.id}`));
    for (const action of missionActions(mission.id)) found.push(actionEntry(action, subject, 'Missions'));
  }
  const more = (label: string, hint: string, run: () => void) => found.push({ id: label, kind: 'More', label, hint, run });
  more('Describe work for the team', 'regatta run "…"', () => (navigate('/'), setTimeout(() => document.getElementById('composer')?.focus())));
  more('Keyboard shortcuts', '?', () => (overlay.value = 'help'));
  more('Tour of the page', '', () => (overlay.value = 'tour'));
  more('Switch between light and dark', '', theme.toggle);
  more('Pause or resume updates', '.', togglePause);
  more(letterKeys.peek() ? 'Turn off single-letter shortcuts' : 'Turn on single-letter shortcuts', '', () => setLetterKeys(!letterKeys.peek()));
  return found;
}

/** Orders entries by kind, the kind of the best entry first. The best entry stays the first. */
function grouped(entries: PaletteEntry[]): PaletteEntry[] {
  const kinds = [...new Set(entries.map((entry) => entry.kind))];
  return kinds.flatMap((kind) => entries.filter((entry) => entry.kind === kind));
}

export function Palette() {
  useFocusRestore();
  useTopics('lanes', 'queue');
  const dialog = useRef<HTMLDialogElement>(null);
  const query = useSignal('');
  // Without a query nothing is selected, so that a stray Enter decides nothing.
  const selected = useSignal(-1);
  // The list changes only when the query changes, so that Enter runs the entry that the person sees. Tasks that the
  // daemon finds later are appended.
  const list = useSignal<PaletteEntry[]>([]);
  const searching = useRef(0);
  const search = (text: string) => {
    query.value = text;
    selected.value = text.trim() ? 0 : -1;
    list.value = grouped(bestMatches(untracked(commandEntries), text, recentIds()));
    clearTimeout(searching.current);
    if (!text.trim()) return;
    searching.current = window.setTimeout(async () => {
      const tasks = (await searchTasks(text)).map(taskEntry);
      if (query.peek() !== text) return;
      list.value = [...list.peek(), ...tasks.filter((task) => !list.peek().some((entry) => entry.id === task.id))];
    }, SEARCH_DELAY_MS);
  };
  const open = overlay.value === 'palette';
  useLayoutEffect(() => {
    search('');
    if (open && !dialog.current?.open) dialog.current?.showModal();
    if (!open && dialog.current?.open) dialog.current.close();
    return () => clearTimeout(searching.current);
  }, [open]);
  const found = list.value;
  useEffect(() => {
    document.getElementById(`found-${selected.value}`)?.scrollIntoView?.({ block: 'nearest' });
  }, [selected.value]);
  const runEntry = (index: number) => {
    const chosen = found[index];
    if (!chosen) return;
    overlay.value = null;
    rememberChoice(chosen.id);
    chosen.run();
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key === 'ArrowDown') selected.value = Math.min(found.length - 1, selected.peek() + 1);
    else if (event.key === 'ArrowUp') selected.value = Math.max(0, selected.peek() - 1);
    else if (event.key === 'Enter') runEntry(selected.peek());
    else return;
    event.preventDefault();
  };
  return (
    <dialog ref={dialog} class="palette" aria-label="Commands" onClose={() => overlay.peek() === 'palette' && (overlay.value = null)} onClick={(event) => event.target === dialog.current && (overlay.value = null)}>
      <input
        type="text"
        role="combobox"
        aria-expanded="true"
        aria-controls="found"
        aria-activedescendant={found[selected.value] ? `found-${selected.value}` : undefined}
        aria-label="Search commands"
        placeholder="Search pages, tasks, agents and actions"
        autocomplete="off"
        spellcheck={false}
        value={query.value}
        onInput={(event) => search(event.currentTarget.value)}
        onKeyDown={onKey}
        autofocus
      />
      <ul id="found" role="listbox" aria-label="Commands">
        {found.map((entry, index) => (
          <Fragment key={entry.id + entry.label}>
            {entry.kind !== found[index - 1]?.kind && (
              <li class="heading" role="presentation">
                {entry.kind}
              </li>
            )}
            <li id={`found-${index}`} role="option" aria-selected={index === selected.value} onClick={() => runEntry(index)}>
              <span>{plain(entry.label, 120)}</span> <code>{plain(entry.hint, 80)}</code>
            </li>
          </Fragment>
        ))}
      </ul>
      {found.length === 0 && <p class="empty">Nothing matches. For all shell commands, run: regatta help</p>}
      <footer aria-hidden="true">
        <span>
          <kbd>↑</kbd> <kbd>↓</kbd> choose
        </span>
        <span>
          <kbd>Enter</kbd> run
        </span>
        <span>
          <kbd>Esc</kbd> close
        </span>
      </footer>
    </dialog>
  );
}

const HELP: { title: string; keys: [string, string][] }[] = [
  {
    title: 'Everywhere',
    keys: [
      ['Ctrl-K', 'search pages, tasks, agents and actions'],
      ['?', 'this help'],
      ['g …', PAGES.map((page) => `${page.key} ${page.name}`).join(' · ')],
      ['/', 'filter'],
      ['j k', 'next and previous'],
      ['Enter', 'open'],
      ['.', 'pause or resume updates'],
      ['Esc', 'close; it never decides anything'],
    ],
  },
  {
    title: 'In the inbox',
    keys: [
      ['1–9', 'answer the chosen item'],
      ['r', 'reply with your own text'],
      ['z', 'snooze the item for an hour'],
    ],
  },
  {
    title: 'On a task',
    keys: [
      ['L', 'land'],
      ['R', 'revise or instruct'],
      ['X', 'drop or cancel'],
      ['T', 'take over in a terminal'],
      ['1–5 v', 'change, log, checks, why, result; next tab'],
      ['[ ]', 'previous and next task of the list that you came from'],
      ['n p x', 'next and previous file, mark it as viewed'],
      ['c J K', 'comment on the line; select more lines first; Revise sends it'],
      ['u s i', 'split view, ignore spaces, changes since your last review'],
      ['f w x /', 'in the log: follow, raw, next failure, search'],
    ],
  },
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
          <div class="help-groups">
            {HELP.map((group) => (
              <section key={group.title}>
                <h3>{group.title}</h3>
                <dl>
                  {group.keys.map(([onKey, effect]) => (
                    <div key={onKey}>
                      <dt>
                        <kbd>{onKey}</kbd>
                      </dt>
                      <dd>{effect}</dd>
                    </div>
                  ))}
                </dl>
              </section>
            ))}
          </div>
          <footer>
            <label>
              <input type="checkbox" checked={letterKeys.value} onChange={(event) => setLetterKeys(event.currentTarget.checked)} /> single-letter shortcuts
            </label>
            <button type="button" class="do" onClick={() => (overlay.value = 'tour')}>
              Tour of the page
            </button>
            <button type="button" class="do" onClick={() => (overlay.value = null)}>
              Close <kbd>Esc</kbd>
            </button>
          </footer>
        </>
      )}
    </dialog>
  );
}
