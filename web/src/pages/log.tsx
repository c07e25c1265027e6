// The log of an attempt: what its program said and did.

import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { clockTime } from '../format';
import { queryParam, setQueryParam } from '../route';
import { fetchText } from '../session';
import { appendHtml, setHtml } from '../trusted';
import { Panel, reportError } from '../ui';
import type { TranscriptPieceView } from '../api';

/** Adds the time to log entries. An entry with the same second as the one before gets none. */
function stampTimes(box: Element): void {
  let last = '';
  for (const entry of box.children) {
    const wall = Number((entry as HTMLElement).dataset.wall ?? 0);
    const time = wall > 0 ? clockTime(wall) : '';
    const target = entry.querySelector<HTMLElement>('summary') ?? (entry as HTMLElement);
    if (time && time !== last && !target.dataset.time) target.dataset.time = time;
    last = time || last;
  }
}

/** Replaces the entry of a tool call by its newest state. */
function joinCalls(box: Element, first: Element | null): void {
  const known = new Map<string, Element>();
  let isNew = false;
  for (const row of [...box.children] as HTMLElement[]) {
    isNew ||= row === first;
    // A program may reuse the ids of calls in every turn.
    if (row.dataset.turn !== undefined) known.clear();
    const call = row.dataset.tool;
    if (call === undefined) continue;
    const before = known.get(call) as HTMLElement | undefined;
    if (!before || !isNew) {
      known.set(call, row);
      continue;
    }
    row.dataset.wall = before.dataset.wall;
    if (before instanceof HTMLDetailsElement && row instanceof HTMLDetailsElement && before.dataset.touched) {
      row.open = before.open;
      row.dataset.touched = before.dataset.touched;
    }
    before.replaceWith(row);
    known.set(call, row);
  }
}

/** The output of an attempt's program, fetched in pieces. It scrolls to the end until a person scrolls up. */
export function Log({ attempt, live }: { attempt: string; live: boolean }) {
  const logBox = useRef<HTMLDivElement>(null);
  const unseenCount = useSignal(0);
  const isSilent = useSignal(false);
  const raw = queryParam('log') === 'raw';
  useEffect(() => {
    const box = logBox.current;
    if (!box) return;
    setHtml(box, '');
    // An entry that a person opened or closed stays so when its call continues.
    const touch = (event: Event) => {
      const group = (event.target as Element).closest('summary')?.parentElement;
      if (group) group.dataset.touched = 'yes';
    };
    box.addEventListener('click', touch);
    let from = 0;
    let cancelled = false;
    let timer = 0;
    const step = async () => {
      try {
        const text = await fetchText(`/api/v1/page/log/${attempt}?from=${from}${raw ? '&raw=true' : ''}`);
        if (cancelled) return;
        const piece = JSON.parse(text) as TranscriptPieceView;
        const below = box.scrollHeight - box.scrollTop - box.clientHeight;
        if (piece.html) {
          const last = box.lastElementChild;
          appendHtml(box, piece.html);
          joinCalls(box, last ? last.nextElementSibling : box.firstElementChild);
          stampTimes(box);
          // Drop entries far above to limit memory. They can be fetched again.
          while (box.childElementCount > 2_000) box.firstElementChild?.remove();
          if (below < 40) box.scrollTop = box.scrollHeight;
          else unseenCount.value += 1;
        }
        from = piece.next;
        isSilent.value = !piece.more && box.childElementCount === 0;
        if (piece.more) void step();
        else if (live) timer = window.setTimeout(step, 1_000);
      } catch (error) {
        if (!cancelled) appendHtml(box, '<div class="say asks">could not load the log</div>');
        reportError(error);
      }
    };
    void step();
    return () => {
      cancelled = true;
      clearTimeout(timer);
      box.removeEventListener('click', touch);
    };
  }, [attempt, live, raw]);
  const follow = () => logBox.current && (logBox.current.scrollTop = logBox.current.scrollHeight);
  return (
    <Panel
      class="log"
      title="Log"
      aside={
        <span class="aside">
          {attempt} ·{' '}
          <button type="button" class="plain" onClick={follow}>
            follow <kbd>f</kbd>
          </button>{' '}
          <button type="button" class="plain" aria-pressed={raw} onClick={() => setQueryParam('log', raw ? null : 'raw')}>
            raw <kbd>w</kbd>
          </button>
        </span>
      }
    >
      <div class="say-box" ref={logBox} tabIndex={0} role="log" aria-label={`Log of ${attempt}`} onScroll={(event) => event.currentTarget.scrollHeight - event.currentTarget.scrollTop - event.currentTarget.clientHeight < 40 && (unseenCount.value = 0)} />
      {isSilent.value && <p class="empty">{live ? 'No output yet.' : 'No output.'}</p>}
      {unseenCount.value > 0 && (
        <button type="button" class="plain" onClick={follow}>
          {unseenCount.value} new ↓ <kbd>f</kbd>
        </button>
      )}
    </Panel>
  );
}
