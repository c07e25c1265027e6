// The comments of a change, below their lines: drafts that Revise sends, and comments that were sent before.

import { signal } from '@preact/signals';
import { render } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { type Comment, draftsOf, placeKey, placeText, putComment, removeComment } from '../drafts';
import { plain } from '../format';
import type { SentCommentView } from '../api';

/** The places whose editors are open, by task and place. */
export const openEditors = signal<ReadonlySet<string>>(new Set());

const editorKey = (task: string, place: string) => `${task} ${place}`;

function setEditorOpen(task: string, place: string, isOpen: boolean): void {
  const next = new Set(openEditors.peek());
  if (isOpen) next.add(editorKey(task, place));
  else next.delete(editorKey(task, place));
  openEditors.value = next;
}

/** Returns the sent comments that a person marked as resolved in this browser. */
const resolvedByTask = signal<Record<string, string[]>>({});

function resolvedOf(task: string): string[] {
  const known = resolvedByTask.value[task];
  if (known) return known;
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(`regatta-resolved-${task}`) ?? '[]');
    return Array.isArray(stored) ? stored.map(String) : [];
  } catch {
    return []; // not a list that this page wrote
  }
}

const sentKey = (comment: SentCommentView) => `${comment.attempt ?? ''} ${placeKey(comment)} ${comment.text}`;

function toggleResolved(task: string, key: string): void {
  const before = resolvedOf(task);
  const after = before.includes(key) ? before.filter((other) => other !== key) : [...before, key];
  resolvedByTask.value = { ...resolvedByTask.peek(), [task]: after };
  localStorage.setItem(`regatta-resolved-${task}`, JSON.stringify(after));
}

/** Starts a comment, or opens the one that is at the same place. */
export function startCommentAt(task: string, place: Omit<Comment, 'text'>): void {
  const key = placeKey(place);
  const existing = draftsOf(task).peek().comments.find((comment) => placeKey(comment) === key);
  setEditorOpen(task, key, true);
  putComment(task, { ...place, text: existing?.text ?? '' });
}

function linesText({ from, line, old }: { from?: number; line: number; old?: boolean }): string {
  const numbers = from !== undefined && from !== line ? `lines ${from} to ${line}` : `line ${line}`;
  return old ? `${numbers} before the change` : numbers;
}

/** A draft comment, with its editor while it is open. */
function DraftComment({ task, place }: { task: string; place: string }) {
  const box = useRef<HTMLTextAreaElement>(null);
  const comment = draftsOf(task).value.comments.find((candidate) => placeKey(candidate) === place);
  const isOpen = openEditors.value.has(editorKey(task, place));
  useEffect(() => {
    if (isOpen) box.current?.focus({ preventScroll: true });
  }, [isOpen]);
  if (!comment) return null;
  /** Closes the editor. The text stays a draft; an empty comment is removed. */
  const close = () => {
    const region = box.current?.closest<HTMLElement>('.lines');
    setEditorOpen(task, place, false);
    // This component may not have been drawn since the last letter.
    const latest = draftsOf(task).peek().comments.find((candidate) => placeKey(candidate) === place);
    if (!latest?.text.trim()) removeComment(task, comment);
    region?.focus({ preventScroll: true });
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== 'Escape' && !(event.key === 'Enter' && (event.ctrlKey || event.metaKey))) return;
    event.preventDefault();
    event.stopPropagation();
    close();
  };
  if (!isOpen) {
    return (
      <div class="remark">
        <p class="remark-head">
          <b>Your comment</b> <span class="badge">draft</span> <span class="dim">{linesText(comment)}</span>
        </p>
        <p class="remark-text">{plain(comment.text, 10_000)}</p>
        <p class="remark-foot">
          <button type="button" class="plain" onClick={() => setEditorOpen(task, place, true)}>
            edit
          </button>
          <button type="button" class="plain" onClick={() => removeComment(task, comment)}>
            delete
          </button>
        </p>
      </div>
    );
  }
  return (
    <div class="remark">
      <textarea ref={box} rows={3} aria-label={`Comment on ${comment.path} ${linesText(comment)}`} placeholder={`What should be different in ${linesText(comment)}?`} value={comment.text} onInput={(event) => putComment(task, { ...comment, text: event.currentTarget.value })} onKeyDown={onKeyDown} />
      <p class="remark-foot">
        <button type="button" class="do first" onClick={close} disabled={!comment.text.trim()}>
          Save <kbd>Ctrl ⏎</kbd>
        </button>
        <button type="button" class="do" onClick={() => (setEditorOpen(task, place, false), removeComment(task, comment))}>
          Delete
        </button>
        <span class="dim">Esc closes and keeps the text. Revise sends all drafts.</span>
      </p>
    </div>
  );
}

/** A comment that was sent, with the answer of the attempt that received it. */
function SentComment({ task, comment }: { task: string; comment: SentCommentView }) {
  const key = sentKey(comment);
  const isResolved = resolvedOf(task).includes(key);
  const receiver = comment.attempt ? `sent to ${comment.attempt}` : 'sent; the next attempt receives it';
  if (isResolved) {
    return (
      <div class="remark quiet">
        <p class="remark-head">
          <span class="dim">✓ resolved: {plain(comment.text, 80)}</span>{' '}
          <button type="button" class="plain" onClick={() => toggleResolved(task, key)}>
            show
          </button>
        </p>
      </div>
    );
  }
  return (
    <div class="remark">
      <p class="remark-head">
        <b>A person</b> <span class="dim">{linesText(comment)} · {receiver}</span>
      </p>
      <p class="remark-text">{plain(comment.text, 10_000)}</p>
      {comment.answer && (
        <div class="remark-answer">
          <p class="remark-head">
            <b>{comment.attempt}</b> <span class="dim">reported at its end</span>
          </p>
          <p class="remark-text">{plain(comment.answer, 1_500)}</p>
        </div>
      )}
      <p class="remark-foot">
        <button type="button" class="plain" onClick={() => toggleResolved(task, key)}>
          resolve
        </button>
      </p>
    </div>
  );
}

/** The place of a table row: its new line, or its old line if the change removed the line. */
export function rowPlace(row: Element | null | undefined): { line: number; old?: boolean } | null {
  const { new: added, old } = (row as HTMLElement | null)?.dataset ?? {};
  if (added) return { line: Number(added) };
  return old ? { line: Number(old), old: true } : null;
}

/** Returns the row of a place in a part of the diff. In the split view, a changed row has both numbers. */
export function rowOfPlace(part: Element, { line, old }: { line: number; old?: boolean }): HTMLTableRowElement | null {
  return part.querySelector<HTMLTableRowElement>(old ? `tr[data-old="${line}"]` : `tr[data-new="${line}"]`);
}

function insertNote(after: Element, className: string, key: string, content: preact.ComponentChild): void {
  const row = document.createElement('tr');
  row.className = className;
  row.dataset.key = key;
  const cell = row.insertCell();
  // A row of the split view has four columns, and a row of the unified view has three.
  cell.colSpan = after.closest('.split') ? 4 : 3;
  after.after(row);
  render(content, cell);
}

/** Removes the notes of a part, before its rows are removed. */
export function removeNotes(part: Element): void {
  for (const row of part.querySelectorAll<HTMLTableRowElement>('tr.draft, tr.sent')) {
    if (row.cells[0]) render(null, row.cells[0]);
    row.remove();
  }
}

/** Inserts the comments of a file below their lines in a part of its diff, and removes those that were deleted. Notes
 * that exist are kept, because a person may be typing in them. */
export function placeNotes(part: Element, task: string, drafts: Comment[], sent: SentCommentView[]): void {
  const missing = new Map(drafts.map((comment) => [placeKey(comment), comment]));
  for (const row of part.querySelectorAll<HTMLTableRowElement>('tr.draft')) {
    if (missing.delete(row.dataset.key ?? '')) continue;
    if (row.cells[0]) render(null, row.cells[0]);
    row.remove();
  }
  for (const comment of sent) {
    const key = sentKey(comment);
    const line = rowOfPlace(part, comment);
    if (line && ![...part.querySelectorAll<HTMLElement>('tr.sent')].some((row) => row.dataset.key === key)) insertNote(line, 'sent', key, <SentComment task={task} comment={comment} />);
  }
  for (const [key, comment] of missing) {
    let line: Element | null = rowOfPlace(part, comment);
    if (!line) continue;
    while (line.nextElementSibling?.classList.contains('sent')) line = line.nextElementSibling;
    insertNote(line, 'draft', key, <DraftComment task={task} place={key} />);
  }
}

/** All drafts of a change as a list, each with a link to its line. */
export function DraftList({ task, onOpen }: { task: string; onOpen: (comment: Comment) => void }) {
  return (
    <ul class="drafts">
      {draftsOf(task).value.comments.filter((comment) => comment.text.trim()).map((comment) => (
        <li key={placeKey(comment)}>
          <button type="button" class="plain mono" onClick={() => onOpen(comment)}>
            {plain(placeText(comment), 120)}
          </button>
          <span>{plain(comment.text, 160)}</span>
        </li>
      ))}
    </ul>
  );
}
