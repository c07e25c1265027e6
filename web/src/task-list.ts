// The list from which a person opened a task. `navigate` in route.ts stores it, and the task's page leads to the next and
// the previous task.

import { TASK_LIST_KEY } from './route';

export interface TaskList {
  /** The address of the list, with its filters. */
  address: string;
  tasks: string[];
}

const taskOfPath = (path: string) => /^\/t\/([^/?#]+)/.exec(path)?.[1] ?? '';

/** Returns the list from which the last task was opened, each task once. */
export function taskList(): TaskList | null {
  try {
    const stored = JSON.parse(sessionStorage.getItem(TASK_LIST_KEY) ?? 'null') as Partial<{ address: string; paths: string[] }> | null;
    if (!stored || typeof stored.address !== 'string' || !Array.isArray(stored.paths)) return null;
    const tasks = stored.paths.map((path) => taskOfPath(String(path))).filter(Boolean);
    return { address: stored.address, tasks: [...new Set(tasks)] };
  } catch {
    return null; // not a list that this page wrote
  }
}

/** Returns the position of a task in a list, and its neighbours. */
export function neighbours(task: string, list = taskList()): { at: number; of: number; previous?: string; next?: string } | null {
  const at = list?.tasks.indexOf(task) ?? -1;
  if (!list || at < 0) return null;
  return { at: at + 1, of: list.tasks.length, previous: list.tasks[at - 1], next: list.tasks[at + 1] };
}
