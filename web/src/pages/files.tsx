// The files that are held, waited for or changed today: the conflicts first, then a tree of folders and files.

import { useState } from 'preact/hooks';
import { EmptyState, ShellLine } from '../components';
import { clockTime, plain } from '../format';
import { byName, topic } from '../live/client';
import { queryParam, setQueryParam } from '../route';
import { ActionButton, Glyph, Panel, TaskLink, useTopics } from '../ui';
import type { FileCell, FileConflictView, FileTaskView, FolderCell, PathHolder, ProjectFilesView } from '../api';
import './files.css';

/** Most rows of the tree that are drawn at first, and most that a press of the button adds. */
const ROW_STEP = 300;
const MAX_NAMED_TASKS = 3;
const HEAT_LEVELS = 4;

type TasksById = ReadonlyMap<string, FileTaskView>;

/** Returns when a claim ends, as text: its own end, the end of its task's attempt, or a description. */
export function heldUntil(claim: { until_wall?: number; until?: string }, task?: FileTaskView): string {
  if (claim.until_wall) return `until ${clockTime(claim.until_wall, false)}`;
  if (task?.latest_wall) return `by ${clockTime(task.latest_wall, false)} at the latest`;
  return claim.until ?? '';
}

/** Returns the folders that contain matching files, with only those files. */
export function matchingFolders(folders: FolderCell[], query: string): FolderCell[] {
  if (!query) return folders;
  const isHolder = (holder: PathHolder) => `${holder.agent ?? holder.owner} ${holder.task ?? ''}`.toLowerCase().includes(query);
  const matches = (file: FileCell) =>
    file.path.toLowerCase().includes(query) || file.held.some(isHolder) || file.wanted.some((task) => task.toLowerCase() === query);
  return folders.flatMap((folder) => {
    const files = folder.own.filter(matches);
    return files.length > 0 ? [{ ...folder, own: files, depth: 0 }] : [];
  });
}

/** Returns a level from 0 to 4 for a number of changes. Each level stands for twice as many changes. */
export function heat(hot: number): number {
  return hot === 0 ? 0 : Math.min(HEAT_LEVELS, 1 + Math.floor(Math.log2(hot)));
}

/** Four bars, of which as many are filled as the level says. */
function HeatBars({ level }: { level: number }) {
  return (
    <svg viewBox="0 0 32 12" aria-hidden="true">
      {Array.from({ length: HEAT_LEVELS }, (_, index) => (
        <rect key={index} class={index < level ? 'on' : 'off'} x={index * 8} y={9 - index * 3} width={6} height={3 + index * 3} rx={1} />
      ))}
    </svg>
  );
}

function Heat({ hot }: { hot: number }) {
  if (hot === 0) return <span class="dim">0</span>;
  return (
    <span class="heat">
      {hot}
      <HeatBars level={heat(hot)} />
    </span>
  );
}

/** A task with the glyph of its state and its agent. Its subject is in the title. */
function TaskTag({ id, tasks, agent }: { id: string; tasks: TasksById; agent?: string | null }) {
  const task = tasks.get(id);
  const name = agent ?? task?.agent;
  return (
    <span class="task-tag" title={task ? plain(task.subject, 200) : undefined}>
      {task && <Glyph at={task.at} />} <TaskLink id={id} /> {name && <span class="dim">{plain(name, 40)}</span>}
    </span>
  );
}

/** The first tasks of a list, and the number of the others. */
function TaskTags({ ids, tasks, max = MAX_NAMED_TASKS }: { ids: string[]; tasks: TasksById; max?: number }) {
  const sorted = [...ids].sort(byName);
  return (
    <span class="holders">
      {sorted.slice(0, max).map((id) => (
        <TaskTag key={id} id={id} tasks={tasks} />
      ))}
      {sorted.length > max && (
        <span class="dim" title={sorted.slice(max).join(', ')}>
          and {sorted.length - max} more
        </span>
      )}
    </span>
  );
}

function Conflict({ conflict, tasks }: { conflict: FileConflictView; tasks: TasksById }) {
  const more = conflict.path_count - conflict.paths.length;
  const first = conflict.tasks[0];
  return (
    <li class={`conflict ${conflict.is_merge_conflict ? 'merge' : ''}`} data-row tabIndex={0}>
      <span class={`kind ${conflict.is_merge_conflict ? 'bad' : ''}`}>{conflict.is_merge_conflict ? '✕ conflict' : '⇅ no order'}</span>
      <div>
        <div class="task-tags">
          {conflict.tasks.slice(0, 4).map((id) => (
            <TaskTag key={id} id={id} tasks={tasks} />
          ))}
          {conflict.tasks.length > 4 && <span class="dim">and {conflict.tasks.length - 4} more</span>}
        </div>
        <p>{plain(conflict.text, 300)}</p>
        <p class="advice">{plain(conflict.advice, 300)}</p>
        <div class="paths">
          {conflict.paths.map((path) => (
            <code key={path}>{plain(path, 120)}</code>
          ))}
          {more > 0 && <span class="dim">and {more} more paths</span>}
        </div>
      </div>
      <span class="row">
        {conflict.actions.map((action) => (
          <ActionButton key={action.label} action={action} />
        ))}
        {first && (
          <a class="do" href={`/t/${first}#why`}>
            Why {first}
          </a>
        )}
      </span>
    </li>
  );
}

/** How many files of a folder are held, as a bar with the figure beside it. */
function Coverage({ folder }: { folder: FolderCell }) {
  const held = Math.min(folder.spots, folder.held.reduce((sum, share) => sum + share.spots, 0));
  const share = folder.spots > 0 ? held / folder.spots : 0;
  return (
    <svg class="coverage" viewBox="0 0 90 8" preserveAspectRatio="none" role="img" aria-label={`${held} of ${folder.spots} files held`}>
      <title>
        {held} of {folder.spots} files held
      </title>
      <rect class="free" width={90} height={8} rx={2} />
      <rect class="held" width={90 * share} height={8} rx={2} />
    </svg>
  );
}

function FolderRow({ folder, tasks, open, toggle }: { folder: FolderCell; tasks: TasksById; open: boolean; toggle: () => void }) {
  const name = folder.path === '' ? 'top of the repository' : `${folder.path}/`;
  const holders = folder.held.map((share) => share.task).filter((id): id is string => Boolean(id));
  const others = folder.held.filter((share) => !share.task);
  return (
    <tr class="folder" data-row>
      <td class={`path depth-${Math.min(8, folder.depth)}`}>
        <button type="button" aria-expanded={open} disabled={folder.own.length === 0} onClick={toggle}>
          {folder.own.length === 0 ? '·' : open ? '▾' : '▸'} {plain(name, 120)}
        </button>
      </td>
      <td>
        <Coverage folder={folder} />
      </td>
      <td class={folder.held.length === 0 ? 'nothing' : ''}>
        {folder.held.length === 0 && 'free'}
        <TaskTags ids={[...new Set(holders)]} tasks={tasks} max={2} /> {others.slice(0, 2).map((share) => plain(share.holder, 40)).join(', ')}
      </td>
      <td />
      <td class="nothing">{folder.wanted > 0 ? `${folder.wanted} file${folder.wanted === 1 ? '' : 's'}` : ''}</td>
      <td class="right">
        <Heat hot={folder.hot} />
      </td>
    </tr>
  );
}

function FileRow({ file, depth, tasks }: { file: FileCell; depth: number; tasks: TasksById }) {
  return (
    <tr data-row tabIndex={0}>
      <td class={`path depth-${Math.min(8, depth + 2)}`}>{plain(file.path, 200)}</td>
      <td />
      <td class={file.held.length === 0 ? 'nothing' : ''}>
        {file.held.length === 0 && 'free'}
        {file.held.slice(0, MAX_NAMED_TASKS).map((holder) => (
          <div key={holder.owner}>
            {holder.task ? <TaskTag id={holder.task} tasks={tasks} agent={holder.agent} /> : plain(holder.agent ?? holder.owner, 40)} <span class="dim">{plain(holder.memo, 80)}</span>
          </div>
        ))}
        {file.held.length > MAX_NAMED_TASKS && <span class="dim">and {file.held.length - MAX_NAMED_TASKS} more</span>}
      </td>
      <td>
        {file.held.slice(0, MAX_NAMED_TASKS).map((holder) => (
          <div key={holder.owner} class="until">{heldUntil(holder, holder.task ? tasks.get(holder.task) : undefined)}</div>
        ))}
      </td>
      <td>{file.wanted.length > 0 && <TaskTags ids={file.wanted} tasks={tasks} />}</td>
      <td class="right">
        <Heat hot={file.hot} />
      </td>
    </tr>
  );
}

/** Returns whether a folder is open. Folders with a conflict are open by default; `toggled` lists the others to open, and
 * with `-` the ones to close. */
export function isOpen(folder: FolderCell, toggled: string, query: string): boolean {
  const names = toggled.split(',').filter(Boolean);
  if (names.includes(folder.path || '.')) return true;
  if (names.includes(`-${folder.path || '.'}`)) return false;
  return query !== '' || folder.own.some((file) => file.clash.length > 0);
}

function Legend() {
  return (
    <ul class="legend">
      <li>
        <span class="swatch coverage-held" aria-hidden="true" /> held by a task
      </li>
      <li>
        <span class="swatch coverage-free" aria-hidden="true" /> free
      </li>
      {[1, 2, 4, 8].map((count, index) => (
        <li key={count} class="heat">
          <HeatBars level={index + 1} /> {['1', '2 or 3', '4 to 7', '8 or more changes landed today'][index]}
        </li>
      ))}
    </ul>
  );
}

/** The rows of the open folders. A large tree is drawn in steps. */
function Tree({ folders, tasks, query }: { folders: FolderCell[]; tasks: TasksById; query: string }) {
  const [maxRows, setMaxRows] = useState(ROW_STEP);
  const toggled = queryParam('open');
  const toggle = (folder: FolderCell) => {
    const name = folder.path || '.';
    const others = toggled.split(',').filter((entry) => entry && entry !== name && entry !== `-${name}`);
    setQueryParam('open', [...others, isOpen(folder, toggled, query) ? `-${name}` : name].join(','));
  };
  let rowCount = 0;
  let hidden = 0;
  return (
    <>
      <div class="scroll">
        <table class="list files">
          <thead>
            <tr>
              <th>Folder or file</th>
              <th>Held</th>
              <th>Held by</th>
              <th>Until</th>
              <th>Waiting</th>
              <th class="right">Landed today</th>
            </tr>
          </thead>
          {folders.map((folder) => {
            const open = isOpen(folder, toggled, query);
            const room = Math.max(0, maxRows - rowCount - 1);
            const files = open ? [...folder.own].sort((a, b) => Number(b.clash.length > 0) - Number(a.clash.length > 0) || byName(a.path, b.path)) : [];
            if (rowCount >= maxRows) {
              hidden += 1 + files.length;
              return null;
            }
            rowCount += 1 + Math.min(room, files.length);
            hidden += Math.max(0, files.length - room);
            return (
              <tbody key={folder.path}>
                <FolderRow folder={folder} tasks={tasks} open={open} toggle={() => toggle(folder)} />
                {files.slice(0, room).map((file) => (
                  <FileRow key={file.path} file={file} depth={folder.depth} tasks={tasks} />
                ))}
              </tbody>
            );
          })}
        </table>
      </div>
      {hidden > 0 && (
        <p class="row">
          <button type="button" class="do" onClick={() => setMaxRows(maxRows + ROW_STEP)}>
            Show {Math.min(hidden, ROW_STEP)} more rows
          </button>
          <span class="aside">{hidden} rows are not shown. The filter narrows them down.</span>
        </p>
      )}
    </>
  );
}

/** Describes how reliable the predictions of conflicts were, or nothing before the first prediction. */
export function forecastText({ warned, proved, lapsed }: ProjectFilesView['radar']): string {
  if (warned === 0) return '';
  return `Conflicts of unfinished work that were predicted: ${warned}. Of these, ${proved} came true and ${lapsed} went away.`;
}

function ProjectFiles({ view }: { view: ProjectFilesView }) {
  const query = queryParam('q').toLowerCase();
  const folders = matchingFolders(view.folders, query);
  const tasks: TasksById = new Map((view.tasks ?? []).map((task) => [task.id, task]));
  const conflicts = view.conflicts ?? [];
  const reliability = forecastText(view.radar);
  return (
    <>
      {conflicts.length > 0 && (
        <Panel title={`${conflicts.length} conflict${conflicts.length === 1 ? '' : 's'} in ${view.project}`} aside={<span class="aside">tasks that need the same files, and nothing decides which goes first</span>}>
          <ul class="conflicts">
            {conflicts.map((conflict) => (
              <Conflict key={conflict.tasks.join() + conflict.paths.join()} conflict={conflict} tasks={tasks} />
            ))}
          </ul>
          {reliability && <p class="aside">{reliability}</p>}
        </Panel>
      )}
      <Panel
        class="files-panel"
        title={`Files of ${view.project}`}
        aside={
          <>
            <span class="aside">{view.text}</span>
            <input id="filter" class="files-filter" type="search" aria-label="Filter files, tasks and agents" placeholder="filter  /" value={queryParam('q')} onInput={(event) => setQueryParam('q', event.currentTarget.value)} />
            <ShellLine line="regatta claim list" />
          </>
        }
      >
        {folders.length === 0 && query && <p class="empty">No file that is held, waited for or changed today matches “{plain(query, 60)}”.</p>}
        {folders.length === 0 && !query && (
          <EmptyState title="No file is in use" text="This page shows which task holds which files, who waits for them, and what changed today, so that two agents do not change the same file at once.">
            <a class="do first" href="/tasks">
              Go to the tasks
            </a>
          </EmptyState>
        )}
        {folders.length > 0 && (
          <>
            <Legend />
            <Tree folders={folders} tasks={tasks} query={query} />
          </>
        )}
      </Panel>
    </>
  );
}

export function Files() {
  useTopics('files');
  const views = topic('files').all();
  if (views.length > 0) {
    return (
      <>
        {views.map((view) => (
          <ProjectFiles key={view.project} view={view} />
        ))}
      </>
    );
  }
  return (
    <Panel title="Files">
      {topic('files').known.value ? (
        <EmptyState title="No projects yet" text="This page shows which task holds which files of a project, until when, and who waits for them.">
          <ShellLine line="regatta init" />
        </EmptyState>
      ) : (
        <p class="empty">loading…</p>
      )}
    </Panel>
  );
}
