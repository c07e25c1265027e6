// Finds tasks by their id and subject, for the palette.

import { RequestError, call, fetchText } from './session';
import type { TaskRowView } from './api';

const MAX_FOUND = 8;
/** Most tasks that a daemon without the list's filter sends. */
const MAX_LISTED = 2_000;
type FoundTask = Pick<TaskRowView, 'id' | 'subject'>;

/** Asks the daemon for the tasks that match the text. */
export async function searchTasks(text: string): Promise<FoundTask[]> {
  try {
    const window = JSON.parse(await fetchText(`/api/v1/page/tasks?text=${encodeURIComponent(text)}&limit=${MAX_FOUND}`)) as { rows?: FoundTask[] };
    return window.rows ?? [];
  } catch (error) {
    if (error instanceof RequestError && error.problem.status === 404) return listedTasks(text);
    return []; // the palette still has all other entries
  }
}

async function listedTasks(text: string): Promise<FoundTask[]> {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const tasks = await call('task.list', { all: true, limit: MAX_LISTED });
  return tasks.filter((task) => words.every((word) => `${task.id} ${task.subject}`.toLowerCase().includes(word))).slice(0, MAX_FOUND);
}
