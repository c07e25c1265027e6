// Returns the focus to where it was: when an overlay closes, and when Back returns to a page.
//
// `route.ts` remembers the key of the row with the focus for each entry of the history (focus-memory.ts). After Back, the
// row with that key gets the focus as soon as it is in the document. A virtual list reads `wantedRow` and scrolls that
// row into view.

import { signal } from '@preact/signals';
import { useLayoutEffect } from 'preact/hooks';
import { rememberedFocus, rowWithKey } from './focus-memory';

export function useFocusRestore(): void {
  useLayoutEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    return () => {
      if (before?.isConnected) before.focus({ preventScroll: true });
    };
  }, []);
}

/** The key of the row that gets the focus when it is in the document, or null. */
export const wantedRow = signal<string | null>(null);

const RESTORE_TIMEOUT_MS = 5_000;
let observer: MutationObserver | null = null;
let expiry = 0;

/** Gives the focus to the row that an entry of the history had. Stops when the person presses a key or a button. */
export function restoreFocus(entry: string): void {
  stopRestoring();
  const position = rememberedFocus(entry);
  if (!position?.rowKey) return;
  wantedRow.value = position.rowKey;
  const tryFocus = () => {
    const row = rowWithKey(position.rowKey);
    if (!row) return;
    scrollTo(0, position.scrollY);
    const target = row.tabIndex >= 0 ? row : (row.querySelector<HTMLElement>('a, button') ?? row);
    target.focus({ preventScroll: true });
    target.scrollIntoView?.({ block: 'nearest' });
    if (document.activeElement === target) stopRestoring();
  };
  observer = new MutationObserver(tryFocus);
  observer.observe(document.body, { childList: true, subtree: true });
  expiry = window.setTimeout(stopRestoring, RESTORE_TIMEOUT_MS);
  addEventListener('keydown', stopRestoring, { once: true, capture: true });
  addEventListener('pointerdown', stopRestoring, { once: true, capture: true });
}

function stopRestoring(): void {
  observer?.disconnect();
  observer = null;
  clearTimeout(expiry);
  wantedRow.value = null;
}
