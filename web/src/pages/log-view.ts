// Draws the rows of a log near the visible part, and fetches them by number. A log may have hundreds of megabytes, so
// neither its rows nor their HTML stay in memory.

import { clockTime } from '../format';
import { setQueryParam } from '../route';
import { fetchText } from '../session';
import { setHtml } from '../trusted';
import type { TranscriptEntryView, TranscriptHitView, TranscriptLinesView, TranscriptSearchView, TranscriptWindowView } from '../api';
import { clearMatches, entryTools, foldOf, markMatches, replaceFold, updateHead, writeClipboard } from './log-dom';
import { Heights } from './log-heights';

const ESTIMATED_ROW_PX = 30;
const MAX_ROWS = 400;
const MAX_FETCHED_ROWS = 100;
const MAX_CACHED_CHARS = 2_000_000;
const MAX_KEPT_BODY_CHARS = 300_000;
const LINES_PER_FETCH = 1_000;
const LINES_AROUND_HIT = 30;
const POLL_INTERVAL_MS = 1_000;
const INDEXING_INTERVAL_MS = 250;
/** How near to the end a log counts as followed. */
const END_PX = 30;

interface CachedEntry extends TranscriptEntryView {
  version: number;
  body?: string;
}

/** What the toolbar shows. */
export interface LogState {
  isLoaded: boolean;
  isComplete: boolean;
  records: number;
  total: number;
  failures: number[];
  isFollowing: boolean;
  /** The number of entries that came since a person scrolled up. */
  newCount: number;
  /** Whether an entry changed since a person scrolled up. */
  hasNewOutput: boolean;
  error: string;
}

export const INITIAL_STATE: LogState = { isLoaded: false, isComplete: false, records: 0, total: 0, failures: [], isFollowing: true, newCount: 0, hasNewOutput: false, error: '' };

export class LogView {
  private heights = new Heights(ESTIMATED_ROW_PX);
  private cache = new Map<number, CachedEntry>();
  private rows = new Map<number, HTMLElement>();
  private toggled = new Map<number, boolean>();
  private openAll: boolean | null = null;
  private state = INITIAL_STATE;
  private seenTotal = 0;
  private version = 0;
  private seenVersion = 0;
  /** Grows when a person scrolls. */
  scrollCount = 0;
  private isDestroyed = false;
  private isFetching = false;
  private expectedTop = -1;
  private timer = 0;
  private frame = 0;
  private query = '';
  private current: TranscriptHitView | null = null;
  private list = document.createElement('div');
  private observer = new ResizeObserver(() => this.schedule());
  private clock = setInterval(() => this.tickRunning(), 1_000);

  constructor(
    private box: HTMLElement,
    private attempt: string,
    private isLive: boolean,
    /** The entry that the address names, or -1. */
    private linked: number,
    private onState: (state: LogState) => void,
  ) {
    this.list.className = 'log-rows';
    box.replaceChildren(this.list);
    box.addEventListener('scroll', this.onScroll);
    box.addEventListener('click', this.onClick);
    box.addEventListener('toggle', this.onToggle, true);
    this.observer.observe(box);
    void this.poll();
  }

  destroy(): void {
    this.isDestroyed = true;
    clearTimeout(this.timer);
    clearInterval(this.clock);
    cancelAnimationFrame(this.frame);
    this.observer.disconnect();
    this.box.removeEventListener('scroll', this.onScroll);
    this.box.removeEventListener('click', this.onClick);
    this.box.removeEventListener('toggle', this.onToggle, true);
    clearMatches();
  }

  private update(change: Partial<LogState>): void {
    this.state = { ...this.state, ...change };
    this.onState(this.state);
  }

  // Fetching

  /** Fetches the changed entries of the visible part and the size of the log. */
  private async poll(): Promise<void> {
    clearTimeout(this.timer);
    if (this.isDestroyed) return;
    try {
      const numbers = [...this.rows.keys()];
      const first = Math.min(...numbers);
      const isFirst = !this.state.isComplete || numbers.length === 0;
      const seen = isFirst ? 0 : Math.min(...numbers.map((number) => this.cache.get(number)?.version ?? 0));
      const range = isFirst ? `count=${MAX_FETCHED_ROWS}&has_preview=${numbers.length > 0}` : `from=${first}&count=${numbers.length}&seen=${seen}`;
      const view = await this.fetchWindow(range);
      if (this.isDestroyed) return;
      if (!isFirst) for (const number of numbers) this.setVersion(number, view.version);
      if (view.is_complete) this.takeWindow(view);
      else this.showPreview(view);
      this.update({ error: '' });
    } catch (error) {
      if (!this.isDestroyed) this.update({ error: error instanceof Error ? error.message : String(error) });
    }
    if (!this.isDestroyed && (this.isLive || !this.state.isComplete)) {
      this.timer = window.setTimeout(() => void this.poll(), this.state.isComplete || this.state.error ? POLL_INTERVAL_MS : INDEXING_INTERVAL_MS);
    }
  }

  /** Fetches once more, because the attempt has ended. */
  setLive(isLive: boolean): void {
    if (this.isLive === isLive) return;
    this.isLive = isLive;
    void this.poll();
  }

  private async fetchWindow(query: string): Promise<TranscriptWindowView> {
    return JSON.parse(await fetchText(`/api/v1/page/log/${this.attempt}?${query}`)) as TranscriptWindowView;
  }

  private setVersion(number: number, version: number): void {
    const cached = this.cache.get(number);
    if (cached) cached.version = version;
  }

  private takeWindow(view: TranscriptWindowView): void {
    const wasPreview = !this.state.isComplete;
    const previewRows = this.rows.size;
    const anchor = wasPreview && previewRows > 0 ? this.anchor() : null;
    if (wasPreview) {
      for (const row of this.rows.values()) row.remove();
      this.rows.clear();
      this.cache.clear();
      [this.seenTotal, this.seenVersion] = [view.total, view.version];
    }
    if (view.total !== this.heights.length) this.heights.resize(view.total);
    for (const entry of view.entries) this.store(entry, view.version);
    if (this.state.isFollowing) [this.seenTotal, this.seenVersion] = [view.total, view.version];
    this.version = view.version;
    this.update({ isLoaded: true, isComplete: true, records: view.records, total: view.total, failures: view.failures, newCount: Math.max(0, view.total - this.seenTotal), hasNewOutput: view.version > this.seenVersion });
    this.render();
    if (wasPreview && this.linked >= 0 && this.linked < view.total) {
      void this.showEntry(this.linked);
      return;
    }
    // The numbers of the preview count from its first entry, so its last entry is the last of the log.
    if (anchor && !this.state.isFollowing) this.scrollTo(this.heights.top(view.total - previewRows + anchor.number) - anchor.offset);
  }

  private store(entry: TranscriptEntryView, version: number): void {
    this.cache.delete(entry.number);
    this.cache.set(entry.number, { ...entry, version });
    const row = this.rows.get(entry.number);
    if (!row) return;
    const selection = getSelection();
    // A row whose text a person selects is drawn again with the next change.
    if (selection && !selection.isCollapsed && row.contains(selection.anchorNode)) {
      this.setVersion(entry.number, 0);
      return;
    }
    // A person who reads the output of a running call must not lose the place.
    if (!this.state.isFollowing && updateHead(row, entry.html)) {
      this.fillTimes(row);
      return;
    }
    const hadFocus = row.contains(document.activeElement);
    this.fill(row, entry.number);
    if (hadFocus) row.querySelector('summary')?.focus({ preventScroll: true });
  }

  /** Shows the last entries while the daemon still reads the log. */
  private showPreview(view: TranscriptWindowView): void {
    if (this.rows.size === 0) {
      this.heights.resize(view.entries.length);
      const first = view.entries[0]?.number ?? 0;
      for (const entry of view.entries) {
        const number = entry.number - first;
        this.cache.set(number, { ...entry, number, version: 0 });
      }
      this.update({ isLoaded: true });
      this.render();
    }
    this.update({ records: view.records });
  }

  private async fetchMissing(first: number, last: number): Promise<void> {
    if (this.isFetching || !this.state.isComplete) return;
    let from = first;
    while (from <= last && this.cache.has(from)) from += 1;
    if (from > last) return;
    this.isFetching = true;
    try {
      const view = await this.fetchWindow(`from=${from}&count=${Math.min(MAX_FETCHED_ROWS, last - from + 1)}&has_preview=true`);
      if (this.isDestroyed) return;
      // The daemon reads a log again that nobody has looked at for long.
      if (view.is_complete) this.takeWindow(view);
      else await new Promise((done) => setTimeout(done, INDEXING_INTERVAL_MS));
    } catch (error) {
      this.update({ error: error instanceof Error ? error.message : String(error) });
      return;
    } finally {
      this.isFetching = false;
    }
    this.schedule();
  }

  /** Drops entries that are not drawn, the least recently fetched first. */
  private trimCache(): void {
    let chars = 0;
    for (const entry of this.cache.values()) chars += entry.html.length + (entry.body?.length ?? 0);
    for (const [number, entry] of this.cache) {
      if (chars <= MAX_CACHED_CHARS) return;
      if (this.rows.has(number)) continue;
      chars -= entry.html.length + (entry.body?.length ?? 0);
      this.cache.delete(number);
    }
  }

  // Drawing

  private schedule(): void {
    if (this.frame || this.isDestroyed) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.render();
    });
  }

  /** Returns the first visible row and its distance from the top edge. */
  private anchor(): { number: number; offset: number } | null {
    if (this.heights.length === 0) return null;
    const number = this.heights.rowAt(this.box.scrollTop);
    return { number, offset: this.heights.top(number) - this.box.scrollTop };
  }

  private visibleRange(): [number, number] {
    const { scrollTop, clientHeight } = this.box;
    const top = this.state.isFollowing ? this.heights.total() - clientHeight : scrollTop;
    const first = this.heights.rowAt(top - clientHeight);
    const last = Math.min(this.heights.rowAt(top + 2 * clientHeight), first + MAX_ROWS);
    return [first, last];
  }

  private render(): void {
    if (this.isDestroyed || this.heights.length === 0) return;
    const anchor = this.anchor();
    // Measured heights change the visible range, at most a few times.
    for (let pass = 0; pass < 3; pass += 1) {
      const [first, last] = this.visibleRange();
      const isChanged = this.drawRows(first, last);
      const isMeasured = this.measure();
      this.list.style.paddingTop = `${this.heights.top(first)}px`;
      this.list.style.paddingBottom = `${Math.max(0, this.heights.total() - this.heights.top(last + 1))}px`;
      if (this.state.isFollowing) this.scrollTo(this.box.scrollHeight);
      else if (anchor) this.scrollTo(this.heights.top(anchor.number) - anchor.offset);
      void this.fetchMissing(first, last);
      if (!isChanged && !isMeasured) break;
    }
    this.trimCache();
    this.highlight();
  }

  private drawRows(first: number, last: number): boolean {
    let isChanged = false;
    for (const [number, row] of this.rows) {
      if (number >= first && number <= last) continue;
      this.keepBody(number, row);
      this.observer.unobserve(row);
      row.remove();
      this.rows.delete(number);
      isChanged = true;
    }
    let next = this.list.firstElementChild;
    for (let number = first; number <= last; number += 1) {
      let row = this.rows.get(number);
      if (!row) {
        row = document.createElement('div');
        row.dataset.entry = String(number);
        this.list.insertBefore(row, next);
        this.rows.set(number, row);
        this.fill(row, number);
        this.observer.observe(row);
        isChanged = true;
      } else {
        next = row.nextElementSibling;
        if (row.classList.contains('absent') && this.cache.has(number)) {
          this.fill(row, number);
          isChanged = true;
        }
      }
    }
    return isChanged;
  }

  private measure(): boolean {
    let isChanged = false;
    for (const [number, row] of this.rows) {
      const height = row.offsetHeight;
      if (row.classList.contains('absent') || Math.abs(height - this.heights.get(number)) < 0.5) continue;
      this.heights.set(number, height);
      isChanged = true;
    }
    return isChanged;
  }

  private fill(row: HTMLElement, number: number): void {
    const entry = this.cache.get(number);
    row.className = entry ? `entry ${entry.class}` : 'entry absent';
    if (!entry) {
      row.textContent = '…';
      return;
    }
    setHtml(row, entry.html);
    this.fillTimes(row);
    const details = row.querySelector('details');
    if (details) {
      const isOpen = this.toggled.get(number) ?? this.openAll ?? entry.is_open;
      details.open = isOpen;
      if (isOpen) void this.loadBody(number, row);
    }
    if (details || entry.class === 'message') {
      row.append(entryTools(number));
    }
  }

  private fillTimes(row: HTMLElement): void {
    for (const time of row.querySelectorAll<HTMLElement>('time[data-at]')) time.textContent = clockTime(Number(time.dataset.at));
    this.tickRunning();
  }

  /** Fetches the body of an open row, unless the row has it already. */
  private async loadBody(number: number, row: HTMLElement): Promise<void> {
    const body = row.querySelector<HTMLElement>('.body');
    const entry = this.cache.get(number);
    if (!body || !entry) return;
    if (entry.body !== undefined) setHtml(body, entry.body);
    if (body.childElementCount > 0) return;
    const lines = await this.fetchLines(number, '');
    if (this.isDestroyed || body.childElementCount > 0) return;
    entry.body = lines.html;
    body.classList.toggle('md', row.classList.contains('thought'));
    setHtml(body, lines.html);
    this.schedule();
  }

  /** Keeps the lines that a person asked for when their row leaves the page. */
  private keepBody(number: number, row: HTMLElement): void {
    const body = row.querySelector('.body');
    const entry = this.cache.get(number);
    if (body && entry && row.dataset.extended) entry.body = body.innerHTML.length <= MAX_KEPT_BODY_CHARS ? body.innerHTML : undefined;
  }

  private async fetchLines(number: number, query: string): Promise<TranscriptLinesView> {
    return JSON.parse(await fetchText(`/api/v1/page/log/${this.attempt}/${number}${query}`)) as TranscriptLinesView;
  }

  private tickRunning(): void {
    for (const since of this.list.querySelectorAll<HTMLElement>('[data-since]')) {
      const seconds = Math.max(0, Math.floor((Date.now() - Number(since.dataset.since)) / 1_000));
      since.textContent = seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
    }
  }

  private scrollTo(top: number): void {
    if (Math.abs(this.box.scrollTop - top) < 1) return;
    this.box.scrollTop = top;
    this.expectedTop = this.box.scrollTop;
  }

  // What a person does

  private onScroll = (): void => {
    const { scrollTop, scrollHeight, clientHeight } = this.box;
    if (Math.abs(scrollTop - this.expectedTop) > 1) {
      this.scrollCount += 1;
      const isAtEnd = scrollHeight - scrollTop - clientHeight < END_PX;
      if (isAtEnd !== this.state.isFollowing) this.setFollowing(isAtEnd);
    }
    this.expectedTop = -1;
    this.schedule();
  };

  private setFollowing(isFollowing: boolean): void {
    [this.seenTotal, this.seenVersion] = [this.heights.length, this.version];
    this.update({ isFollowing, newCount: 0, hasNewOutput: false });
  }

  private rowNumber(target: EventTarget | null): number {
    return Number((target as Element | null)?.closest?.<HTMLElement>('[data-entry]')?.dataset.entry ?? -1);
  }

  private onToggle = (event: Event): void => {
    const details = event.target as HTMLDetailsElement;
    const number = this.rowNumber(details);
    const row = this.rows.get(number);
    const isOpen = this.toggled.get(number) ?? this.openAll ?? this.cache.get(number)?.is_open;
    if (!row || isOpen === details.open) return;
    this.toggled.set(number, details.open);
    if (details.open) void this.loadBody(number, row);
    this.schedule();
  };

  private onClick = (event: Event): void => {
    const target = event.target as Element;
    const number = this.rowNumber(target);
    if (target.closest('summary') && this.state.isFollowing && this.heights.length - number > 1) this.setFollowing(false);
    const row = this.rows.get(number);
    const fold = target.closest<HTMLElement>('.fold');
    if (row && fold?.classList.contains('renew')) {
      this.fill(row, number);
      this.schedule();
    } else if (fold) {
      const from = Number(fold.dataset.from);
      void this.unfold(number, fold, from, Math.min(Number(fold.dataset.to), from + LINES_PER_FETCH - 1));
    }
    if (target.closest('.copy')) void this.copy(number, target as HTMLElement);
    if (target.closest('.link-entry')) {
      setQueryParam('entry', String(number));
      void writeClipboard(location.href, target as HTMLElement, 'link');
    }
  };

  /** Replaces a part of a folded range by its lines. */
  private async unfold(number: number, fold: HTMLElement, from: number, to: number): Promise<void> {
    if (this.state.isFollowing) this.setFollowing(false);
    const lines = await this.fetchLines(number, `?from=${from}&to=${to}`);
    if (!fold.isConnected) return;
    replaceFold(fold, lines.html, from, to);
    const row = this.rows.get(number);
    if (row) row.dataset.extended = 'yes';
    this.schedule();
  }

  private async copy(number: number, button: HTMLElement): Promise<void> {
    const text = await fetchText(`/api/v1/page/log/${this.attempt}/${number}?plain=true`);
    await writeClipboard(text, button, 'copy');
  }

  follow(): void {
    this.setFollowing(true);
    for (const [number, row] of this.rows) if (row.querySelector('.renew')) this.fill(row, number);
    this.render();
  }

  stopFollowing(): void {
    this.setFollowing(false);
  }

  /** Opens or closes all rows. */
  setAllOpen(isOpen: boolean): void {
    this.openAll = isOpen;
    this.toggled.clear();
    for (const [number, row] of this.rows) {
      const details = row.querySelector('details');
      if (!details) continue;
      details.open = isOpen;
      if (isOpen) void this.loadBody(number, row);
    }
    this.schedule();
  }

  /** Returns the number of the first visible entry. */
  firstVisible(): number {
    return this.heights.rowAt(this.box.scrollTop + 1);
  }

  /** Scrolls to an entry and opens it. */
  async showEntry(number: number): Promise<void> {
    if (this.state.isFollowing) this.setFollowing(false);
    this.toggled.set(number, true);
    for (let attempt = 0; attempt < 100; attempt += 1) {
      this.scrollTo(Math.max(0, this.heights.top(number) - 8));
      this.render();
      const row = this.rows.get(number);
      if (row && !row.classList.contains('absent')) {
        const details = row.querySelector('details');
        if (details) details.open = true;
        await this.loadBody(number, row);
        this.scrollTo(Math.max(0, this.heights.top(number) - 8));
        this.render();
        return;
      }
      await new Promise((done) => setTimeout(done, 20));
    }
  }

  async search(query: string): Promise<TranscriptSearchView | null> {
    this.query = query.toLowerCase();
    this.current = null;
    if (!query) {
      this.highlight();
      return null;
    }
    return JSON.parse(await fetchText(`/api/v1/page/log-search/${this.attempt}?q=${encodeURIComponent(query)}`)) as TranscriptSearchView;
  }

  async showHit(hit: TranscriptHitView): Promise<void> {
    this.current = hit;
    await this.showEntry(hit.entry);
    const row = this.rows.get(hit.entry);
    if (!row || this.current !== hit) return;
    const line = hit.line ?? 0;
    if (line > 0 && !row.querySelector(`.ln[data-n="${line}"]`)) {
      const fold = foldOf(row, line);
      if (fold) await this.unfold(hit.entry, fold, Math.max(Number(fold.dataset.from), line - LINES_AROUND_HIT), Math.min(Number(fold.dataset.to), line + LINES_AROUND_HIT));
    }
    this.render();
    const target = row.querySelector<HTMLElement>(`.ln[data-n="${line}"]`) ?? row;
    const distance = target.getBoundingClientRect().top - this.box.getBoundingClientRect().top;
    this.scrollTo(Math.max(0, this.box.scrollTop + distance - this.box.clientHeight / 3));
    this.render();
  }

  /** Marks the found text in the drawn rows. */
  private highlight(): void {
    for (const marked of this.list.querySelectorAll('.current-hit')) marked.classList.remove('current-hit');
    if (!this.query) {
      clearMatches();
      return;
    }
    if (this.current) {
      const row = this.rows.get(this.current.entry);
      (row?.querySelector(`.ln[data-n="${this.current.line}"]`) ?? row?.querySelector('.call-head') ?? row)?.classList.add('current-hit');
    }
    markMatches(this.list, this.query);
  }
}
