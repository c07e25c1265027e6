// The files that are claimed, wanted or changed today, as a tree of folders.

import { clockTime, plain } from '../format';
import { topic } from '../live/client';
import { queryParam, setQueryParam } from '../route';
import { Age, Empty, Panel, TaskLink, useTopics } from '../ui';
import type { FileCell, FolderCell, HolderShare, PathHolder } from '../api';
import './files.css';

/** Most folders that are shown, and most files per folder. */
const MAX_FOLDERS = 300;
const MAX_FILES = 60;

/** Returns when a claim ends, as text. */
export function heldUntil(claim: { until_wall?: number; until?: string }): string {
  return claim.until_wall ? `until ${clockTime(claim.until_wall, false)}` : (claim.until ?? '');
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
  return hot === 0 ? 0 : Math.min(4, 1 + Math.floor(Math.log2(hot)));
}

function Heat({ hot }: { hot: number }) {
  return (
    <span class={`heat heat-${heat(hot)}`} title={`${hot} changes landed today`}>
      {hot > 0 ? hot : ''}
      <span class="sr">{hot === 1 ? ' change landed today' : ' changes landed today'}</span>
    </span>
  );
}

/** A bar for a folder: how many of its files each holder has, and how many are only waited for. */
function HoldBar({ folder, scale }: { folder: FolderCell; scale: number }) {
  const heldFiles = folder.held.reduce((sum, share) => sum + share.spots, 0);
  const waited = Math.max(0, Math.min(folder.wanted, folder.spots - heldFiles));
  const widthOf = (count: number) => `${(100 * count) / Math.max(1, scale)}%`;
  return (
    <div class={`hold ${folder.clashes ? 'clash' : ''}`} aria-hidden="true">
      {folder.held.slice(0, 12).map((share, index) => (
        <i key={`${share.holder}${share.task}`} class={`held held-${index % 3}`} style={{ width: widthOf(share.spots) }} title={`${share.holder} ${share.task ?? ''} ${heldUntil(share)}`} />
      ))}
      {waited > 0 && <i class="waits" style={{ width: widthOf(waited) }} title={`${waited} files waited for`} />}
    </div>
  );
}

function Holder({ share }: { share: HolderShare }) {
  return (
    <span class="holder">
      {share.task ? <TaskLink id={share.task} /> : null}
      {plain(share.holder, 40)} <span class="dim">{heldUntil(share)}</span>
    </span>
  );
}

/** Tasks that want the same file without an order between them, with links to the reasons. */
function Collision({ tasks }: { tasks: string[] }) {
  if (tasks.length === 0) return null;
  return (
    <span class="meet" title={`${tasks.join(' and ')} want it, but no dependency orders them`}>
      <b class="bad">✕ </b>
      {tasks.slice(0, 6).map((id, index) => (
        <span key={id}>
          {index > 0 && ' and '}
          <a class="id" href={`/t/${id}#why`} title={`regatta why ${id}`}>
            {id}
          </a>
        </span>
      ))}
      {tasks.length > 6 && ` and ${tasks.length - 6} more`}
    </span>
  );
}

function FileRow({ file, depth }: { file: FileCell; depth: number }) {
  return (
    <tr class={`spot ${file.clash.length > 0 ? 'clash' : ''}`} data-row tabIndex={0}>
      <td class="mono" style={{ paddingLeft: `${28 + 14 * Math.min(8, depth)}px` }}>
        {plain(file.path, 200)}
      </td>
      <td>
        {file.held.map((holder) => (
          <span key={holder.owner} class="holder">
            {holder.task && <TaskLink id={holder.task} />}
            {plain(holder.agent ?? holder.owner, 40)} <span class="dim">{heldUntil(holder)}</span> <Age since={holder.since_wall} /> {plain(holder.memo, 80)}
          </span>
        ))}
        {file.wanted.length > 0 && (
          <span class="holder dim">
            wanted by{' '}
            {file.wanted.slice(0, 6).map((task) => (
              <TaskLink key={task} id={task} />
            ))}
            {file.wanted.length > 6 && `and ${file.wanted.length - 6} more`}
          </span>
        )}
      </td>
      <td>
        <Collision tasks={file.clash} />
      </td>
      <td class="right">
        <Heat hot={file.hot} />
      </td>
    </tr>
  );
}

function FolderRows({ folder, scale, open, toggle }: { folder: FolderCell; scale: number; open: boolean; toggle: () => void }) {
  const name = folder.path === '' ? 'top of the repository' : `${folder.path}/`;
  return (
    <tbody>
      <tr class={`folder ${folder.clashes ? 'clash' : ''}`} data-row>
        <td style={{ paddingLeft: `${8 + 14 * Math.min(8, folder.depth)}px` }}>
          <button type="button" class="plain mono" aria-expanded={open} disabled={folder.own.length === 0} onClick={toggle}>
            {folder.own.length === 0 ? '·' : open ? '▾' : '▸'} {plain(name, 120)}
          </button>
          <HoldBar folder={folder} scale={scale} />
        </td>
        <td>
          {folder.held.slice(0, 3).map((share) => (
            <Holder key={`${share.holder}${share.task}`} share={share} />
          ))}
          {folder.held.length > 3 && <span class="holder dim">and {folder.held.length - 3} more</span>}
          {folder.wanted > 0 && <span class="holder dim">{folder.wanted} wanted</span>}
          {folder.held.length === 0 && folder.wanted === 0 && <span class="dim">free</span>}
        </td>
        <td>
          <Collision tasks={folder.clash} />
        </td>
        <td class="right">
          <Heat hot={folder.hot} />
        </td>
      </tr>
      {open && folder.own.slice(0, MAX_FILES).map((file) => <FileRow key={file.path} file={file} depth={folder.depth} />)}
      {open && folder.own.length > MAX_FILES && (
        <tr>
          <td colSpan={4} class="dim">
            and {folder.own.length - MAX_FILES} more
          </td>
        </tr>
      )}
    </tbody>
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

export function Files() {
  useTopics('files');
  const views = topic('files').all();
  const query = queryParam('q').toLowerCase();
  const toggled = queryParam('open');
  if (views.length === 0) {
    return (
      <Panel title="Files">
        <Empty known={topic('files').known.value}>No projects yet. Add one with regatta init.</Empty>
      </Panel>
    );
  }
  const toggle = (folder: FolderCell) => {
    const name = folder.path || '.';
    const others = toggled.split(',').filter((entry) => entry && entry !== name && entry !== `-${name}`);
    setQueryParam('open', [...others, isOpen(folder, toggled, query) ? `-${name}` : name].join(','));
  };
  return (
    <>
      {views.map((view) => {
        const folders = matchingFolders(view.folders, query);
        const top = Math.max(1, ...view.folders.map((folder) => folder.spots));
        return (
          <Panel
            key={view.project}
            title={`Files of ${view.project}`}
            aside={
              <span class="filters">
                <span class="aside">{view.text}</span>
                <input id="filter" type="search" aria-label="Filter" placeholder="filter  /" value={queryParam('q')} onInput={(event) => setQueryParam('q', event.currentTarget.value)} />
                <code class="aside">regatta claim list</code>
                <ul class="legend">
                  <li>
                    <i class="key-held held-0" aria-hidden="true" /> held
                  </li>
                  <li>
                    <i class="key-held waits" aria-hidden="true" /> waited for
                  </li>
                  <li>
                    <b class="bad">✕</b> conflict
                  </li>
                  <li>
                    <i class="heat heat-3" aria-hidden="true" /> changes landed today
                  </li>
                </ul>
              </span>
            }
          >
            {view.radar.collisions.length > 0 && (
              <section class="radar">
                <h3>Expected conflicts</h3>
                <ul class="spans">
                  {view.radar.collisions.map((collision) => (
                    <li key={`${collision.one}${collision.other}`} class="bad">
                      ✕ <TaskLink id={collision.one} /> and {collision.other ? <TaskLink id={collision.other} /> : 'the trunk'} in <code>{collision.paths.map((path) => plain(path, 120)).join(' ')}</code> <Age since={collision.since_wall} />
                    </li>
                  ))}
                </ul>
              </section>
            )}
            {folders.length === 0 ? (
              <p class="empty">{query ? 'No matching file is held, wanted or changed today.' : 'No file is held, wanted or changed today.'}</p>
            ) : (
              <div class="scroll">
                <table class="list files">
                  <thead>
                    <tr>
                      <th>Folder</th>
                      <th>Held by, until</th>
                      <th>Conflict</th>
                      <th class="right">Changes today</th>
                    </tr>
                  </thead>
                  {folders.slice(0, MAX_FOLDERS).map((folder) => (
                    <FolderRows key={folder.path} folder={folder} scale={top} open={isOpen(folder, toggled, query)} toggle={() => toggle(folder)} />
                  ))}
                </table>
                {folders.length > MAX_FOLDERS && <p class="empty">and {folders.length - MAX_FOLDERS} more folders. Use the filter to narrow them down.</p>}
              </div>
            )}
            <p class="aside">
              Conflicts predicted: {view.radar.warned}. Came true: {view.radar.proved}. Did not happen: {view.radar.lapsed}.
            </p>
          </Panel>
        );
      })}
    </>
  );
}
