// What the page asks before a change lands. Landing is deliberate: a comment that was not sent blocks it, and a change
// that this person did not open asks once. The server's setting `[landing] confirm` says when to ask.

import { draftsOf, saveDrafts, unsentComments, withDrafts } from './drafts';
import { wasChangeSeen } from './seen-changes';
import { press } from './ui';
import type { Action, ActionQuestion } from './action';

const newAction = (label: string, rest: Partial<Action>): Action => ({ label, verb: '', input: {}, cli: '', first: false, grave: false, ...rest });

/** Returns the question before a change lands, or undefined if there is nothing to ask. */
export function landQuestion(action: Action): ActionQuestion | undefined {
  if (!action.lands) return undefined;
  const { task, head, confirm } = action.lands;
  const unsentCount = unsentComments(task);
  if (unsentCount > 0) {
    const revise = newAction('Revise', { verb: 'revise', input: { id: task, text: '' }, cli: `regatta revise ${task}`, first: true });
    const discard = () => {
      draftsOf(task);
      saveDrafts(task, { words: '', comments: [] });
      press(action);
    };
    const [noun, pronoun] = unsentCount === 1 ? ['comment', 'it'] : ['comments', 'them'];
    return {
      title: `${unsentCount} ${noun} not sent`,
      text: `${unsentCount} ${noun} not sent: send ${pronoun} with Revise, or discard ${pronoun}. ${task} does not land before.`,
      instead: [withDrafts(revise, task), newAction(`Discard ${pronoun}`, { run: discard, grave: true }), newAction('Show the change', { to: `/t/${task}?tab=change` })],
      proceed: null,
    };
  }
  const isUnread = !wasChangeSeen(task, head);
  if (confirm === 'never' || (confirm === 'unread' && !isUnread)) return undefined;
  return {
    title: `Land ${task}?`,
    text: isUnread ? 'You have not opened this change. Land it unread?' : 'The change lands on the trunk as soon as its checks pass there.',
    instead: isUnread ? [newAction('Open the change', { to: `/t/${task}?tab=change`, first: true })] : [],
    proceed: isUnread ? 'Land it unread' : 'Land',
  };
}
