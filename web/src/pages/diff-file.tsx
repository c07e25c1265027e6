// One file of a change: its heading, and its diff, which is fetched when the file becomes visible or is opened.

import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { type Comment, draftsOf, placeKey } from '../drafts';
import { plain } from '../format';
import { RequestError } from '../session';
import { reportError } from '../ui';
import type { DiffFileView, SentCommentView } from '../api';
import { placeNotes, removeNotes, rowOfPlace, rowPlace, startCommentAt } from './diff-comments';
import { DiffParts, growGap } from './diff-parts';

/** A row of the diff that shows a line of the file. */
export const LINE_SELECTOR = '.lines tr:not(.hunk, .draft, .sent)';

/** The place where a drag over line numbers began. */
let dragStart: { file: Element; row: HTMLTableRowElement } | null = null;

/** Returns the rows between two rows of the same file, in their order. */
export function rowsBetween(first: Element, last: Element): HTMLElement[] {
  const file = first.closest('.lines');
  if (!file || file !== last.closest('.lines')) return [];
  const rows = [...file.querySelectorAll<HTMLElement>('tr:not(.hunk, .draft, .sent)')];
  const [a, b] = [rows.indexOf(first as HTMLElement), rows.indexOf(last as HTMLElement)].sort((x, y) => x - y);
  return rows.slice(a, (b ?? 0) + 1);
}

/** Returns the place of a comment on the given rows: the last line, and the first one of the same side. */
export function placeOfRows(rows: HTMLElement[]): { line: number; from?: number; old?: boolean } | null {
  const places = rows.map(rowPlace).filter((place) => place !== null);
  const last = places.at(-1);
  if (!last) return null;
  const sameSide = places.filter((place) => place.old === last.old).map((place) => place.line);
  const from = Math.min(...sameSide);
  return from < last.line ? { ...last, from } : last;
}

function markSelected(rows: HTMLElement[]): void {
  for (const row of document.querySelectorAll('.lines tr.sel')) row.classList.remove('sel');
  for (const row of rows) row.classList.add('sel');
}

/** Returns the row whose column of line numbers was pressed, or null for a press elsewhere. */
export function pressedRow(target: Element): HTMLTableRowElement | null {
  const row = target.closest('.diff td.n')?.closest<HTMLTableRowElement>('tr:not(.hunk)') ?? null;
  return rowPlace(row) ? row : null;
}

/** Five squares that show how much of a change is added and removed. */
export function ChangeBar({ added, removed }: { added: number; removed: number }) {
  const total = added + removed;
  const plus = total === 0 ? 0 : Math.max(added > 0 ? 1 : 0, Math.min(removed > 0 ? 4 : 5, Math.round((5 * added) / total)));
  return (
    <span class="bar5" aria-hidden="true">
      {[0, 1, 2, 3, 4].map((index) => (
        <i key={index} class={total === 0 ? '' : index < plus ? 'p' : 'm'} />
      ))}
    </span>
  );
}

function withoutSplit(query: string): string {
  const params = new URLSearchParams(query);
  params.delete('split');
  return params.size > 0 ? `?${params}` : '';
}

interface FileProps {
  task: string;
  index: number;
  file: DiffFileView;
  query: string;
  sent: SentCommentView[];
  isViewed: boolean;
  onViewed(): void;
}

export function FileDiff({ task, index, file, query: wholeQuery, sent, isViewed, onViewed }: FileProps) {
  // A new or deleted file has only one side.
  const query = file.note === 'new' || file.note === 'deleted' ? withoutSplit(wholeQuery) : wholeQuery;
  const box = useRef<HTMLDivElement>(null);
  const details = useRef<HTMLDetailsElement>(null);
  const failed = useSignal('');
  const isSplit = query.includes('split=');
  const drafts = draftsOf(task).value.comments.filter((comment) => comment.path === file.path);
  const notes = useRef<{ drafts: Comment[]; sent: SentCommentView[] }>({ drafts, sent });
  notes.current = { drafts, sent };
  const showNotes = () => {
    for (const part of box.current?.querySelectorAll('.part') ?? []) if (part.childElementCount > 0) placeNotes(part, task, notes.current.drafts, notes.current.sent);
  };
  const startComment = (rows: HTMLElement[]) => {
    const place = placeOfRows(rows);
    if (place) startCommentAt(task, { path: file.path, ...place });
  };
  useEffect(() => {
    const [element, holder] = [details.current, box.current];
    if (!element || !holder) return;
    const parts = new DiffParts({
      box: holder,
      url: `/api/v1/page/diff/${task}/${index}${query}`,
      onShow: (part) => placeNotes(part, task, notes.current.drafts, notes.current.sent),
      onHide: removeNotes,
      onError: (error) => {
        isLoaded = false;
        failed.value = error instanceof RequestError ? error.problem.message : String(error);
      },
    });
    let isLoaded = false;
    // Before the diff is known, its height is estimated, so that the files below are not fetched with it.
    holder.style.minHeight = `${Math.min(1_000, file.added + file.removed) * 20}px`;
    const load = () => {
      if (isLoaded || !element.open) return;
      isLoaded = true;
      failed.value = '';
      void parts.open();
    };
    // Fetch the diff only when the file is near the visible area.
    const observer = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && load(), { rootMargin: '300px' });
    observer.observe(element);
    element.addEventListener('toggle', load);
    const onCommentKey = (event: Event) => startComment([...(box.current?.querySelectorAll<HTMLElement>('tr.sel') ?? []), event.target as HTMLElement]);
    const onReveal = (event: Event) => {
      const place = (event as CustomEvent<Comment>).detail;
      element.open = true;
      load();
      void parts.reveal((part) => rowOfPlace(part, place)).then((row) => row?.scrollIntoView({ block: 'center' }));
    };
    const onPointerDown = (event: PointerEvent) => {
      const row = pressedRow(event.target as Element);
      if (!row || event.button !== 0) return;
      event.preventDefault(); // no text is selected while the pointer moves
      dragStart = { file: holder, row };
      markSelected([row]);
    };
    const onPointerOver = (event: PointerEvent) => {
      const row = (event.target as Element).closest?.<HTMLTableRowElement>('tr');
      if (dragStart?.file === holder && row && rowPlace(row)) markSelected(rowsBetween(dragStart.row, row));
    };
    const onPointerUp = (event: PointerEvent) => {
      if (dragStart?.file !== holder) return;
      const end = (event.target as Element).closest?.<HTMLTableRowElement>('tr');
      const rows = end && rowPlace(end) ? rowsBetween(dragStart.row, end) : [dragStart.row];
      dragStart = null;
      markSelected([]);
      startComment(rows.length > 0 ? rows : []);
    };
    // A touch that becomes a scroll selects nothing.
    const onPointerCancel = () => {
      if (dragStart?.file !== holder) return;
      dragStart = null;
      markSelected([]);
    };
    const onClick = (event: Event) => {
      const button = (event.target as Element).closest<HTMLElement>('button[data-grow]');
      if (button) growGap(button, `/api/v1/page/diff/${task}/${index}/lines${query}`).catch(reportError);
    };
    element.addEventListener('regatta-comment', onCommentKey);
    element.addEventListener('regatta-reveal', onReveal);
    holder.addEventListener('click', onClick);
    holder.addEventListener('pointerdown', onPointerDown);
    holder.addEventListener('pointerover', onPointerOver);
    addEventListener('pointerup', onPointerUp);
    addEventListener('pointercancel', onPointerCancel);
    return () => {
      observer.disconnect();
      parts.close();
      removeEventListener('pointerup', onPointerUp);
      removeEventListener('pointercancel', onPointerCancel);
      holder.removeEventListener('click', onClick);
      holder.removeEventListener('pointerdown', onPointerDown);
      holder.removeEventListener('pointerover', onPointerOver);
      element.removeEventListener('toggle', load);
      element.removeEventListener('regatta-comment', onCommentKey);
      element.removeEventListener('regatta-reveal', onReveal);
    };
  }, [task, index, query]);
  useEffect(showNotes, [drafts.map(placeKey).join(), sent]);
  const draftCount = drafts.filter((comment) => comment.text.trim()).length;
  const [folder, name] = [file.path.slice(0, file.path.lastIndexOf('/') + 1), file.path.slice(file.path.lastIndexOf('/') + 1)];
  return (
    <div class={`file ${file.outside ? 'outside' : ''}`}>
      <div class="viewed-row">
        <label class="viewed">
          <input type="checkbox" checked={isViewed} onChange={onViewed} aria-label={`Viewed ${file.path}`} /> Viewed
        </label>
      </div>
      <details ref={details} open={!file.closed && !isViewed} data-file={index} data-path={file.path}>
        <summary>
          <span class="file-name mono" title={plain(file.path, 1_000)}>
            {file.was && <span class="dim">{plain(file.was, 200)} → </span>}
            <span class="dim">{plain(folder, 300)}</span>
            <b>{plain(name, 300)}</b>
          </span>
          {file.note && <span class="badge">{file.note}</span>}
          {file.outside && <b class="bad">outside its manifest</b>}
          {draftCount > 0 && <b class="late">{draftCount === 1 ? '1 draft' : `${draftCount} drafts`}</b>}
          {file.closed && <span class="aside">large or generated</span>}
          <span class="file-counts">
            <span class="plus">+{file.added}</span> <span class="minus">−{file.removed}</span> <ChangeBar added={file.added} removed={file.removed} />
          </span>
        </summary>
        <div ref={box} class="lines" tabIndex={0} role="region" aria-label={`Changes in ${file.path}${isSplit ? ', side by side' : ''}`} />
        {failed.value && <p class="error">{failed.value}</p>}
        {file.note === 'binary' && <p class="empty">A binary file. It has no lines to show.</p>}
      </details>
    </div>
  );
}
