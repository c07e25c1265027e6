// Finds tasks by their id and subject, for the palette.

import { topic } from './live/client';
import { call } from './session';
import type { TaskRowView } from './api';

const MAX_FOUND = 8;
type FoundTask = Pick<TaskRowView, 'id' | 'subject'>;

export async function searchTasks(text: string): Promise<FoundTask[]> {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (task: FoundTask) => words.every((word) => `${task.id} ${task.subject}`.toLowerCase().includes(word));
  const known = topic('tasks').all();
  const tasks: FoundTask[] = known.length > 0 ? known : ((await call('task.list', { all: true, limit: 2_000 })) ?? []).map((view) => ({ id: view.id, subject: view.subject }));
  return tasks.filter(fits).slice(0, MAX_FOUND);
}
