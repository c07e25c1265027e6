// The pages, the overlays and the pause of updates. The header needs these at once; the keys are loaded later.

import { signal } from '@preact/signals';
import { apply, paused } from './live/client';

export interface PageEntry {
  /** The key after `g` that opens the page. */
  key: string;
  to: string;
  name: string;
  /** Pages of the level `more` are behind "More", and pages of the level `phone` only in the bar of a phone. */
  level: 'main' | 'more' | 'phone';
}

export const PAGES: PageEntry[] = [
  { key: 'n', to: '/', name: 'Now', level: 'main' },
  { key: 't', to: '/tasks', name: 'Tasks', level: 'main' },
  { key: 'i', to: '/inbox', name: 'Inbox', level: 'phone' },
  { key: 'q', to: '/queue', name: 'Queue', level: 'main' },
  { key: 'a', to: '/agents', name: 'Agents', level: 'main' },
  { key: 'f', to: '/files', name: 'Files', level: 'main' },
  { key: 'c', to: '/cost', name: 'Cost', level: 'main' },
  { key: 'm', to: '/team', name: 'Team', level: 'more' },
  { key: 'v', to: '/conversations', name: 'Conversations', level: 'more' },
  { key: 'e', to: '/events', name: 'Events', level: 'more' },
  { key: 's', to: '/setup', name: 'Setup', level: 'more' },
];

/** The overlay that is open. */
export const overlay = signal<'help' | 'palette' | 'tour' | null>(null);
export function togglePause(): void {
  paused.value = !paused.peek();
  if (!paused.peek()) apply();
}
