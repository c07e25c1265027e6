// Generated from regatta_core::display by `cargo xtask codegen`. Do not edit.

import type { DisplayState, MemberActivity, MemberState } from './api';

/** How each state is shown, most urgent first. There is always a glyph and a word next to the colour. */
export const STATES: Record<DisplayState, { glyph: string; word: string; rank: number }> = {
  failed: { glyph: '✕', word: 'failed', rank: 0 },
  needs: { glyph: '!', word: 'needs you', rank: 1 },
  review: { glyph: '◇', word: 'review', rank: 2 },
  landing: { glyph: '⇢', word: 'landing', rank: 3 },
  working: { glyph: '▶', word: 'working', rank: 4 },
  waiting: { glyph: '‖', word: 'waiting', rank: 5 },
  idle: { glyph: '·', word: 'idle', rank: 6 },
  backlog: { glyph: '…', word: 'backlog', rank: 7 },
  offline: { glyph: '○', word: 'offline', rank: 8 },
  landed: { glyph: '✓', word: 'landed', rank: 9 },
};

/** The states of a task, in the order of a board's columns. */
export const TASK_STATES: DisplayState[] = ['backlog', 'waiting', 'working', 'needs', 'review', 'landing', 'landed', 'failed'];

/** The states of an agent with work, in the order in which charts stack them. */
export const BUSY_AGENT_STATES: DisplayState[] = ['working', 'review', 'landing', 'waiting', 'needs', 'failed'];

/** The states of an agent without work. */
export const FREE_AGENT_STATES: DisplayState[] = ['idle', 'offline'];

/** How each activity of a team's member is shown. */
export const MEMBER_ACTIVITIES: Record<MemberActivity, { at: DisplayState; word: string }> = {
  absent: { at: 'offline', word: 'absent' },
  dead: { at: 'failed', word: 'dead' },
  coming: { at: 'working', word: 'starting' },
  idle: { at: 'idle', word: 'idle' },
  working: { at: 'working', word: 'working' },
  waiting: { at: 'needs', word: 'needs you' },
  hung: { at: 'failed', word: 'hung' },
  ending: { at: 'working', word: 'stopping' },
};

/** How the state of a member in a launch of its team is shown. */
export const MEMBER_STATES: Record<MemberState, { at: DisplayState; word: string }> = {
  queued: { at: 'waiting', word: 'waiting to start' },
  starting: { at: 'working', word: 'starting' },
  pending_bootstrap: { at: 'working', word: 'joining' },
  pending_permission: { at: 'needs', word: 'needs you' },
  alive: { at: 'landed', word: 'alive' },
  failed_to_start: { at: 'failed', word: 'did not start' },
  skipped: { at: 'offline', word: 'left out' },
  degraded: { at: 'failed', word: 'down' },
  stopped: { at: 'offline', word: 'stopped' },
};
