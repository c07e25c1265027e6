// A long list of which only a window is loaded and drawn. The server selects, sorts and counts; the browser asks for the
// rows that are on the screen, and asks again when something has changed.

import { type Signal, effect, signal, useSignal } from '@preact/signals';
import type { ComponentChildren, TargetedKeyboardEvent } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks';
import { pageKeys } from './keys';
import { connection, paused, revision } from './live/client';
import { queryParam, route, setQueryParam } from './route';
import { fetchText } from './session';
import './virtual-list.css';

/** The part of an answer that all windows have. */
export interface WindowAnswer<Row> {
  revision: number;
  total: number;
  offset: number;
  rows: Row[];
}

const REFRESH_INTERVAL_MS = 1_000;
/** Rows that are loaded beyond each end of the screen, and rows that are drawn there. */
const LOADED_MARGIN = 40;
const DRAWN_MARGIN = 8;
/** Rows that are asked for before the size of the screen is known. */
const INITIAL_ROWS = 60;

/** What a list needs of the object that loads its rows. */
export interface Loader<Row> {
  readonly answer: Signal<{ total: number } | null>;
  readonly problem: Signal<string>;
  readonly rows: Map<number, Row>;
  /** Asks for rows if some of this range are missing. */
  setRange(first: number, last: number): void;
}

/** Loads windows of one list. Rows of another state of the list are dropped, so that all drawn rows belong together. */
export class RowLoader<Row, Answer extends WindowAnswer<Row>> implements Loader<Row> {
  readonly answer: Signal<Answer | null> = signal(null);
  readonly problem = signal('');
  readonly rows = new Map<number, Row>();
  private query = '';
  private first = 0;
  private last = INITIAL_ROWS;
  private loading = false;
  private isStale = true;
  private loadedAt = -Infinity;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private stopped = false;

  constructor(
    private readonly path: string,
    /** Returns whether the same request will soon have more data, although nothing changes. */
    private readonly isIncomplete: (answer: Answer) => boolean = () => false,
  ) {}

  setQuery(query: string): void {
    if (query === this.query && this.answer.peek()) return;
    this.query = query;
    this.isStale = true;
    void this.load();
  }

  /** Asks for rows if some of this range are missing. */
  setRange(first: number, last: number): void {
    [this.first, this.last] = [first, last];
    const total = this.answer.peek()?.total ?? 0;
    for (let index = first; index < Math.min(last, total); index += 1) {
      if (!this.rows.has(index)) {
        void this.load();
        return;
      }
    }
  }

  /** Asks again for the rows on the screen, at most once per interval and only while somebody can see them. */
  refresh(): void {
    this.isStale = true;
    if (this.timer || document.hidden || paused.peek()) return;
    const wait = Math.max(0, this.loadedAt + REFRESH_INTERVAL_MS - performance.now());
    this.timer = setTimeout(() => {
      this.timer = undefined;
      void this.load();
    }, wait);
  }

  stop(): void {
    this.stopped = true;
    clearTimeout(this.timer);
  }

  private async load(): Promise<void> {
    if (this.loading || this.stopped) return;
    this.loading = true;
    const query = this.query;
    const offset = Math.max(0, this.first - LOADED_MARGIN);
    const limit = Math.min(300, this.last + LOADED_MARGIN - offset);
    this.isStale = false;
    try {
      const text = await fetchText(`${this.path}?${query}${query ? '&' : ''}offset=${offset}&limit=${limit}`);
      const answer = JSON.parse(text) as Answer;
      if (query === this.query && !this.stopped) this.store(answer);
    } catch (error) {
      if (query === this.query) this.problem.value = error instanceof Error ? error.message : String(error);
    }
    this.loadedAt = performance.now();
    this.loading = false;
    if (query !== this.query) void this.load();
    else if (this.isStale || (this.answer.peek() && this.isIncomplete(this.answer.peek() as Answer))) this.refresh();
    else if (!this.problem.peek()) this.setRange(this.first, this.last);
  }

  private store(answer: Answer): void {
    if (answer.revision !== this.answer.peek()?.revision || answer.total !== this.answer.peek()?.total) this.rows.clear();
    answer.rows.forEach((row, index) => this.rows.set(answer.offset + index, row));
    // A shorter list than before: the rows at its end were asked for beyond the end.
    if (answer.rows.length === 0 && answer.total > 0 && answer.offset >= answer.total) this.first = this.last = 0;
    this.problem.value = '';
    this.answer.value = answer;
  }
}

/** Returns the loader of a list, which follows the query and the changes of the daemon. */
export function useRows<Row, Answer extends WindowAnswer<Row>>(path: string, query: string, isIncomplete?: (answer: Answer) => boolean): RowLoader<Row, Answer> {
  const loader = useMemo(() => new RowLoader<Row, Answer>(path, isIncomplete), [path]);
  useEffect(() => loader.setQuery(query), [loader, query]);
  useEffect(() => {
    let isFirst = true;
    const unwatch = effect(() => {
      void revision.value;
      void paused.value;
      if (connection.value.state !== 'unauthorized' && !isFirst) loader.refresh();
      isFirst = false;
    });
    const onVisible = () => loader.refresh();
    document.addEventListener('visibilitychange', onVisible);
    return () => {
      unwatch();
      document.removeEventListener('visibilitychange', onVisible);
      loader.stop();
    };
  }, [loader]);
  return loader;
}

export interface ListColumn {
  /** The name by which the server sorts; also the class of the column's cells. */
  name: string;
  head: string;
  isSortable?: boolean;
  isRight?: boolean;
  /** Whether only screen readers get the heading. */
  isHeadHidden?: boolean;
}

/** The place of a person in each list, for the way back. */
const places = new Map<string, { top: number; key: string; index: number }>();

interface VirtualListProps<Row> {
  loader: Loader<Row>;
  columns: ListColumn[];
  label: string;
  /** The class of the list, which sets the widths of its columns. */
  name: string;
  rowKey: (row: Row) => string;
  rowClass?: (row: Row) => string;
  cells: (row: Row) => ComponentChildren[];
  /** Called when a person asks for a closer look at a row, or for none. */
  peek?: (row: Row | null) => void;
  empty: ComponentChildren;
}

/** Draws the rows of a list that are on the screen. All rows have the same height, which the style sheet sets. */
export function VirtualList<Row>({ loader, columns, label, name, rowKey, rowClass, cells, peek, empty }: VirtualListProps<Row>) {
  const box = useRef<HTMLDivElement>(null);
  const place = route.peek().path + location.search;
  const before = useMemo(() => places.get(place), []);
  const top = useSignal(before?.top ?? 0);
  const height = useSignal(600);
  const rowHeight = useSignal(34);
  const active = useSignal(before?.index ?? 0);
  const wantsFocus = useRef(before !== undefined);
  /** Whether a person moved to another row, so that its key is not known yet. */
  const isMoving = useRef(false);
  const answer = loader.answer.value;
  const total = answer?.total ?? 0;
  const first = Math.max(0, Math.min(total, Math.floor(top.value / rowHeight.value)));
  const last = Math.min(total, Math.ceil((top.value + height.value) / rowHeight.value));

  // Measure the list and its rows, and follow the scrolling.
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => {
      height.value = element.clientHeight || 600;
      rowHeight.value = parseFloat(getComputedStyle(element).getPropertyValue('--row-height')) || 34;
    };
    measure();
    addEventListener('resize', measure);
    return () => removeEventListener('resize', measure);
  }, [answer === null]);
  useLayoutEffect(() => {
    if (box.current && before && total > 0) box.current.scrollTop = before.top;
  }, [total > 0]);
  useEffect(() => loader.setRange(first, last), [loader, first, last]);
  // Remember the place, so that Back returns to it.
  useEffect(() => {
    const row = loader.rows.get(active.value);
    places.set(place, { top: top.value, key: row ? rowKey(row) : '', index: active.value });
  }, [top.value, active.value, place]);

  // The row under the focus may move in the list. Its place follows it, if it is still among the loaded rows.
  const activeKey = useRef(before?.key ?? '');
  useLayoutEffect(() => {
    const row = loader.rows.get(active.peek());
    if (!row || rowKey(row) === activeKey.current) return;
    const moved = [...loader.rows].find(([, other]) => rowKey(other) === activeKey.current)?.[0];
    const isFocused = document.activeElement?.getAttribute('aria-rowindex') === String(active.peek() + 2);
    if (moved === undefined || isMoving.current) activeKey.current = rowKey(row);
    else {
      active.value = moved;
      if (isFocused && moved >= first && moved < last) wantsFocus.current = true;
    }
    isMoving.current = false;
  }, [loader.answer.value, active.value]);

  const focusActive = () => box.current?.querySelector<HTMLElement>(`[aria-rowindex="${active.peek() + 2}"]`);
  useLayoutEffect(() => {
    const element = wantsFocus.current ? focusActive() : null;
    if (!element) return;
    wantsFocus.current = false;
    element.focus({ preventScroll: true });
  });

  const move = (index: number) => {
    const element = box.current;
    if (!element || total === 0) return;
    active.value = Math.max(0, Math.min(total - 1, index));
    isMoving.current = true;
    wantsFocus.current = true;
    const head = element.querySelector<HTMLElement>('.list-head')?.offsetHeight ?? 0;
    const start = active.value * rowHeight.value;
    const visible = height.value - head - rowHeight.value;
    const wanted = start < top.value ? start : Math.max(top.value, start - visible);
    if (wanted !== top.value) {
      element.scrollTop = wanted;
      top.value = wanted;
    }
    focusActive()?.focus({ preventScroll: true });
    const row = loader.rows.get(active.value);
    if (row && isPeeking.current) peek?.(row);
  };
  const isPeeking = useRef(false);
  const togglePeek = () => {
    const row = loader.rows.get(active.peek());
    if (!peek || !row) return false;
    isPeeking.current = !isPeeking.current;
    peek(isPeeking.current ? row : null);
    return true;
  };
  const page = Math.max(1, Math.floor(height.value / rowHeight.value) - 2);
  const press = (key: string): boolean => {
    const by: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: page, PageUp: -page };
    if (key === 'Home') move(0);
    else if (key === 'End') move(total - 1);
    else if (by[key] !== undefined) {
      // Without a focused row, the first key only returns to the place.
      const isHere = box.current?.contains(document.activeElement) && document.activeElement?.getAttribute('aria-rowindex');
      move(isHere ? active.peek() + (by[key] ?? 0) : active.peek());
    } else if (key === ' ') return togglePeek();
    else if (key === 'Escape' && isPeeking.current) return togglePeek();
    else return false;
    return true;
  };
  const latestPress = useRef(press);
  latestPress.current = press;
  useEffect(() => {
    const isFree = () => document.activeElement === document.body || box.current?.contains(document.activeElement) === true;
    const keys = (key: string) => (key === 'j' || key === 'k' || (/^(Home|End|Page(Up|Down)|Arrow(Up|Down))$/.test(key) && isFree())) && latestPress.current(key);
    pageKeys.keys = keys;
    // The next page may have set its own keys before this one ends.
    return () => {
      if (pageKeys.keys === keys) pageKeys.keys = null;
    };
  }, []);
  const onKeyDown = (event: TargetedKeyboardEvent<HTMLDivElement>) => {
    const row = (event.target as HTMLElement).closest?.('[role=row][aria-rowindex]');
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== row) return;
    if (event.key === 'Enter') (row as HTMLElement).querySelector<HTMLElement>('a[href]')?.click();
    else if (event.key === 'j' || event.key === 'k' || !press(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
  };

  const [drawnFirst, drawnLast] = [Math.max(0, first - DRAWN_MARGIN), Math.min(total, last + DRAWN_MARGIN)];
  const drawn = Array.from({ length: Math.max(0, drawnLast - drawnFirst) }, (_, index) => drawnFirst + index);
  return (
    <>
      {loader.problem.value && <p class="error">{loader.problem.value}</p>}
      <div
        ref={box}
        class={`virtual ${name}`}
        role="table"
        aria-label={label}
        aria-rowcount={total + 1}
        tabIndex={total === 0 ? 0 : -1}
        onScroll={(event) => (top.value = event.currentTarget.scrollTop)}
        onKeyDown={onKeyDown}
      >
        <ListHead columns={columns} />
        {total === 0 ? (
          <div role="row">
            <p role="cell" class="empty">
              {answer ? empty : loader.problem.value ? '' : 'loading…'}
            </p>
          </div>
        ) : (
          <div role="rowgroup" class="list-space" style={{ height: `${total * rowHeight.value}px` }}>
            <div role="presentation" class="list-shift" style={{ transform: `translateY(${drawnFirst * rowHeight.value}px)` }}>
              {drawn.map((index) => {
                const row = loader.rows.get(index);
                return (
                  <div
                    key={index}
                    role="row"
                    class={`list-row ${row ? (rowClass?.(row) ?? '') : 'pending'}`}
                    aria-rowindex={index + 2}
                    data-row
                    tabIndex={index === active.value ? 0 : -1}
                    onFocus={() => {
                      isMoving.current ||= index !== active.peek();
                      active.value = index;
                    }}
                    onClick={(event) => {
                      if (!(event.target as Element).closest('a, button, details')) move(index);
                    }}
                    onDblClick={() => peek && togglePeek()}
                  >
                    {(row ? cells(row) : columns.map(() => null)).map((cell, nth) => (
                      <div key={columns[nth]?.name} role="cell" class={`c-${columns[nth]?.name} ${columns[nth]?.isRight ? 'right' : ''}`}>
                        {cell}
                      </div>
                    ))}
                  </div>
                );
              })}
            </div>
          </div>
        )}
      </div>
    </>
  );
}

function ListHead({ columns }: { columns: ListColumn[] }) {
  const order = queryParam('sort');
  return (
    <div role="rowgroup" class="list-head">
      <div role="row" class="list-row">
        {columns.map(({ name, head, isSortable, isRight, isHeadHidden }) => {
          const direction = order === name ? 'ascending' : order === `-${name}` ? 'descending' : undefined;
          const next = direction === 'ascending' ? `-${name}` : direction ? null : name;
          return (
            <div key={name} role="columnheader" class={`c-${name} ${isRight ? 'right' : ''}`} aria-sort={direction}>
              {isSortable ? (
                <button type="button" class="sort" title={direction ? `sorted by ${head}, ${direction}` : `sort by ${head}`} onClick={() => setQueryParam('sort', next)}>
                  {head} <span aria-hidden="true">{direction === 'ascending' ? '▲' : direction ? '▼' : ''}</span>
                </button>
              ) : (
                <span class={isHeadHidden ? 'sr' : undefined}>{head}</span>
              )}
            </div>
          );
        })}
      </div>
    </div>
  );
}
