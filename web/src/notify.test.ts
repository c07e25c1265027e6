import { expect, it, vi } from 'vitest';
import { quickAnswers } from './notify';
import type { InboxItemView, PageAction } from './api';

vi.mock('./live/worker?sharedworker&url', () => ({ default: '/assets/worker.js' }));

const action = (label: string, input: Record<string, unknown>, more: Partial<PageAction> = {}): PageAction => ({ label, verb: 'inbox.answer', input, cli: '', first: false, grave: false, ...more });
const labels = (kind: InboxItemView['kind'], actions: PageAction[], max = 2) => quickAnswers({ kind, actions }, max).map((found) => found.label);

it('a notification of a permission offers only to allow once and to deny', () => {
  const actions = [
    action('Allow once', { answer: { say: 'allow' }, reach: 'once' }),
    action('Allow for this task', { answer: { say: 'allow' }, reach: 'task' }),
    action('Deny', { answer: { say: 'deny' }, reach: 'once' }),
    action('Always allow', { answer: { say: 'allow' }, reach: 'always' }, { grave: true }),
    action('Later', { ms: 1 }, { verb: 'inbox.snooze' }),
  ];
  expect(labels('permission', actions)).toEqual(['Allow once', 'Deny']);
  expect(labels('permission', actions, 1)).toEqual(['Allow once']);
});

it('a notification of a question offers its first choices, but no text', () => {
  const actions = [action('Keep v1', { answer: { say: 'text' } }), action('Reply…', { answer: { say: 'text' } }, { words: '/answer/text' }), action('410 Gone', { answer: { say: 'text' } })];
  expect(labels('question', actions)).toEqual(['Keep v1', '410 Gone']);
});

it('a notification never lands work', () => {
  expect(labels('review', [action('Land', { id: 'T1' }, { verb: 'land', first: true })])).toEqual([]);
});
