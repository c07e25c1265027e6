// Remembers the list from which a person opened a task, so that the task's page leads to the next and the previous task.

import { signal } from '@preact/signals';

const STORAGE_KEY = 'regatta-task-list';
/** Maximum number of remembered tasks. */
const MAX_TASKS = 1_000;

export interface TaskList {
  /** The address of the list, with its filters. */
  address: string;
  tasks: string[];
}

function loadTaskList(): TaskList | null {
  try {
    const stored = JSON.parse(sessionStorage.getItem(STORAGE_KEY) ?? 'null') as Partial<TaskList> | null;
    return stored && typeof stored.address === 'string' && Array.isArray(stored.tasks) ? { address: stored.address, tasks: stored.tasks.map(String) } : null;
  } catch {
    return null; // not a list that this page wrote
  }
}

export const taskList = signal<TaskList | null>(loadTaskList());

const taskOfPath = (path: string) => /^\/t\/([^/?#]+)/.exec(path)?.[1];

/** Remembers the tasks that the present page links to, if `target` is one of them. Called before each navigation. */
export function rememberTaskList(target: string): void {
  const task = taskOfPath(target);
  if (!task || taskOfPath(location.pathname)) return;
  const links = [...document.querySelectorAll('main a[href^="/t/"]')].map((link) => taskOfPath(link.getAttribute('href') ?? '') ?? '');
  const tasks = [...new Set(links)].filter(Boolean).slice(0, MAX_TASKS);
  if (!tasks.includes(task)) return;
  taskList.value = { address: location.pathname + location.search, tasks };
  try {
    sessionStorage.setItem(STORAGE_KEY, JSON.stringify(taskList.peek()));
  } catch {
    // Without storage, the list is forgotten when the page is loaded again.
  }
}

/** Returns the position of a task in the remembered list, and its neighbours. */
export function neighbours(task: string): { at: number; of: number; previous?: string; next?: string } | null {
  const list = taskList.value;
  const at = list?.tasks.indexOf(task) ?? -1;
  if (!list || at < 0) return null;
  return { at: at + 1, of: list.tasks.length, previous: list.tasks[at - 1], next: list.tasks[at + 1] };
}
