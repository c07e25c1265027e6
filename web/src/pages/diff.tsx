// The change of a task's finished work. The daemon renders each file when a person opens it or scrolls to it.

import { useSignal } from '@preact/signals';
import { render } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { type Comment, draftsOf, setComment } from '../drafts';
import { plain } from '../format';
import { queryParam, setQueryParam } from '../route';
import { RequestError, fetchText } from '../session';
import { setHtml } from '../trusted';
import { Panel } from '../ui';
import type { DiffFileView, DiffFilesView, TaskPage } from '../api';

/** Returns the line number of a row: the new one, or the old one for a removed line. */
export function rowLine(row: Element): number | null {
  if (row.classList.contains('hunk') || row.classList.contains('draft')) return null;
  const cells = [...row.children].map((cell) => cell.textContent?.trim() ?? '');
  const split = row.closest('.split') !== null;
  const text = (split ? cells[2] || cells[0] : cells[1] || cells[0]) ?? '';
  return /^\d+$/.test(text) ? Number(text) : null;
}

/** Returns the line that a click on a line number selects, or null for a click elsewhere. */
export function clickedLine(target: Element): number | null {
  const cell = target.closest('.diff td');
  const row = cell?.parentElement;
  if (!cell || !row || cell === row.lastElementChild || !/^\d+$/.test(cell.textContent?.trim() ?? '')) return null;
  return rowLine(row);
}

/** The editor of one draft comment, below its line. */
function DraftComment({ task, comment }: { task: string; comment: Comment }) {
  const box = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    if (!comment.text) box.current?.focus({ preventScroll: true });
  }, []);
  return (
    <div class="note">
      <textarea ref={box} rows={2} aria-label={`Comment on ${comment.path} line ${comment.line}`} placeholder="What should be different here?" defaultValue={comment.text} onInput={(event) => setComment(task, comment.path, comment.line, event.currentTarget.value)} onBlur={(event) => !event.currentTarget.value.trim() && setComment(task, comment.path, comment.line, null)} />
      <small>
        draft; Revise sends it{' '}
        <button type="button" class="plain" onClick={() => setComment(task, comment.path, comment.line, null)}>
          delete
        </button>
      </small>
    </div>
  );
}

/** Inserts the editors of draft comments below their lines, and removes those of deleted comments. Editors that exist are
 * kept, because a person may be typing in them. */
export function placeDrafts(box: Element, task: string, comments: Comment[]): void {
  const missing = new Map(comments.map((comment) => [comment.line, comment]));
  for (const row of box.querySelectorAll<HTMLTableRowElement>('tr.draft')) {
    if (missing.has(Number(row.dataset.line))) missing.delete(Number(row.dataset.line));
    else {
      if (row.cells[0]) render(null, row.cells[0]);
      row.remove();
    }
  }
  if (missing.size === 0) return;
  for (const row of box.querySelectorAll('tr')) {
    const comment = missing.get(rowLine(row) ?? -1);
    // If a line was replaced, put the editor below the new line, not below the removed one.
    if (!comment || (row.classList.contains('d') && row.nextElementSibling && [...box.querySelectorAll('tr.i')].some((added) => rowLine(added) === comment.line))) continue;
    missing.delete(comment.line);
    const draftRow = document.createElement('tr');
    draftRow.className = 'draft';
    draftRow.dataset.line = String(comment.line);
    const cell = draftRow.insertCell();
    cell.colSpan = 4;
    row.after(draftRow);
    render(<DraftComment task={task} comment={comment} />, cell);
  }
}

/** One file of the change. Its diff is fetched when it becomes visible or is opened. */
function FileDiff({ task, index, file, query, isViewed, onViewed }: { task: string; index: number; file: DiffFileView; query: string; isViewed: boolean; onViewed(): void }) {
  const box = useRef<HTMLDivElement>(null);
  const details = useRef<HTMLDetailsElement>(null);
  const failed = useSignal('');
  const drawCount = useSignal(0);
  const split = query.includes('split=');
  const comments = draftsOf(task).value.comments.filter((comment) => comment.path === file.path);
  const startComment = (row: Element | null) => {
    const line = row && rowLine(row);
    if (!line) return;
    if (!draftsOf(task).peek().comments.some((comment) => comment.path === file.path && comment.line === line)) setComment(task, file.path, line, '');
    requestAnimationFrame(() => box.current?.querySelector<HTMLElement>(`tr.draft[data-line="${line}"] textarea`)?.focus());
  };
  useEffect(() => {
    const element = details.current;
    if (!element) return;
    let loaded = false;
    const load = async () => {
      if (loaded || !element.open) return;
      loaded = true;
      try {
        const html = await fetchText(`/api/v1/page/diff/${task}/${index}${query}`);
        if (!box.current) return;
        box.current.querySelectorAll<HTMLTableRowElement>('tr.draft').forEach((row) => row.cells[0] && render(null, row.cells[0]));
        setHtml(box.current, html);
        box.current.style.minHeight = '';
        drawCount.value += 1;
      } catch (error) {
        loaded = false;
        failed.value = error instanceof RequestError ? error.problem.message : String(error);
      }
    };
    // Fetch the diff only when the file is near the visible area.
    const observer = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && void load(), { rootMargin: '300px' });
    observer.observe(element);
    element.addEventListener('toggle', load);
    // The `c` key on a line sends this event.
    const onCommentKey = (event: Event) => startComment(event.target as Element);
    element.addEventListener('regatta-comment', onCommentKey);
    return () => {
      observer.disconnect();
      element.removeEventListener('toggle', load);
      element.removeEventListener('regatta-comment', onCommentKey);
    };
  }, [task, index, query]);
  useEffect(() => {
    if (box.current && drawCount.value > 0) placeDrafts(box.current, task, comments);
  }, [drawCount.value, comments.map((comment) => comment.line).join()]);
  return (
    <details ref={details} class="file" open={!file.closed && !isViewed} data-file={index}>
      <summary>
        <b class="mono">{plain(file.path, 300)}</b> {file.was && <span>from {plain(file.was, 300)}</span>} <span class="plus">+{file.added}</span> <span class="minus">−{file.removed}</span> {file.note}
        {file.outside && <b class="bad outside"> outside its manifest</b>}
        {file.closed && <span class="aside"> large or generated, closed</span>}
        {comments.length > 0 && <span class="late"> {comments.length} draft{comments.length === 1 ? '' : 's'}</span>}
      </summary>
      <label class="viewed">
        <input type="checkbox" checked={isViewed} onChange={onViewed} aria-label={`Viewed ${file.path}`} /> viewed
      </label>
      <div ref={box} class="lines" onClick={(event) => clickedLine(event.target as Element) && startComment((event.target as Element).closest('tr'))} style={{ minHeight: `${Math.min(20_000, file.added + file.removed + 3) * 19}px` }} tabIndex={0} role="region" aria-label={`Changes in ${file.path}${split ? ', side by side' : ''}`}>
        {failed.value}
      </div>
    </details>
  );
}

/** Returns the files that a person marked as viewed. Another commit starts with none. */
function viewedPaths(task: string, commit: string): string[] {
  try {
    const stored = JSON.parse(localStorage.getItem(`regatta-viewed-${task}`) ?? '{}') as { commit?: string; paths?: string[] };
    return stored.commit === commit ? (stored.paths ?? []) : [];
  } catch {
    return [];
  }
}

function QueryToggle({ name, value, labelOn, labelOff, letter }: { name: string; value: string; labelOn: string; labelOff: string; letter: string }) {
  const pressed = queryParam(name) === value;
  return (
    <button type="button" class="plain" aria-pressed={pressed} onClick={() => setQueryParam(name, pressed ? null : value)}>
      {pressed ? labelOff : labelOn} <kbd>{letter}</kbd>
    </button>
  );
}

export function Diff({ task }: { task: TaskPage }) {
  const listed = useSignal<DiffFilesView | null>(null);
  const problem = useSignal('');
  const [split, since, spaces] = [queryParam('diff') === 'split', queryParam('since') === 'review', queryParam('spaces') === 'no'];
  const commit = task.submission?.commit ?? '';
  const viewed = useSignal<string[]>(viewedPaths(task.id, commit));
  const params = new URLSearchParams();
  if (since) params.set('since_review', 'true');
  const listQuery = params.size > 0 ? `?${params}` : '';
  if (split) params.set('split', 'true');
  if (spaces) params.set('spaces', 'true');
  const query = params.size > 0 ? `?${params}` : '';
  useEffect(() => {
    listed.value = null;
    problem.value = '';
    viewed.value = viewedPaths(task.id, commit);
    if (!commit) return;
    fetchText(`/api/v1/page/diff/${task.id}${listQuery}`).then(
      (text) => (listed.value = JSON.parse(text) as DiffFilesView),
      (error) => (problem.value = error instanceof RequestError ? `${error.problem.message}. ${error.problem.hint}` : String(error)),
    );
  }, [task.id, commit, listQuery]);
  const toggleViewed = (path: string) => {
    const paths = viewed.peek().includes(path) ? viewed.peek().filter((other) => other !== path) : [...viewed.peek(), path];
    viewed.value = paths;
    localStorage.setItem(`regatta-viewed-${task.id}`, JSON.stringify({ commit, paths }));
  };
  const files = listed.value?.files ?? [];
  const sum = (countOf: (file: DiffFileView) => number) => files.reduce((all, file) => all + countOf(file), 0);
  const outside = files.filter((file) => file.outside).length;
  const aside = commit ? (
    <span class="aside">
      +{sum((file) => file.added)} −{sum((file) => file.removed)} · {since ? 'since your last review' : 'against'} {listed.value?.base.slice(0, 7) ?? ''} ·{' '}
      {outside === 0 ? `all ${files.length} files are in the manifest` : <b class="bad">{outside} outside the manifest</b>} · <QueryToggle name="diff" value="split" labelOn="split" labelOff="unified" letter="u" />{' '}
      <QueryToggle name="spaces" value="no" labelOn="without spaces" labelOff="with spaces" letter="s" /> {task.reviewed && task.reviewed !== commit && <QueryToggle name="since" value="review" labelOn="since my last review" labelOff="the whole change" letter="i" />}{' '}
      <span class="keys">
        <kbd>n</kbd> <kbd>p</kbd> file · <kbd>j</kbd> <kbd>k</kbd> line · <kbd>c</kbd> comment
      </span>
    </span>
  ) : undefined;
  return (
    <Panel class="diffs" title={commit ? `${files.length} file${files.length === 1 ? '' : 's'}` : 'Change'} aside={aside}>
      {problem.value && <p class="error">{problem.value}</p>}
      {!commit && (
        <div class="brief">
          <p class="empty">No finished work yet. {plain(task.progress, 300)}</p>
          {task.description && <pre class="what" tabIndex={0}>{plain(task.description, 4_000)}</pre>}
          <details open={task.files.length <= 12}>
            <summary>{task.files.length === 0 ? 'No manifest: the task may change any file' : `The task may change ${task.files.length} file${task.files.length === 1 ? '' : 's or patterns'}`}</summary>
            <ul class="spans">
              {task.files.slice(0, 300).map((file) => (
                <li key={file}>
                  <code>{plain(file, 200)}</code>
                </li>
              ))}
            </ul>
          </details>
        </div>
      )}
      {files.length > 2 && (
        <details class="filelist" open={files.length <= 12}>
          <summary>
            {viewed.value.filter((path) => files.some((file) => file.path === path)).length} of {files.length} viewed
          </summary>
          <ul class="spans">
            {files.slice(0, 200).map((file, index) => (
              <li key={file.path}>
                <button type="button" class="plain mono" onClick={() => document.querySelector(`[data-file="${index}"]`)?.scrollIntoView({ block: 'start' })}>
                  {viewed.value.includes(file.path) ? '✓ ' : ''}
                  {plain(file.path, 200)}
                </button>{' '}
                <span class="plus">+{file.added}</span> <span class="minus">−{file.removed}</span> {file.outside && <b class="bad">outside</b>}
              </li>
            ))}
          </ul>
        </details>
      )}
      {since && files.length === 0 && listed.value && <p class="empty">No changes since you sent it back.</p>}
      {files.map((file, index) => (
        <FileDiff key={`${file.path}${query}${commit}`} task={task.id} index={index} file={file} query={query} isViewed={viewed.value.includes(file.path)} onViewed={() => toggleViewed(file.path)} />
      ))}
    </Panel>
  );
}
