import { expect, it } from 'vitest';
import { addTask, conflictsOf, wavesOf } from './plan-edit';
import type { PlannedTask } from '../api';

const tasks = ['a', 'b', 'c'].map((subject) => ({ task: { subject }, after: [] }) as unknown as PlannedTask);

it('tasks are grouped by their wave, and a task that waits for a file stays in its wave', () => {
  expect(wavesOf({ tasks, waves: ['2', '1.1', '1.2'] })).toEqual([
    { number: '1', tasks: [1, 2] },
    { number: '2', tasks: [0] },
  ]);
  expect(wavesOf({ tasks: addTask(tasks), waves: ['1', '1', '1'] }).length).toBe(2);
});

it('a conflict names who waits and for which file', () => {
  const owned = [
    { file: 'x.rs', owner: 0, others: [2], text: '' },
    { file: 'free.rs', owner: 1, others: [], text: '' },
  ];
  expect(conflictsOf({ owned }, 0)).toEqual([{ waits: false, text: '3 runs after 1: both want x.rs' }]);
  expect(conflictsOf({ owned }, 2)).toEqual([{ waits: true, text: '3 runs after 1: both want x.rs' }]);
  expect(conflictsOf({ owned }, 1)).toEqual([]);
});
