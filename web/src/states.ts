// Generated from regatta_core::display by `cargo xtask codegen`. Do not edit.

import type { DisplayState } from './api';

/** How each state is shown, most urgent first. There is always a glyph and a word next to the colour. */
export const STATES: Record<DisplayState, { glyph: string; word: string; rank: number }> = {
  failed: { glyph: '✕', word: 'failed', rank: 0 },
  needs: { glyph: '!', word: 'needs you', rank: 1 },
  waiting: { glyph: '‖', word: 'waiting', rank: 2 },
  landing: { glyph: '⇢', word: 'landing', rank: 3 },
  review: { glyph: '◇', word: 'review', rank: 4 },
  working: { glyph: '▶', word: 'working', rank: 5 },
  idle: { glyph: '·', word: 'idle', rank: 6 },
  backlog: { glyph: '…', word: 'backlog', rank: 7 },
  offline: { glyph: '○', word: 'offline', rank: 8 },
  landed: { glyph: '✓', word: 'landed', rank: 9 },
};
