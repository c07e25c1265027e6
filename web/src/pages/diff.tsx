// The change of a task's finished work: the tree of its files, and the diff of each.

import './diff.css';
import { useSignal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import type { Comment } from '../drafts';
import { plain } from '../format';
import { queryParam, setQueryParam } from '../route';
import { markChangeSeen } from '../seen-changes';
import { RequestError, fetchText } from '../session';
import type { DiffFileView, DiffFilesView, SentCommentView, TaskPage } from '../api';
import { FileDiff } from './diff-file';
import { FileTree } from './file-tree';

/** Width of a window, in pixels, up to which the tree of files is folded at first. */
const NARROW_PX = 800;
const NO_COMMENTS: SentCommentView[] = [];

function commentsByPath(comments: SentCommentView[]): Map<string, SentCommentView[]> {
  const found = new Map<string, SentCommentView[]>();
  for (const comment of comments) found.set(comment.path, [...(found.get(comment.path) ?? []), comment]);
  return found;
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

function QueryToggle({ name, value, label, letter }: { name: string; value: string; label: string; letter: string }) {
  const pressed = queryParam(name) === value;
  return (
    <button type="button" class="chip" aria-pressed={pressed} onClick={() => setQueryParam(name, pressed ? null : value)}>
      {label} <kbd>{letter}</kbd>
    </button>
  );
}

/** Opens a file of the change and scrolls to it. */
export function openFile(index: number): void {
  const file = document.querySelector<HTMLDetailsElement>(`[data-file="${index}"]`);
  if (!file) return;
  file.open = true;
  file.scrollIntoView({ block: 'start' });
  file.querySelector('summary')?.focus({ preventScroll: true });
}

/** Scrolls to the line of a comment, also if the line is not in the document yet. */
export function openComment(comment: Comment): void {
  const files = [...document.querySelectorAll<HTMLElement>('[data-file]')];
  files.find((file) => file.dataset.path === comment.path)?.dispatchEvent(new CustomEvent('regatta-reveal', { detail: comment }));
}

/** Returns the position of the file at the top of the visible area. */
function topFile(): number {
  const files = [...document.querySelectorAll<HTMLElement>('[data-file]')];
  const below = files.findIndex((file) => file.getBoundingClientRect().bottom > 140);
  return below < 0 ? files.length - 1 : below;
}

/** What a task without finished work will change. */
function PlannedFiles({ task }: { task: TaskPage }) {
  return (
    <div class="planned">
      <p class="empty">There is no finished work yet. {plain(task.progress, 300)}</p>
      <h2>{task.files.length === 0 ? 'The task may change any file.' : `The task may change ${task.files.length} file${task.files.length === 1 ? '' : 's or patterns'}:`}</h2>
      <ul class="spans">
        {task.files.slice(0, 300).map((file) => (
          <li key={file}>
            <code>{plain(file, 200)}</code>
          </li>
        ))}
      </ul>
    </div>
  );
}

export function Diff({ task }: { task: TaskPage }) {
  const listed = useSignal<DiffFilesView | null>(null);
  const problem = useSignal('');
  const current = useSignal(0);
  const [split, since, spaces] = [queryParam('diff') === 'split', queryParam('since') === 'review', queryParam('spaces') === 'no'];
  const commit = task.submission?.commit ?? '';
  const viewed = useSignal<string[]>(viewedPaths(task.id, commit));
  const panel = useRef<HTMLElement>(null);
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
    let isCurrent = true;
    fetchText(`/api/v1/page/diff/${task.id}${listQuery}`).then(
      (text) => {
        if (!isCurrent) return;
        listed.value = JSON.parse(text) as DiffFilesView;
        markChangeSeen(task.id, commit);
      },
      (error) => {
        if (isCurrent) problem.value = error instanceof RequestError ? `${error.problem.message}. ${error.problem.hint}` : String(error);
      },
    );
    return () => {
      isCurrent = false;
    };
  }, [task.id, commit, listQuery]);
  useEffect(() => {
    let isQueued = false;
    const onScroll = () => {
      if (isQueued) return;
      isQueued = true;
      requestAnimationFrame(() => {
        isQueued = false;
        current.value = topFile();
      });
    };
    addEventListener('scroll', onScroll, { passive: true });
    return () => removeEventListener('scroll', onScroll);
  }, []);
  const toggleViewed = (path: string) => {
    const paths = viewed.peek().includes(path) ? viewed.peek().filter((other) => other !== path) : [...viewed.peek(), path];
    viewed.value = paths;
    localStorage.setItem(`regatta-viewed-${task.id}`, JSON.stringify({ commit, paths }));
  };
  const files = listed.value?.files ?? [];
  const comments = useMemo(() => commentsByPath(listed.value?.comments ?? []), [listed.value]);
  const sum = (countOf: (file: DiffFileView) => number) => files.reduce((all, file) => all + countOf(file), 0);
  const outside = files.filter((file) => file.outside).length;
  if (!commit) return <PlannedFiles task={task} />;
  return (
    <section class={`change ${files.length > 1 ? 'with-tree' : ''}`} ref={panel} aria-label="Change">
      <header class="change-head">
        <h2>
          {files.length} file{files.length === 1 ? '' : 's'}
        </h2>
        <span>
          <span class="plus">+{sum((file) => file.added)}</span> <span class="minus">−{sum((file) => file.removed)}</span>
        </span>
        <span class="dim">
          {since ? 'since your last review' : 'against'} <code>{listed.value?.base.slice(0, 7) ?? ''}</code>
        </span>
        {outside === 0 ? listed.value && <span class="good">✓ only files of its manifest</span> : <b class="bad">✕ {outside} outside the manifest</b>}
        <span class="change-tools">
          <QueryToggle name="diff" value="split" label="Split" letter="u" />
          <QueryToggle name="spaces" value="no" label="Ignore spaces" letter="s" />
          {task.reviewed && task.reviewed !== commit && <QueryToggle name="since" value="review" label="Since my review" letter="i" />}
        </span>
      </header>
      {problem.value && <p class="error">{problem.value}</p>}
      {!listed.value && !problem.value && <p class="empty">loading…</p>}
      {since && files.length === 0 && listed.value && <p class="empty">No changes since you sent it back.</p>}
      {!since && files.length === 0 && listed.value && <p class="empty">The work changes no file.</p>}
      <div class="change-body">
        {files.length > 1 && (
          <div class="change-tree">
            <details open={innerWidth > NARROW_PX}>
              <summary class="tree-fold">Files of the change</summary>
              <FileTree task={task.id} files={files} viewed={viewed.value} current={current} onOpen={openFile} />
            </details>
          </div>
        )}
        <div class="change-files">
          {files.map((file, index) => (
            <FileDiff key={`${file.path}${query}${commit}`} task={task.id} index={index} file={file} query={query} sent={comments.get(file.path) ?? NO_COMMENTS} isViewed={viewed.value.includes(file.path)} onViewed={() => toggleViewed(file.path)} />
          ))}
        </div>
      </div>
    </section>
  );
}
