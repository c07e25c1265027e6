// Edits of a plan before it starts: move, remove and add tasks. The browser stores the edits until the plan starts.

import type { PlannedTask, PlanView } from '../api';

/** Returns the plan with one task moved. The blockers of each task stay the same tasks. */
export function moveTask(tasks: PlannedTask[], from: number, to: number): PlannedTask[] {
  const order = tasks.map((_, index) => index);
  const [task] = order.splice(from, 1);
  if (task === undefined) return tasks;
  order.splice(Math.max(0, Math.min(order.length, to)), 0, task);
  return reorder(tasks, order);
}

/** Returns the plan without one task. Tasks that were blocked by it no longer are. */
export function removeTask(tasks: PlannedTask[], at: number): PlannedTask[] {
  return reorder(
    tasks,
    tasks.map((_, index) => index).filter((index) => index !== at),
  );
}

function reorder(tasks: PlannedTask[], order: number[]): PlannedTask[] {
  const newIndex = new Map(order.map((old, index) => [old, index]));
  return order.flatMap((old) => {
    const task = tasks[old];
    return task ? [{ ...task, after: task.after.flatMap((blocker) => newIndex.get(blocker) ?? []).sort((a, b) => a - b) }] : [];
  });
}

/** Parses `1, 3` as indexes of a plan's tasks. Numbers that are not another task of the plan are ignored. */
export function parseBlockers(text: string, ownIndex: number, taskCount: number): number[] {
  const found = [...text.matchAll(/\d+/g)].map((match) => Number(match[0]) - 1).filter((index) => index >= 0 && index < taskCount && index !== ownIndex);
  return [...new Set(found)].sort((a, b) => a - b);
}

const STORAGE_PREFIX = 'regatta-plan-';

/** Returns a person's edits of a plan. The browser stores them until the plan starts. */
export function storedEdits(id: string): PlannedTask[] | null {
  try {
    return JSON.parse(localStorage.getItem(STORAGE_PREFIX + id) ?? 'null') as PlannedTask[] | null;
  } catch {
    return null;
  }
}

export function storeEdits(id: string, tasks: PlannedTask[] | null): void {
  if (tasks) localStorage.setItem(STORAGE_PREFIX + id, JSON.stringify(tasks));
  else localStorage.removeItem(STORAGE_PREFIX + id);
}

/** Returns the plan with a new task at its end, which a person fills in. */
export function addTask(tasks: PlannedTask[]): PlannedTask[] {
  // The daemon fills in the other fields.
  const task = { subject: `Task ${tasks.length + 1}`, issue_type: 'feature', files: [], description: '' } as unknown as PlannedTask['task'];
  return [...tasks, { task, after: [] }];
}

export interface Wave {
  number: string;
  /** Positions of the tasks in the plan. */
  tasks: number[];
}

/** Returns the waves of a plan in their order. A task in `1.2` belongs to wave 1. */
export function wavesOf(plan: Pick<PlanView, 'tasks' | 'waves'>): Wave[] {
  const found = new Map<string, number[]>();
  plan.tasks.forEach((_, at) => {
    const number = (plan.waves[at] ?? '').split('.')[0] || '–';
    found.set(number, [...(found.get(number) ?? []), at]);
  });
  return [...found].map(([number, tasks]) => ({ number, tasks })).sort((a, b) => Number(a.number) - Number(b.number) || 0);
}

export interface PlanConflict {
  text: string;
  /** Whether the task waits for the file, or owns it. */
  waits: boolean;
}

/** Returns the files that a task shares with other tasks of its wave. */
export function conflictsOf(plan: Pick<PlanView, 'owned'>, at: number): PlanConflict[] {
  const shared = plan.owned.filter((file) => file.others.length > 0 && (file.owner === at || file.others.includes(at)));
  return shared.map((file) => {
    const others = file.others.map((other) => other + 1);
    const [verb, tasks] = others.length === 1 ? ['runs', 'both'] : ['run', 'all'];
    return { waits: file.owner !== at, text: `${others.join(', ')} ${verb} after ${file.owner + 1}: ${tasks} want ${file.file}` };
  });
}
