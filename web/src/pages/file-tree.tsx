// The files of a change as a tree, beside the diff.

import { type Signal, useSignal } from '@preact/signals';
import { draftsOf } from '../drafts';
import { plain } from '../format';
import type { DiffFileView } from '../api';
import { ChangeBar } from './diff-file';

export interface ListedFile {
  file: DiffFileView;
  /** The position of the file in the change. */
  index: number;
}

export interface Folder {
  name: string;
  folders: Folder[];
  files: ListedFile[];
}

/** Builds the tree of folders. A folder whose only content is another folder is joined with it. */
export function folderTree(files: ListedFile[]): Folder {
  const root: Folder = { name: '', folders: [], files: [] };
  for (const listed of files) {
    let at = root;
    for (const name of listed.file.path.split('/').slice(0, -1)) {
      let next = at.folders.find((folder) => folder.name === name);
      if (!next) at.folders.push((next = { name, folders: [], files: [] }));
      at = next;
    }
    at.files.push(listed);
  }
  const join = (folder: Folder): Folder => {
    const folders = folder.folders.map(join);
    const only = folders.length === 1 && folder.files.length === 0 && folder.name !== '' ? folders[0] : undefined;
    return only ? { ...only, name: `${folder.name}/${only.name}` } : { ...folder, folders };
  };
  return join(root);
}

/** Returns how the change treats a file, as one letter and as a word. */
function fileChange(file: DiffFileView): { letter: string; word: string } {
  if (file.was) return { letter: 'R', word: 'renamed' };
  if (file.note === 'new') return { letter: 'A', word: 'added' };
  if (file.note === 'deleted') return { letter: 'D', word: 'deleted' };
  return { letter: 'M', word: 'modified' };
}

interface TreeProps {
  task: string;
  files: DiffFileView[];
  viewed: string[];
  /** The position of the file at the top of the visible area. */
  current: Signal<number>;
  onOpen(index: number): void;
}

function FileRow({ task, listed, viewed, current, onOpen, path }: Omit<TreeProps, 'files'> & { listed: ListedFile; path?: boolean }) {
  const { file, index } = listed;
  const change = fileChange(file);
  const drafts = draftsOf(task).value.comments.filter((comment) => comment.path === file.path && comment.text.trim()).length;
  const isViewed = viewed.includes(file.path);
  return (
    <li>
      <button type="button" class={`tree-file ${isViewed ? 'seen' : ''}`} aria-current={current.value === index ? 'true' : undefined} title={plain(file.path, 1_000)} onClick={() => onOpen(index)}>
        <i class={`letter ${change.letter}`} title={change.word}>
          {isViewed ? '✓' : change.letter}
          <span class="sr"> {isViewed ? 'viewed' : change.word}</span>
        </i>
        <span class="tree-name">{plain(path ? file.path : file.path.slice(file.path.lastIndexOf('/') + 1), 200)}</span>
        {drafts > 0 && <b class="late" title={`${drafts} drafts`}>✎{drafts}</b>}
        <span class="file-counts">
          <span class="plus">+{file.added}</span> <span class="minus">−{file.removed}</span> <ChangeBar added={file.added} removed={file.removed} />
        </span>
      </button>
    </li>
  );
}

function FolderRows({ folder, ...props }: Omit<TreeProps, 'files'> & { folder: Folder }) {
  const rows = (
    <>
      {folder.folders.map((child) => (
        <FolderRows key={child.name} folder={child} {...props} />
      ))}
      {folder.files.map((listed) => (
        <FileRow key={listed.file.path} listed={listed} {...props} />
      ))}
    </>
  );
  if (folder.name === '') return <ul class="tree">{rows}</ul>;
  return (
    <li>
      <details open>
        <summary title={plain(folder.name, 500)}>{plain(folder.name, 200)}</summary>
        <ul>{rows}</ul>
      </details>
    </li>
  );
}

/** The tree of changed files, with a filter. Files outside the manifest come first. */
export function FileTree(props: TreeProps) {
  const filter = useSignal('');
  const needle = filter.value.toLowerCase();
  const listed = props.files.map((file, index) => ({ file, index })).filter(({ file }) => file.path.toLowerCase().includes(needle));
  const outside = listed.filter(({ file }) => file.outside);
  const seen = props.files.filter((file) => props.viewed.includes(file.path)).length;
  return (
    <div class="file-tree">
      <div class="tree-head">
        <input type="search" aria-label="Filter the files of the change" placeholder="Filter files" value={filter.value} onInput={(event) => (filter.value = event.currentTarget.value)} />
        <span class="tree-progress">
          <progress max={Math.max(1, props.files.length)} value={seen} aria-label="Viewed files" /> {seen} of {props.files.length} viewed
        </span>
      </div>
      {outside.length > 0 && (
        <>
          <p class="tree-title bad">
            {outside.length} outside the manifest
          </p>
          <ul class="tree">
            {outside.map((entry) => (
              <FileRow key={entry.file.path} listed={entry} path {...props} />
            ))}
          </ul>
        </>
      )}
      {outside.length > 0 && outside.length < listed.length && <p class="tree-title dim">in the manifest</p>}
      <FolderRows folder={folderTree(listed.filter(({ file }) => !file.outside))} {...props} />
      {listed.length === 0 && <p class="empty">No file matches.</p>}
    </div>
  );
}
