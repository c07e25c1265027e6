// The header: the pages, what needs a person, and the state of the connection. On a phone, the pages are a bar at the
// bottom.

import './header.css';
import { useEffect, useRef } from 'preact/hooks';
import { clockTime } from './format';
import { PAGES, type PageEntry, overlay, togglePause } from './keys';
import { connection, paused, waitingChanges } from './live/client';
import { route } from './route';
import { theme } from './theme';
import type { FleetSummaryView } from './api';

/** The beginnings of addresses that belong to a page, besides the page's own address. */
const PAGE_OF_PREFIX: [string, string][] = [
  ['/t/', '/tasks'],
  ['/m/', '/tasks'],
  ['/plan/', '/'],
  ['/agents/', '/agents'],
];

/** Returns the address of the page to which a path belongs. */
function pageOf(path: string): string {
  return PAGE_OF_PREFIX.find(([prefix]) => path.startsWith(prefix))?.[1] ?? path;
}

/** Shows whether the page is live, paused or disconnected. */
function ConnectionStatus() {
  const current = connection.value;
  if (paused.value) {
    return (
      <button type="button" class="link held" onClick={togglePause}>
        ‖ paused, {waitingChanges.value} changes waiting
      </button>
    );
  }
  switch (current.state) {
    case 'live':
      return (
        <button type="button" class="link live" onClick={togglePause} title="Pause updates: .">
          ● live
        </button>
      );
    case 'lost':
      return <span class="link lost">○ reconnecting{current.since ? `, data from ${clockTime(current.since)}` : ''}</span>;
    default:
      return <span class="link">○ connecting</span>;
  }
}

function PageLink({ page, current }: { page: PageEntry; current: string }) {
  return (
    <a href={page.to} aria-current={current === page.to ? 'page' : undefined} title={`g ${page.key}`}>
      {page.name}
    </a>
  );
}

/** The pages behind "More". The menu closes when the focus leaves it, on Esc, and when a page opens. */
function More({ pages, current, children }: { pages: PageEntry[]; current: string; children?: preact.ComponentChildren }) {
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
      <summary class={here ? 'current' : ''}>{children ?? here?.name ?? 'More'}</summary>
      <div>
        {pages.map((page) => (
          <a key={page.to} href={page.to} aria-current={current === page.to ? 'page' : undefined} onClick={close}>
            {page.name} <kbd>g {page.key}</kbd>
          </a>
        ))}
        {children && (
          <>
            <button type="button" onClick={() => (close(), (overlay.value = 'palette'))}>
              Search commands
            </button>
            <button type="button" onClick={theme.toggle}>
              Light or dark
            </button>
          </>
        )}
      </div>
    </details>
  );
}

/** The paths of the icons, in a square of 24. */
const ICONS: Record<string, string> = {
  Now: 'M3 12h4l3-8 4 16 3-8h4',
  Tasks: 'M4 6l2 2 3-4M12 6h8M4 16l2 2 3-4M12 17h8',
  Inbox: 'M3 13l3-8h12l3 8v6H3zM3 13h5l2 3h4l2-3h5',
  Queue: 'M4 12h12M12 7l5 5-5 5M20 5v14',
  More: 'M5 12h.01M12 12h.01M19 12h.01',
};

function Icon({ name }: { name: string }) {
  return (
    <svg viewBox="0 0 24 24" aria-hidden="true">
      <path d={ICONS[name] ?? ''} />
    </svg>
  );
}

/** The bar of pages at the bottom of a phone's screen. */
function TabBar({ current, needs }: { current: string; needs: number }) {
  const inBar = PAGES.filter((page) => page.name in ICONS);
  return (
    <nav class="tab-bar" aria-label="Pages, short">
      {inBar.map((page) => (
        <a key={page.to} href={page.to} aria-current={current === page.to ? 'page' : undefined}>
          <Icon name={page.name} />
          {page.name}
          {page.to === '/inbox' && needs > 0 && <span class="count">{needs > 99 ? '99+' : needs}</span>}
        </a>
      ))}
      <More pages={PAGES.filter((page) => !inBar.includes(page))} current={current}>
        <Icon name="More" />
        More
      </More>
    </nav>
  );
}

export function Header({ head }: { head: FleetSummaryView | undefined }) {
  const current = pageOf(route.value.path);
  const needs = head?.needs_you ?? 0;
  const place = head?.projects.length === 1 ? `${head.projects[0]?.name} · ${head.projects[0]?.trunk}` : head && head.projects.length > 1 ? `${head.projects.length} projects` : '';
  return (
    <>
      <header class="top">
        <a class="skip" href="#main">
          Skip to content
        </a>
        <b class="brand">regatta</b>
        {place && (
          <span class="mono where" title={place}>
            {place}
          </span>
        )}
        <nav class="pages" aria-label="Pages">
          {PAGES.filter((page) => page.level === 'main').map((page) => (
            <PageLink key={page.to} page={page} current={current} />
          ))}
          <More pages={PAGES.filter((page) => page.level === 'more')} current={current} />
        </nav>
        <span class="right-side">
          <a href="/inbox" class={`badge ${needs > 0 ? 'hot' : ''}`}>
            {needs} need{needs === 1 ? 's' : ''} you
          </a>
          {head && (
            <span class="badge slots">
              slots {head.running}/{head.slots}
            </span>
          )}
          <button type="button" class="key" onClick={() => (overlay.value = 'palette')} aria-label="⌘K: commands, also Ctrl-K">
            ⌘K
          </button>
          <button type="button" class="key" onClick={() => (overlay.value = 'help')} aria-label="? Keyboard shortcuts">
            ?
          </button>
          <button type="button" class="key" onClick={theme.toggle} aria-label="◐ light or dark">
            ◐
          </button>
          <ConnectionStatus />
        </span>
      </header>
      <TabBar current={current} needs={needs} />
    </>
  );
}
