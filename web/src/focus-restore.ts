// Whoever opened something that lies over the page is back where they were when it closes.

import { useLayoutEffect } from 'preact/hooks';

export function useFocusRestore(): void {
  useLayoutEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    return () => {
      if (before?.isConnected) before.focus({ preventScroll: true });
    };
  }, []);
}
