// The actions of a mission, for the palette.

import type { Action } from './action';

export function missionActions(id: string): Action[] {
  const action = (label: string, verb: string, input: Record<string, unknown>, cli: string, more: Partial<Action> = {}): Action => ({ label, verb, input, cli, first: false, grave: false, ...more });
  return [
    action('Pause', 'stop', { id, drain: true }, `regatta mission pause ${id}`),
    action('Resume', 'resume', { id }, `regatta mission resume ${id}`),
    action('Stop all agents of', 'stop', { id }, `regatta stop ${id}`, { grave: true }),
    action('Cancel mission…', 'mission.cancel', { id, text: '' }, `regatta mission cancel ${id} --because …`, { grave: true, words: '/text' }),
  ];
}
