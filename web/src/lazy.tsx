// Components that are loaded on first use, which keeps the initial script small.

import { useSignal } from '@preact/signals';
import type { FunctionComponent } from 'preact';
import { useEffect } from 'preact/hooks';

/** Returns a component that loads its implementation when it is first rendered. */
export function lazy<P extends object>(load: () => Promise<FunctionComponent<P>>): FunctionComponent<P> {
  let page: FunctionComponent<P> | null = null;
  return (props: P) => {
    const version = useSignal(0);
    const failed = useSignal(false);
    useEffect(() => {
      // Another instance may have loaded it since this one was rendered.
      if (page) {
        version.value += 1;
        return;
      }
      load().then(
        (loaded) => {
          page = loaded;
          version.value += 1;
        },
        () => (failed.value = true),
      );
    }, []);
    void version.value;
    if (failed.value) return <p class="error">Could not load this part of the page. Reload the page.</p>;
    const Page = page;
    return Page ? <Page {...props} /> : <p class="empty">loading…</p>;
  };
}
