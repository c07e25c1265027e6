// The log of an attempt: its rows, and a toolbar to search, follow and jump.

import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { overlay } from '../navigation';
import { queryParam, setQueryParam } from '../route';
import { fetchBlob } from '../session';
import { reportError } from '../ui';
import type { TranscriptHitView } from '../api';
import type { LogProps } from './log';
import { INITIAL_STATE, LogView } from './log-view';
import './log.css';

const SEARCH_DELAY_MS = 200;
const count = (n: number, noun: string) => `${n.toLocaleString('en')} ${noun}${n === 1 ? '' : 's'}`;

interface Found {
  isComplete: boolean;
  hits: TranscriptHitView[];
  total: number;
  at: number;
}

/** Opens the lines of the program as plain text in a new tab. The request needs the key of this page, so a plain link
 * would be refused. */
async function openRaw(attempt: string): Promise<void> {
  try {
    const url = URL.createObjectURL(await fetchBlob(`/api/v1/page/log-raw/${attempt}`));
    const link = document.createElement('a');
    link.href = url;
    link.target = '_blank';
    link.rel = 'noopener';
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  } catch (error) {
    reportError(error);
  }
}

export function LogPanel({ attempt, live, isTall }: LogProps) {
  const box = useRef<HTMLDivElement>(null);
  const view = useRef<LogView | null>(null);
  const field = useRef<HTMLInputElement>(null);
  const state = useSignal(INITIAL_STATE);
  const found = useSignal<Found | null>(null);
  const isAllOpen = useSignal(false);
  const delay = useRef(0);
  const isFull = queryParam('log') === 'full';

  useEffect(() => {
    if (!box.current) return;
    const created = new LogView(box.current, attempt, live, Number(queryParam('entry') || -1), (next) => (state.value = next));
    view.current = created;
    return () => {
      clearTimeout(delay.current);
      created.destroy();
    };
  }, [attempt]);
  useEffect(() => view.current?.setLive(live), [live]);
  useEffect(() => {
    const onKey = (event: Event) => {
      const key = (event as CustomEvent<string>).detail;
      if (key === 'f') view.current?.follow();
      else if (key === 'w') void openRaw(attempt);
      else if (key === 'x') nextFailure();
    };
    const onEscape = (event: KeyboardEvent) => {
      if (event.key === 'Escape' && !overlay.peek() && queryParam('log') === 'full' && document.activeElement !== field.current) setQueryParam('log', null);
    };
    document.addEventListener('regatta-log', onKey);
    document.addEventListener('keydown', onEscape);
    return () => {
      document.removeEventListener('regatta-log', onKey);
      document.removeEventListener('keydown', onEscape);
    };
  }, [attempt]);

  const search = (text: string) => {
    clearTimeout(delay.current);
    delay.current = window.setTimeout(async () => {
      try {
        const result = await view.current?.search(text);
        // A slow answer must not replace the answer to a newer text.
        if (field.current?.value !== text) return;
        found.value = result ? { isComplete: result.is_complete, hits: result.hits, total: result.total, at: -1 } : null;
        if (result?.hits.length) moveToHit(1);
      } catch (error) {
        reportError(error);
      }
    }, SEARCH_DELAY_MS);
  };
  const moveToHit = (by: number) => {
    const current = found.value;
    if (!current?.hits.length) return;
    const at = (Math.max(current.at + by, by < 0 && current.at < 1 ? current.hits.length - 1 : 0)) % current.hits.length;
    found.value = { ...current, at };
    const hit = current.hits[at];
    if (hit) void view.current?.showHit(hit);
  };
  const nextFailure = () => {
    const { failures } = state.value;
    if (!view.current || failures.length === 0) return;
    const { entry, scrollCount } = lastFailure.current;
    // After a person scrolled, the next failure is the next below the top of the window.
    const first = scrollCount === view.current.scrollCount ? entry + 1 : view.current.firstVisible();
    const next = failures.find((number) => number >= first) ?? failures[0] ?? 0;
    lastFailure.current = { entry: next, scrollCount: view.current.scrollCount };
    void view.current.showEntry(next);
  };
  const lastFailure = useRef({ entry: -1, scrollCount: -1 });

  const { isLoaded, isComplete, records, total, failures, isFollowing, newCount, hasNewOutput, error } = state.value;
  return (
    <section class={`panel log ${isFull ? 'full' : ''} ${isTall ? 'tall' : ''}`} aria-label={`Log of ${attempt}`}>
      <header>
        <h2>Log</h2>
        <span class="aside">
          {attempt}
          {isComplete && total > 0 && ` · ${count(total, 'entry').replace('entrys', 'entries')}`}
          {isLoaded && !isComplete && ` · reading, ${count(records, 'record')} so far`}
        </span>
        <div class="log-tools">
          <span class="log-search">
            <input
              ref={field}
              id="filter"
              type="search"
              placeholder="Search the log"
              aria-label="Search the log"
              spellcheck={false}
              onInput={(event) => search(event.currentTarget.value)}
              onKeyDown={(event) => {
                if (event.key === 'Enter') moveToHit(event.shiftKey ? -1 : 1);
                if (event.key === 'Escape' && !event.currentTarget.value) box.current?.focus();
              }}
            />
            {found.value && (
              <span class="aside" role="status">
                {found.value.total === 0 ? 'none' : `${(found.value.at + 1).toLocaleString('en')} of ${found.value.total.toLocaleString('en')}`}
                {!found.value.isComplete && ' so far'}
              </span>
            )}
            <button type="button" class="do" title="previous (Shift-Enter)" aria-label="previous match" disabled={!found.value?.hits.length} onClick={() => moveToHit(-1)}>
              ↑
            </button>
            <button type="button" class="do" title="next (Enter)" aria-label="next match" disabled={!found.value?.hits.length} onClick={() => moveToHit(1)}>
              ↓
            </button>
          </span>
          {failures.length > 0 && (
            <button type="button" class="do log-failures" title="jump to the next failure" onClick={nextFailure}>
              ✕ {failures.length.toLocaleString('en')} failed <kbd>x</kbd>
            </button>
          )}
          <button type="button" class="do" aria-pressed={isFollowing} onClick={() => (isFollowing ? view.current?.stopFollowing() : view.current?.follow())}>
            Follow <kbd>f</kbd>
          </button>
          <button
            type="button"
            class="do"
            onClick={() => {
              isAllOpen.value = !isAllOpen.value;
              view.current?.setAllOpen(isAllOpen.value);
            }}
          >
            {isAllOpen.value ? 'Collapse all' : 'Expand all'}
          </button>
          <button type="button" class="do" title={`regatta logs ${attempt} --raw`} onClick={() => void openRaw(attempt)}>
            Raw <kbd>w</kbd>
          </button>
          <button type="button" class="do" aria-pressed={isFull} onClick={() => setQueryParam('log', isFull ? null : 'full', true)}>
            {isFull ? 'Close' : 'Full screen'} {isFull && <kbd>Esc</kbd>}
          </button>
        </div>
      </header>
      {error && <p class="error">could not load the log: {error}</p>}
      <div class="log-box" ref={box} tabIndex={0} role="region" aria-label={`Entries of the log of ${attempt}`} />
      {isComplete && total === 0 && <p class="empty">{live ? 'No output yet.' : 'No output.'}</p>}
      {!isLoaded && !error && <p class="empty">loading…</p>}
      {(newCount > 0 || hasNewOutput) && !isFollowing && (
        <button type="button" class="do first log-new" onClick={() => view.current?.follow()}>
          {newCount > 0 ? `${newCount.toLocaleString('en')} new` : 'new output'} ↓
        </button>
      )}
    </section>
  );
}
