// The parts of one file's diff. Each part is a table of a fixed number of rows. Only the parts near the visible area are
// in the document, so that a file with ten thousand lines stays quick.

import type { DiffPartsView } from '../api';
import { fetchText } from '../session';
import { setHtml } from '../trusted';

/** How many parts one request fetches. */
const PARTS_PER_REQUEST = 4;
/** Height of a row, in pixels, before a part was shown. */
const ROW_HEIGHT_PX = 20;
/** Parts of a file with at most this many rows stay in the document once they were shown. */
const MAX_KEPT_ROWS = 150;
/** How far outside the visible area parts are shown. */
const MARGIN = '400px 0px';

export interface PartsOptions {
  /** The element that holds the parts. */
  box: HTMLElement;
  /** The address of the file's diff, without `part`. */
  url: string;
  /** Called after the rows of a part were inserted. */
  onShow(part: HTMLElement): void;
  /** Called before the rows of a part are removed. */
  onHide(part: HTMLElement): void;
  onError(error: unknown): void;
}

export class DiffParts {
  private html: (string | undefined)[] = [];
  private readonly requests = new Map<number, Promise<void>>();
  private readonly observer: IntersectionObserver;
  private rows = 0;
  private isClosed = false;

  constructor(private readonly options: PartsOptions) {
    this.observer = new IntersectionObserver((entries) => entries.forEach((entry) => this.onMove(entry)), { rootMargin: MARGIN });
  }

  /** Fetches the first parts, and makes an empty element for each of the others. */
  async open(): Promise<void> {
    const first = await this.request(0);
    if (!first || this.isClosed) return;
    this.rows = first.rows;
    const count = Math.ceil(first.rows / first.rows_per_part);
    this.options.box.replaceChildren();
    this.options.box.style.minHeight = '';
    for (let index = 0; index < count; index += 1) {
      const part = document.createElement('div');
      part.className = 'part';
      part.dataset.part = String(index);
      const rows = Math.min(first.rows_per_part, first.rows - index * first.rows_per_part);
      part.style.minHeight = `${rows * ROW_HEIGHT_PX}px`;
      this.options.box.append(part);
    }
    this.store(first);
    const parts = [...this.options.box.children] as HTMLElement[];
    // The first part is shown at once, without waiting for the observer.
    if (parts[0]) this.show(parts[0]);
    for (const part of parts) this.observer.observe(part);
  }

  close(): void {
    this.isClosed = true;
    this.observer.disconnect();
    for (const part of this.options.box.querySelectorAll<HTMLElement>('.part')) this.options.onHide(part);
  }

  /** Shows the part with a line, and returns its row. */
  async reveal(find: (part: HTMLElement) => Element | null): Promise<Element | null> {
    for (const part of this.options.box.querySelectorAll<HTMLElement>('.part')) {
      const wasShown = part.childElementCount > 0;
      await this.load(part);
      const row = find(part);
      if (row) return row;
      if (!wasShown) this.hide(part);
    }
    return null;
  }

  private async request(part: number): Promise<DiffPartsView | null> {
    try {
      const separator = this.options.url.includes('?') ? '&' : '?';
      return JSON.parse(await fetchText(`${this.options.url}${separator}part=${part}&count=${PARTS_PER_REQUEST}`)) as DiffPartsView;
    } catch (error) {
      if (!this.isClosed) this.options.onError(error);
      return null;
    }
  }

  private store(answer: DiffPartsView): void {
    answer.html.forEach((html, index) => (this.html[answer.first + index] = html));
  }

  private onMove(entry: IntersectionObserverEntry): void {
    const part = entry.target as HTMLElement;
    if (entry.isIntersecting) void this.load(part);
    else if (this.rows > MAX_KEPT_ROWS) this.hide(part);
  }

  private async load(part: HTMLElement): Promise<void> {
    const index = Number(part.dataset.part);
    if (this.html[index] === undefined) {
      const first = index - (index % PARTS_PER_REQUEST);
      let request = this.requests.get(first);
      if (!request) {
        request = this.request(first).then((answer) => {
          if (answer) this.store(answer);
          else this.requests.delete(first);
        });
        this.requests.set(first, request);
      }
      await request;
    }
    if (!this.isClosed) this.show(part);
  }

  private show(part: HTMLElement): void {
    const html = this.html[Number(part.dataset.part)];
    if (html === undefined || part.childElementCount > 0) return;
    setHtml(part, html);
    part.style.minHeight = '';
    this.options.onShow(part);
  }

  /** Removes the rows of a part, unless a person is typing in it or has made it show more lines. */
  private hide(part: HTMLElement): void {
    if (part.childElementCount === 0 || part.dataset.grown || part.querySelector('textarea')) return;
    part.style.minHeight = `${part.offsetHeight}px`;
    this.options.onHide(part);
    part.replaceChildren();
  }
}

/** How many lines one press of a button shows above or below a group of changes. */
const LINES_PER_PRESS = 20;

/** Shows unchanged lines that the diff leaves out, next to the row with the pressed button. */
export async function growGap(button: HTMLElement, linesUrl: string): Promise<void> {
  const row = button.closest<HTMLTableRowElement>('tr.hunk');
  const part = button.closest<HTMLElement>('.part');
  if (!row || !part) return;
  const [from, to] = [Number(row.dataset.from), Number(row.dataset.to)];
  const direction = button.dataset.grow;
  const isWhole = direction === 'all';
  const first = direction === 'up' ? Math.max(from, to - LINES_PER_PRESS + 1) : from;
  const last = direction === 'down' ? Math.min(to, from + LINES_PER_PRESS - 1) : to;
  const separator = linesUrl.includes('?') ? '&' : '?';
  const html = await fetchText(`${linesUrl}${separator}from=${first}&to=${last}&shift=${row.dataset.shift}`);
  const holder = document.createElement('div');
  setHtml(holder, html);
  const lines = [...holder.querySelectorAll('tr')];
  part.dataset.grown = 'yes';
  if (direction === 'up') row.after(...lines);
  else row.before(...lines);
  const [nextFrom, nextTo] = direction === 'up' ? [from, first - 1] : [last + 1, to];
  if (isWhole || nextTo < nextFrom || lines.length === 0) {
    row.remove();
    return;
  }
  row.dataset.from = String(nextFrom);
  row.dataset.to = String(nextTo);
  const count = row.querySelector('[data-count]');
  if (count) count.textContent = String(nextTo - nextFrom + 1);
}
