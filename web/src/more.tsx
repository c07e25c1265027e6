// The menu of the pages that have no place in the bar.

import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type { PageEntry } from './navigation';
import { route } from './route';

/** The pages behind "More". The menu closes when the focus leaves it, on Esc, and when a page opens. */
export function More({ pages, current, label, children }: { pages: PageEntry[]; current: string; label?: ComponentChildren; children?: ComponentChildren }) {
  const details = useRef<HTMLDetailsElement>(null);
  const close = () => details.current?.removeAttribute('open');
  useEffect(close, [route.value.path]);
  const here = pages.find((page) => page.to === current);
  return (
    <details
      ref={details}
      class="more"
      onFocusOut={(event) => event.relatedTarget && !details.current?.contains(event.relatedTarget as Node) && close()}
      onKeyDown={(event) => {
        if (event.key !== 'Escape' || !details.current?.open) return;
        close();
        details.current.querySelector('summary')?.focus();
        event.stopPropagation();
      }}
    >
      <summary class={here ? 'current' : ''}>{label ?? here?.name ?? 'More'}</summary>
      <div>
        {pages.map((page) => (
          <a key={page.to} href={page.to} aria-current={current === page.to ? 'page' : undefined} onClick={close}>
            {page.name} <kbd>g {page.key}</kbd>
          </a>
        ))}
        {children}
      </div>
    </details>
  );
}
