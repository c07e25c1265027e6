// The header: the pages, what needs a person, and the state of the connection. On a phone, the pages are a bar at the
// bottom.

import './header.css';
import { signal } from '@preact/signals';
import { clockTime } from './format';
import { PAGES, type PageEntry, overlay, togglePause } from './navigation';
import { lazy } from './lazy';
import { connection, paused, waitingChanges } from './live/client';
import { route } from './route';
import { More } from './more';
import { theme } from './theme';
import type { FleetSummaryView } from './api';

const TabBar = lazy<{ current: string; needs: number }>(() => import('./tab-bar').then((module) => module.TabBar));

/** Whether the window is as narrow as a phone. The style sheets use the same width. */
const phoneQuery = matchMedia('(max-width: 760px)');
const isPhone = signal(phoneQuery.matches);
phoneQuery.addEventListener('change', (event) => (isPhone.value = event.matches));

/** The beginnings of addresses that belong to a page, besides the page's own address. */
const PAGE_OF_PREFIX: [string, string][] = [
  ['/t/', '/tasks'],
  ['/m/', '/tasks'],
  ['/missions', '/tasks'],
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
      {isPhone.value && <TabBar current={current} needs={needs} />}
    </>
  );
}
