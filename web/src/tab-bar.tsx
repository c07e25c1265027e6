// The bar of pages at the bottom of a phone's screen.

import { More } from './more';
import { PAGES, overlay } from './navigation';
import { theme } from './theme';

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
export function TabBar({ current, needs }: { current: string; needs: number }) {
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
      <More
        pages={PAGES.filter((page) => !inBar.includes(page))}
        current={current}
        label={
          <>
            <Icon name="More" />
            More
          </>
        }
      >
        <button type="button" onClick={() => (overlay.value = 'palette')}>
          Search commands
        </button>
        <button type="button" onClick={theme.toggle}>
          Light or dark
        </button>
      </More>
    </nav>
  );
}
