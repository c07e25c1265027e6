// Remembers in the browser which changes a person opened, so that the page can ask before an unread change lands.

import { signal } from '@preact/signals';

const STORAGE_KEY = 'regatta-seen-changes';
/** Maximum number of remembered changes. The oldest one is forgotten first. */
const MAX_SEEN_CHANGES = 500;

/** The seen changes, `T9@<commit>` each, the oldest first. */
const seenChanges = signal<string[]>(loadSeenChanges());

function loadSeenChanges(): string[] {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(STORAGE_KEY) ?? '[]');
    return Array.isArray(stored) ? stored.filter((entry): entry is string => typeof entry === 'string').slice(-MAX_SEEN_CHANGES) : [];
  } catch {
    return []; // not a list that this page wrote
  }
}

// Another tab of the browser may have opened a change.
if (typeof addEventListener === 'function') {
  addEventListener('storage', (event) => {
    if (event.key === STORAGE_KEY) seenChanges.value = loadSeenChanges();
  });
}

/** Records that the change of a task was opened. `head` is the commit of the submitted work. */
export function markChangeSeen(task: string, head: string): void {
  const entry = `${task}@${head}`;
  if (!head || seenChanges.peek().includes(entry)) return;
  seenChanges.value = [...seenChanges.peek(), entry].slice(-MAX_SEEN_CHANGES);
  try {
    localStorage.setItem(STORAGE_KEY, JSON.stringify(seenChanges.peek()));
  } catch {
    // The browser's storage is full or denied: the change counts as seen until the page is loaded again.
  }
}

/** Returns whether this browser opened the change. A component that calls this is redrawn when that changes. */
export function wasChangeSeen(task: string, head: string): boolean {
  return seenChanges.value.includes(`${task}@${head}`);
}
