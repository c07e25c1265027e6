// Parts of the page that come when they are needed: what is there from the first moment stays small.

import { useSignal } from '@preact/signals';
import type { FunctionComponent } from 'preact';
import { useEffect } from 'preact/hooks';

/** A part that is loaded when somebody looks at it. */
export function lazy<P extends object>(load: () => Promise<FunctionComponent<P>>): FunctionComponent<P> {
  let page: FunctionComponent<P> | null = null;
  return (props: P) => {
    const version = useSignal(0);
    const failed = useSignal(false);
    useEffect(() => {
      // Another may have brought it since this one was drawn.
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
    if (failed.value) return <p class="error">This part could not be loaded: the daemon may be newer. Load the page again.</p>;
    const Page = page;
    return Page ? <Page {...props} /> : <p class="empty">loading…</p>;
  };
}
