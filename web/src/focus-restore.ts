// Returns the focus to the previous element when an overlay closes.

import { useLayoutEffect } from 'preact/hooks';

export function useFocusRestore(): void {
  useLayoutEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    return () => {
      if (before?.isConnected) before.focus({ preventScroll: true });
    };
  }, []);
}
