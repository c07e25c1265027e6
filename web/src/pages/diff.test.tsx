import { signal } from '@preact/signals';
import { render } from 'preact';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { draftsOf, followUpAction, putComment, removeComment, saveDrafts, withDrafts } from '../drafts';
import { rememberTaskList } from '../route';
import { neighbours } from '../task-list';
import type { DiffFileView, SentCommentView, TaskPage } from '../api';
import { Diff } from './diff';
import { openEditors, placeNotes, rowPlace, startCommentAt } from './diff-comments';
import { placeOfRows, pressedRow, rowsBetween } from './diff-file';
import { DiffParts, growGap } from './diff-parts';
import { FileTree, folderTree } from './file-tree';
import { defaultTab } from './task';
import { checkDuration } from './task-tabs';

vi.mock('../live/worker?sharedworker&url', () => ({ default: '/assets/worker.js' }));

beforeEach(() => localStorage.clear());
afterEach(() => vi.unstubAllGlobals());

async function until(holds: () => boolean): Promise<void> {
  for (let index = 0; index < 3_000 && !holds(); index += 1) await new Promise((done) => setTimeout(done, 10));
  expect(holds()).toBe(true);
}

const row = (attributes: string, old: string, added: string) => `<tr ${attributes}><td class="n">${old}</td><td class="n">${added}</td><td class="l">7</td></tr>`;
const ROWS = `<table class="diff"><tr class="hunk" data-from="1" data-to="41" data-shift="0"><td class="grow"><button data-grow="up">↑</button></td><td>@@</td></tr>${row('class="d" data-old="42"', '42', '')}${row('class="i" data-new="42"', '', '42')}${row('data-old="43" data-new="43"', '43', '43')}</table>`;

function part(): HTMLElement {
  const box = document.createElement('div');
  box.className = 'lines';
  box.innerHTML = `<div class="part" data-part="0">${ROWS}</div>`;
  document.body.append(box);
  return box;
}

describe('lines of a change', () => {
  it('a press on a line number selects its line, and a drag selects several', () => {
    const box = part();
    const cells = [...box.querySelectorAll('td')];
    expect(cells.map((cell) => rowPlace(pressedRow(cell)))).toEqual([null, null, { line: 42, old: true }, { line: 42, old: true }, null, { line: 42 }, { line: 42 }, null, { line: 43 }, { line: 43 }, null]);
    const rows = [...box.querySelectorAll('tr:not(.hunk)')];
    expect(placeOfRows(rowsBetween(rows[2]!, rows[1]!))).toEqual({ line: 43, from: 42 });
    expect(placeOfRows([rows[0] as HTMLElement])).toEqual({ line: 42, old: true });
    box.remove();
  });

  it('comments appear below their lines, are edited there, and stay when the editor is closed', async () => {
    const box = part();
    const first = box.querySelector('.part')!;
    const sent: SentCommentView[] = [{ path: 'a.rs', from: 43, line: 43, old: false, text: '<b>why?', attempt: 'A7', answer: 'because' }];
    const draw = () => placeNotes(first, 'T2', draftsOf('T2').peek().comments, sent);
    startCommentAt('T2', { path: 'a.rs', line: 42 });
    draw();
    draw();
    expect([...first.querySelectorAll('tr')].map((row) => row.className)).toEqual(['hunk', 'd', 'i', 'draft', '', 'sent']);
    expect(first.querySelector('.sent')?.textContent).toContain('<b>why?');
    expect(first.querySelector('.sent')?.textContent).toContain('because');
    const editor = first.querySelector('textarea')!;
    editor.value = 'use `verify`';
    editor.dispatchEvent(new Event('input', { bubbles: true }));
    expect(JSON.parse(localStorage.getItem('regatta-drafts-T2') ?? '{}').comments).toEqual([{ path: 'a.rs', line: 42, text: 'use `verify`' }]);
    editor.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true }));
    await until(() => first.querySelector('textarea') === null);
    expect(first.querySelector('.draft')?.textContent).toContain('use `verify`');
    expect(openEditors.value.size).toBe(0);
    ([...first.querySelectorAll('.sent button')].find((button) => button.textContent?.includes('resolve')) as HTMLButtonElement).click();
    await until(() => first.querySelector('.sent')?.textContent?.includes('✓ resolved') ?? false);
    removeComment('T2', { path: 'a.rs', line: 42 });
    draw();
    expect(first.querySelectorAll('.draft').length).toBe(0);
    box.remove();
  });

  it('Revise and Tell send the comments with their places, and a task that has ended gets a new task', () => {
    putComment('T3', { path: 'b.rs', line: 3, from: 1, text: 'shorter' });
    putComment('T3', { path: 'a.rs', line: 44, old: true, text: "use `verify`, it's there" });
    putComment('T3', { path: 'b.rs', line: 9, text: '  ' });
    const revise = { label: 'Revise…', verb: 'revise', input: { id: 'T3', text: '' }, cli: 'regatta revise T3 …', words: '/text', first: false, grave: false };
    const action = withDrafts(revise, 'T3');
    expect([action.label, action.words]).toEqual(['Revise with 2 comments', undefined]);
    expect(action.input).toEqual({ id: 'T3', text: "a.rs:44 (before): use `verify`, it's there\nb.rs:1-3: shorter" });
    expect(action.cli).toBe("regatta revise T3 --comment 'a.rs:44 (before): use `verify`, it'\\''s there' --comment 'b.rs:1-3: shorter'");
    expect(withDrafts({ ...revise, verb: 'tell' }, 'T3').label).toBe('Tell with 2 comments');
    expect(withDrafts({ ...revise, verb: 'land' }, 'T3').label).toBe('Revise…');
    const followUp = followUpAction('T3', 'Add login', 'shop');
    expect(followUp.input).toMatchObject({ subject: 'Follow up on T3: Add login', project: 'shop', backlog: true });
    expect(String(followUp.input.description)).toContain('b.rs:1-3: shorter');
    action.after?.(null);
    expect(withDrafts(revise, 'T3')).toBe(revise);
    expect(localStorage.getItem('regatta-drafts-T3')).toBeNull();
  });

  it('lines that the diff leaves out are inserted step by step', async () => {
    const requests: string[] = [];
    vi.stubGlobal('fetch', async (url: string) => {
      requests.push(url);
      const query = new URLSearchParams(url.split('?')[1]);
      const lines = Array.from({ length: Number(query.get('to')) - Number(query.get('from')) + 1 }, (_, index) => row(`data-new="${Number(query.get('from')) + index}"`, '', 'x'));
      return new Response(`<table>${lines.join('')}</table>`);
    });
    const box = part();
    const button = box.querySelector<HTMLElement>('button')!;
    await growGap(button, '/lines?split=true');
    expect(requests).toEqual(['/lines?split=true&from=22&to=41&shift=0']);
    expect(box.querySelectorAll('tr').length).toBe(24);
    expect(box.querySelector<HTMLElement>('.hunk')?.dataset.to).toBe('21');
    await growGap(button, '/lines');
    await growGap(button, '/lines');
    expect(requests.slice(1)).toEqual(['/lines?from=2&to=21&shift=0', '/lines?from=1&to=1&shift=0']);
    expect([box.querySelector('.hunk'), box.querySelectorAll('tr').length]).toEqual([null, 44]);
    box.remove();
  });

  it('only the parts near the visible area of a long file are in the document', async () => {
    const requests: string[] = [];
    vi.stubGlobal('fetch', async (url: string) => {
      requests.push(url);
      const first = Number(new URLSearchParams(url.split('?')[1]).get('part'));
      return new Response(JSON.stringify({ rows: 10_000, rows_per_part: 50, first, html: [0, 1, 2, 3].map((index) => `<table><tr data-new="${first + index}"><td>${first + index}</td></tr></table>`) }));
    });
    let move: (entries: { target: Element; isIntersecting: boolean }[]) => void = () => {};
    vi.stubGlobal('IntersectionObserver', class {
      constructor(callback: typeof move) {
        move = callback;
      }
      observe() {}
      disconnect() {}
    });
    const box = document.createElement('div');
    const parts = new DiffParts({ box, url: '/diff', onShow: () => {}, onHide: () => {}, onError: (error) => expect(error).toBeNull() });
    await parts.open();
    const elements = [...box.children];
    const shown = () => elements.filter((element) => element.childElementCount > 0).map((element) => (element as HTMLElement).dataset.part);
    expect([elements.length, shown()]).toEqual([200, ['0']]);
    move([{ target: elements[101]!, isIntersecting: true }, { target: elements[102]!, isIntersecting: true }]);
    await until(() => shown().length === 3);
    move([{ target: elements[0]!, isIntersecting: false }]);
    expect(shown()).toEqual(['101', '102']);
    expect(requests).toEqual(['/diff?part=0&count=4', '/diff?part=100&count=4']);
    const found = await parts.reveal((element) => element.querySelector('tr[data-new="5"]'));
    expect(found?.textContent).toBe('5');
    parts.close();
  });
});

const file = (path: string, more: Partial<DiffFileView> = {}) => ({ path, was: null, note: '', added: 1, removed: 0, outside: false, closed: false, ...more }) as DiffFileView;

describe('the tree of files', () => {
  it('joins folders with a single folder inside, and lists files outside the manifest first', () => {
    const files = [file('z/out.rs', { outside: true }), file('src/a/b/one.rs'), file('src/a/b/two.rs'), file('README.md')];
    const tree = folderTree(files.map((file, index) => ({ file, index })).slice(1));
    expect(tree.folders.map((folder) => [folder.name, folder.files.length])).toEqual([['src/a/b', 2]]);
    const box = document.createElement('div');
    const opened: number[] = [];
    render(<FileTree task="T1" files={files} viewed={['README.md']} current={signal(0)} onOpen={(index) => opened.push(index)} />, box);
    expect([...box.querySelectorAll('.tree-file')].map((button) => (button as HTMLElement).title)).toEqual(['z/out.rs', 'src/a/b/one.rs', 'src/a/b/two.rs', 'README.md']);
    expect(box.textContent).toContain('1 outside the manifest');
    expect(box.textContent).toContain('1 of 4 viewed');
    ([...box.querySelectorAll('.tree-file')].at(-1) as HTMLElement).click();
    expect(opened).toEqual([3]);
    render(null, box);
  });
});

describe('a task', () => {
  it('opens the tab that says most about its state', () => {
    const task = (at: string, submission: object | null, tries: number) => defaultTab({ at, submission, tries: Array(tries).fill({ ended: { cause: 'invalid' } }) } as unknown as TaskPage);
    expect([task('working', null, 1), task('review', {}, 1), task('landed', {}, 2), task('waiting', null, 0), task('failed', null, 2), task('needs', null, 1)]).toEqual(['log', 'change', 'change', 'why', 'checks', 'checks']);
  });

  it('without finished work names the files that it may change', () => {
    const box = document.createElement('div');
    const task = (files: string[]) => ({ id: 'T1', progress: '', submission: null, files }) as unknown as TaskPage;
    render(<Diff task={task([])} />, box);
    expect(box.querySelector('h2')?.textContent).toBe('The task may change any file.');
    render(<Diff task={task(Array.from({ length: 30 }, (_, index) => `src/${index}.rs`))} />, box);
    expect([box.querySelector('h2')?.textContent, box.querySelectorAll('li').length]).toEqual(['The task may change 30 files or patterns:', 30]);
    render(null, box);
  });

  it('leads to its neighbours in the list from which it was opened', () => {
    const list = document.createElement('main');
    list.innerHTML = '<a href="/t/T1">T1</a><a href="/t/T2?tab=log">T2</a><a href="/t/T1">again</a><a href="/t/T3">T3</a>';
    document.body.append(list);
    history.replaceState(null, '', '/tasks?q=login');
    rememberTaskList('/t/T2');
    expect(neighbours('T2')).toEqual({ at: 2, of: 3, previous: 'T1', next: 'T3' });
    history.replaceState(null, '', '/t/T2');
    rememberTaskList('/t/T3');
    expect(neighbours('T3')).toEqual({ at: 3, of: 3, previous: 'T2', next: undefined });
    expect(neighbours('T9')).toBeNull();
    list.remove();
  });

  it('shows durations of checks with a fitting unit', () => {
    expect([12, 4_230, 61_000].map(checkDuration)).toEqual(['12 ms', '4.2 s', '1m']);
  });

  it('drafts of an older page without sides are kept', () => {
    saveDrafts('T8', { words: '', comments: [{ path: 'a.rs', line: 3, text: 'x' }] });
    expect(withDrafts({ label: '', verb: 'revise', input: {}, cli: '', first: false, grave: false }, 'T8').input.text).toBe('a.rs:3: x');
  });
});
