// What a task's finished work changes: files outside the manifest first, each drawn by the daemon when it is looked at.

import { useSignal } from '@preact/signals';
import { render } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { type Comment, comment, draftsOf } from '../drafts';
import { plain } from '../format';
import { get, set } from '../route';
import { Refused, read } from '../session';
import { put } from '../trusted';
import { Panel } from '../ui';
import type { TaskPage } from '../views';

interface FileLine {
  path: string;
  was: string | null;
  note: string;
  added: number;
  removed: number;
  outside: boolean;
  closed: boolean;
}

interface Listed {
  base: string;
  commit: string;
  files: FileLine[];
}

/** The line a row is about: the new one, or the old one where it is gone. */
export function lineOfRow(row: Element): number | null {
  if (row.classList.contains('hunk') || row.classList.contains('draft')) return null;
  const cells = [...row.children].map((it) => it.textContent?.trim() ?? '');
  const split = row.closest('.split') !== null;
  const text = (split ? cells[2] || cells[0] : cells[1] || cells[0]) ?? '';
  return /^\d+$/.test(text) ? Number(text) : null;
}

/** Which line a click on a line's number means. */
export function lineOf(target: Element): number | null {
  const cell = target.closest('.diff td');
  const row = cell?.parentElement;
  if (!cell || !row || cell === row.lastElementChild || !/^\d+$/.test(cell.textContent?.trim() ?? '')) return null;
  return lineOfRow(row);
}

/** One comment under its line. */
function Draft({ task, it }: { task: string; it: Comment }) {
  const box = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    if (!it.text) box.current?.focus({ preventScroll: true });
  }, []);
  return (
    <div class="note">
      <textarea ref={box} rows={2} aria-label={`Comment on ${it.path} line ${it.line}`} placeholder="What should be different here?" defaultValue={it.text} onInput={(event) => comment(task, it.path, it.line, event.currentTarget.value)} onBlur={(event) => !event.currentTarget.value.trim() && comment(task, it.path, it.line, null)} />
      <small>
        draft, goes with Revise{' '}
        <button type="button" class="plain" onClick={() => comment(task, it.path, it.line, null)}>
          take away
        </button>
      </small>
    </div>
  );
}

/** Puts the comments under their lines, and leaves those alone that are there. */
export function place(box: Element, task: string, comments: Comment[]): void {
  const wanted = new Map(comments.map((it) => [it.line, it]));
  for (const row of box.querySelectorAll<HTMLTableRowElement>('tr.draft')) {
    if (wanted.has(Number(row.dataset.line))) wanted.delete(Number(row.dataset.line));
    else {
      if (row.cells[0]) render(null, row.cells[0]);
      row.remove();
    }
  }
  if (wanted.size === 0) return;
  for (const row of box.querySelectorAll('tr')) {
    const it = wanted.get(lineOfRow(row) ?? -1);
    // Of a line that was replaced, the new one is meant.
    if (!it || (row.classList.contains('d') && row.nextElementSibling && [...box.querySelectorAll('tr.i')].some((one) => lineOfRow(one) === it.line))) continue;
    wanted.delete(it.line);
    const made = document.createElement('tr');
    made.className = 'draft';
    made.dataset.line = String(it.line);
    const cell = made.insertCell();
    cell.colSpan = 4;
    row.after(made);
    render(<Draft task={task} it={it} />, cell);
  }
}

/** One file of the change, drawn by the daemon when somebody looks at it. */
function FileDiff({ task, nth, file, how, seen, look }: { task: string; nth: number; file: FileLine; how: string; seen: boolean; look(): void }) {
  const box = useRef<HTMLDivElement>(null);
  const details = useRef<HTMLDetailsElement>(null);
  const failed = useSignal('');
  const drawn = useSignal(0);
  const split = how.includes('split=');
  const comments = draftsOf(task).value.comments.filter((it) => it.path === file.path);
  const begin = (row: Element | null) => {
    const line = row && lineOfRow(row);
    if (!line) return;
    if (!draftsOf(task).peek().comments.some((it) => it.path === file.path && it.line === line)) comment(task, file.path, line, '');
    requestAnimationFrame(() => box.current?.querySelector<HTMLElement>(`tr.draft[data-line="${line}"] textarea`)?.focus());
  };
  useEffect(() => {
    const it = details.current;
    if (!it) return;
    let loaded = false;
    const load = async () => {
      if (loaded || !it.open) return;
      loaded = true;
      try {
        const html = await read(`/api/v1/page/diff/${task}/${nth}${how}`);
        if (!box.current) return;
        box.current.querySelectorAll<HTMLTableRowElement>('tr.draft').forEach((row) => row.cells[0] && render(null, row.cells[0]));
        put(box.current, html);
        box.current.style.minHeight = '';
        drawn.value += 1;
      } catch (error) {
        loaded = false;
        failed.value = error instanceof Refused ? error.problem.message : String(error);
      }
    };
    // Only what is looked at is fetched.
    const watch = new IntersectionObserver((entries) => entries.some((one) => one.isIntersecting) && void load(), { rootMargin: '300px' });
    watch.observe(it);
    it.addEventListener('toggle', load);
    // `c` on the line where the reader is.
    const asked = (event: Event) => begin(event.target as Element);
    it.addEventListener('regatta-comment', asked);
    return () => {
      watch.disconnect();
      it.removeEventListener('toggle', load);
      it.removeEventListener('regatta-comment', asked);
    };
  }, [task, nth, how]);
  useEffect(() => {
    if (box.current && drawn.value > 0) place(box.current, task, comments);
  }, [drawn.value, comments.map((it) => it.line).join()]);
  return (
    <details ref={details} class="file" open={!file.closed && !seen} data-file={nth}>
      <summary>
        <b class="mono">{plain(file.path, 300)}</b> {file.was && <span>from {plain(file.was, 300)}</span>} <span class="plus">+{file.added}</span> <span class="minus">−{file.removed}</span> {file.note}
        {file.outside && <b class="bad outside"> outside its manifest</b>}
        {file.closed && <span class="aside"> large or made by a program: closed</span>}
        {comments.length > 0 && <span class="late"> {comments.length} draft{comments.length === 1 ? '' : 's'}</span>}
      </summary>
      <label class="viewed">
        <input type="checkbox" checked={seen} onChange={look} aria-label={`Viewed ${file.path}`} /> viewed
      </label>
      <div ref={box} class="lines" onClick={(event) => lineOf(event.target as Element) && begin((event.target as Element).closest('tr'))} style={{ minHeight: `${Math.min(20_000, file.added + file.removed + 3) * 19}px` }} tabIndex={0} role="region" aria-label={`Changes in ${file.path}${split ? ', side by side' : ''}`}>
        {failed.value}
      </div>
    </details>
  );
}

/** Which files of a commit were ticked off; another commit begins anew. */
function viewed(task: string, commit: string): string[] {
  try {
    const it = JSON.parse(localStorage.getItem(`regatta-viewed-${task}`) ?? '{}') as { commit?: string; paths?: string[] };
    return it.commit === commit ? (it.paths ?? []) : [];
  } catch {
    return [];
  }
}

function Toggle({ name, value, on, off, letter }: { name: string; value: string; on: string; off: string; letter: string }) {
  const pressed = get(name) === value;
  return (
    <button type="button" class="plain" aria-pressed={pressed} onClick={() => set(name, pressed ? null : value)}>
      {pressed ? off : on} <kbd>{letter}</kbd>
    </button>
  );
}

export function Diff({ it }: { it: TaskPage }) {
  const listed = useSignal<Listed | null>(null);
  const problem = useSignal('');
  const [split, since, spaces] = [get('diff') === 'split', get('since') === 'review', get('spaces') === 'no'];
  const commit = it.submission?.commit ?? '';
  const ticked = useSignal<string[]>(viewed(it.id, commit));
  const asked = new URLSearchParams();
  if (since) asked.set('since_review', 'true');
  const list = asked.size > 0 ? `?${asked}` : '';
  if (split) asked.set('split', 'true');
  if (spaces) asked.set('spaces', 'true');
  const how = asked.size > 0 ? `?${asked}` : '';
  useEffect(() => {
    listed.value = null;
    problem.value = '';
    ticked.value = viewed(it.id, commit);
    if (!commit) return;
    read(`/api/v1/page/diff/${it.id}${list}`).then(
      (text) => (listed.value = JSON.parse(text) as Listed),
      (error) => (problem.value = error instanceof Refused ? `${error.problem.message}. ${error.problem.hint}` : String(error)),
    );
  }, [it.id, commit, list]);
  const look = (path: string) => {
    const paths = ticked.peek().includes(path) ? ticked.peek().filter((one) => one !== path) : [...ticked.peek(), path];
    ticked.value = paths;
    localStorage.setItem(`regatta-viewed-${it.id}`, JSON.stringify({ commit, paths }));
  };
  const files = listed.value?.files ?? [];
  const sum = (of: (file: FileLine) => number) => files.reduce((all, file) => all + of(file), 0);
  const outside = files.filter((file) => file.outside).length;
  const aside = commit ? (
    <span class="aside">
      +{sum((file) => file.added)} −{sum((file) => file.removed)} · {since ? 'since your last review' : 'against'} {listed.value?.base.slice(0, 7) ?? ''} ·{' '}
      {outside === 0 ? `scope clean: ${files.length} of ${files.length} are in the manifest` : <b class="bad">{outside} outside the manifest</b>} · <Toggle name="diff" value="split" on="split" off="unified" letter="u" />{' '}
      <Toggle name="spaces" value="no" on="without spaces" off="with spaces" letter="s" /> {it.reviewed && it.reviewed !== commit && <Toggle name="since" value="review" on="since my last review" off="the whole change" letter="i" />}{' '}
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
          <p class="empty">Nothing is finished yet. {plain(it.progress, 300)}</p>
          {it.description && <pre class="what" tabIndex={0}>{plain(it.description, 4_000)}</pre>}
          <details open={it.files.length <= 12}>
            <summary>{it.files.length === 0 ? 'It names no files: it may touch anything' : `It may touch ${it.files.length} file${it.files.length === 1 ? '' : 's or patterns'}`}</summary>
            <ul class="spans">
              {it.files.slice(0, 300).map((one) => (
                <li key={one}>
                  <code>{plain(one, 200)}</code>
                </li>
              ))}
            </ul>
          </details>
        </div>
      )}
      {files.length > 2 && (
        <details class="filelist" open={files.length <= 12}>
          <summary>
            {ticked.value.filter((path) => files.some((file) => file.path === path)).length} of {files.length} viewed
          </summary>
          <ul class="spans">
            {files.slice(0, 200).map((file, nth) => (
              <li key={file.path}>
                <button type="button" class="plain mono" onClick={() => document.querySelector(`[data-file="${nth}"]`)?.scrollIntoView({ block: 'start' })}>
                  {ticked.value.includes(file.path) ? '✓ ' : ''}
                  {plain(file.path, 200)}
                </button>{' '}
                <span class="plus">+{file.added}</span> <span class="minus">−{file.removed}</span> {file.outside && <b class="bad">outside</b>}
              </li>
            ))}
          </ul>
        </details>
      )}
      {since && files.length === 0 && listed.value && <p class="empty">Nothing changed since you sent it back.</p>}
      {files.map((file, nth) => (
        <FileDiff key={`${file.path}${how}${commit}`} task={it.id} nth={nth} file={file} how={how} seen={ticked.value.includes(file.path)} look={() => look(file.path)} />
      ))}
    </Panel>
  );
}
