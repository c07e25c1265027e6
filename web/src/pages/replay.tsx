// The state of a mission at any moment of its history. Moments are the steps of a slider, so each step is visible.

import './replay.css';
import { useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { clockTime, plain } from '../format';
import { byName, topic } from '../live/client';
import { MissionSelect } from '../plots/mission-select';
import { navigate, queryParam, setQueryParam } from '../route';
import { call } from '../session';
import { type Column } from '../table';
import { Empty, Panel, useTopics } from '../ui';
import type { DisplayState, ReplayMarkView, ReplayView, StateCount, TaskRowView } from '../api';
import { STATES } from '../states';
import { Compare } from './compare';
import { TaskCells, VirtualTable } from './mission-tasks';

/** The pause between two moments while the replay plays. */
const PLAY_INTERVAL_MS = 700;
/** Moments of the same kind in a row are listed as one group from this number on. */
const MIN_GROUP_SIZE = 4;
const PAGE_STEPS = 10;

/** Returns the index of the mark at a revision, or of the last mark before it. */
export function markAt(marks: { revision: number }[], at: number): number {
  let found = -1;
  marks.forEach((mark, index) => {
    if (mark.revision <= at) found = index;
  });
  return found;
}

/** Returns the text of a mark without its task: `T3 is started by ann` becomes `started`. */
export function markKind(mark: ReplayMarkView): string {
  const text = mark.task && mark.text.startsWith(`${mark.task} `) ? mark.text.slice(mark.task.length + 1) : mark.text;
  return text.replace(/ by .*|: .*/s, '').replace(/^is /, '');
}

export interface MarkGroup {
  from: number;
  to: number;
  text: string;
}

/** Groups marks of the same kind that follow each other, such as the tasks that a plan adds. */
export function groupMarks(marks: ReplayMarkView[]): MarkGroup[] {
  const groups: MarkGroup[] = [];
  for (let from = 0; from < marks.length; ) {
    const kind = markKind(marks[from] as ReplayMarkView);
    let to = from + 1;
    while (to < marks.length && marks[from]?.task && marks[to]?.task && markKind(marks[to] as ReplayMarkView) === kind) to += 1;
    if (to - from < MIN_GROUP_SIZE) to = from + 1;
    groups.push({ from, to, text: to - from > 1 ? `${to - from} tasks ${kind}` : (marks[from]?.text ?? '') });
    from = to;
  }
  return groups;
}

function stateCounts(rows: TaskRowView[]): StateCount[] {
  const counts = new Map<DisplayState, number>();
  for (const row of rows) counts.set(row.at, (counts.get(row.at) ?? 0) + 1);
  return [...counts].map(([at, count]) => ({ at, count })).sort((a, b) => STATES[a.at].rank - STATES[b.at].rank);
}

const COLUMNS: Column<TaskRowView>[] = [
  { name: 'at', head: 'State' },
  { name: 'id', head: 'Task' },
  { name: 'subject', head: 'Subject' },
  { name: 'agent', head: 'Agent' },
  { name: 'why', head: 'Then, or why it waited' },
];

/** The tasks as they were, with the task of the shown moment in view. */
function ReplayBoard({ replay, task }: { replay: ReplayView; task: string | undefined }) {
  const counts = stateCounts(replay.tasks);
  return (
    <>
      <p class="replay-counts">
        {counts.map(({ at, count }) => (
          <span key={at} class={`mark at-${at}`}>
            <i aria-hidden="true">{STATES[at].glyph}</i> {count} {STATES[at].word}
          </span>
        ))}
        {counts.length === 0 && 'no task yet'}
      </p>
      <VirtualTable rows={replay.tasks} columns={COLUMNS} label="Tasks at this moment" target={task ? replay.tasks.findIndex((row) => row.id === task) : -1}>
        {(row) => (
          <tr key={row.id} data-row tabIndex={0} class={row.id === task ? 'changed' : ''} aria-current={row.id === task ? 'true' : undefined}>
            <TaskCells row={row} />
          </tr>
        )}
      </VirtualTable>
      {replay.queue.length > 0 && (
        <p class="dim">
          Landing queue: {replay.queue.slice(0, 12).map((landing) => `${landing.task} ${landing.state}`).join(' · ')}
          {replay.queue.length > 12 && ` · ${replay.queue.length - 12} more`}
        </p>
      )}
    </>
  );
}

/** The moments as a list. A click shows the mission at that moment. */
function Marks({ replay, index, go }: { replay: ReplayView; index: number; go: (index: number) => void }) {
  const list = useRef<HTMLOListElement>(null);
  const opened = useSignal<ReadonlySet<number>>(new Set());
  const groups = groupMarks(replay.marks);
  useLayoutEffect(() => {
    const [box, row] = [list.current, list.current?.querySelector<HTMLElement>('[aria-current]')];
    if (box && row && (row.offsetTop < box.scrollTop || row.offsetTop > box.scrollTop + box.clientHeight - 40)) box.scrollTop = row.offsetTop - box.clientHeight / 2;
  }, [index]);
  // Few of a thousand moments are near the shown one. The others are reached with the slider.
  const current = groups.findIndex((group) => index >= group.from && index < group.to);
  const [first, last] = [Math.max(0, current - 60), Math.min(groups.length, Math.max(0, current) + 60)];
  const line = (at: number) => {
    const mark = replay.marks[at];
    return (
      mark && (
        <li key={mark.revision}>
          <button type="button" class="plain" aria-current={at === index ? 'step' : undefined} onClick={() => go(at)}>
            <time>{clockTime(mark.wall)}</time>
            <span class={`glyph at-${mark.at}`} aria-hidden="true">
              {STATES[mark.at].glyph}
            </span>
            <span>{plain(mark.text, 120)}</span>
          </button>
        </li>
      )
    );
  };
  return (
    <ol class="marks" ref={list} aria-label="Moments" tabIndex={0}>
      {first > 0 && <li class="dim">{groups[first]?.from} earlier moments</li>}
      {groups.slice(first, last).map((group) => {
        if (group.to - group.from === 1) return line(group.from);
        const isOpen = opened.value.has(group.from) || (index >= group.from && index < group.to - 1);
        const mark = replay.marks[group.from];
        return (
          <li key={`group ${group.from}`} class="mark-group">
            <button
              type="button"
              class="plain"
              aria-expanded={isOpen}
              aria-current={!isOpen && index === group.to - 1 ? 'step' : undefined}
              onClick={() => {
                const next = new Set(opened.peek());
                if (!next.delete(group.from)) next.add(group.from);
                opened.value = next;
                go(group.to - 1);
              }}
            >
              <time>{mark && clockTime(mark.wall)}</time>
              <span aria-hidden="true">{isOpen ? '▾' : '▸'}</span>
              <span>{plain(group.text, 120)}</span>
            </button>
            {isOpen && <ol>{Array.from({ length: group.to - group.from }, (_, nth) => line(group.from + nth))}</ol>}
          </li>
        );
      })}
      {last < groups.length && <li class="dim">{replay.marks.length - (groups[last]?.from ?? 0)} later moments</li>}
    </ol>
  );
}

/** The most marks that the slider shows. Of several moments at the same place, it shows the most urgent state. */
const MAX_SLIDER_MARKS = 300;

/** Returns the places of the slider's marks, in percent, with the state that each shows. */
export function sliderMarks(marks: Pick<ReplayMarkView, 'at'>[]): { percent: number; at: DisplayState }[] {
  const places = Math.min(MAX_SLIDER_MARKS, marks.length);
  const found = new Map<number, DisplayState>();
  const weight = (at: DisplayState) => (at === 'landed' ? STATES.working.rank - 0.5 : STATES[at].rank);
  marks.forEach(({ at }, index) => {
    const place = marks.length > 1 ? Math.round((index / (marks.length - 1)) * (places - 1)) : 0;
    const before = found.get(place);
    if (at !== 'idle' && (before === undefined || weight(at) < weight(before))) found.set(place, at);
  });
  return [...found].map(([place, at]) => ({ percent: places > 1 ? (place / (places - 1)) * 100 : 100, at }));
}

/** The slider over all moments. Each moment has the same width, and its mark the colour of the state it brought about. */
function Slider({ replay, index, go, toggle }: { replay: ReplayView; index: number; go: (index: number) => void; toggle: () => void }) {
  const track = useRef<HTMLDivElement>(null);
  const last = replay.marks.length - 1;
  const percent = (at: number) => (last > 0 ? (Math.max(0, at) / last) * 100 : 100);
  const goTo = (event: PointerEvent) => {
    const box = track.current?.getBoundingClientRect();
    if (box && box.width > 0) go(Math.round(Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) * last));
  };
  const steps: Record<string, number> = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: PAGE_STEPS, PageDown: -PAGE_STEPS, Home: -Infinity, End: Infinity };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = steps[event.key];
    if (step !== undefined) go(index + step);
    else if (event.key === ' ') toggle();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const mark = replay.marks[index];
  return (
    <div
      class="replay-slider"
      role="slider"
      tabIndex={0}
      aria-label="Moment of the mission"
      aria-valuemin={1}
      aria-valuemax={last + 1}
      aria-valuenow={index + 1}
      aria-valuetext={`moment ${index + 1} of ${last + 1}, ${clockTime(replay.wall)}: ${mark?.text ?? replay.event}`}
      onKeyDown={onKeyDown}
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        goTo(event);
      }}
      onPointerMove={(event) => event.currentTarget.hasPointerCapture(event.pointerId) && goTo(event)}
    >
      <div class="track" ref={track}>
        <svg width="100%" height="100%" aria-hidden="true">
          {sliderMarks(replay.marks).map(({ percent, at }) => (
            <rect key={percent} class={`at-${at}`} x={`${percent}%`} y={at === 'working' || at === 'waiting' ? 3 : -2} width={2} height={at === 'working' || at === 'waiting' ? 8 : 18} />
          ))}
        </svg>
        <i class="past" style={{ width: `${percent(index)}%` }} />
        <b class="thumb" style={{ left: `${percent(index)}%` }} />
      </div>
    </div>
  );
}

/** The replay of one mission. The shown revision is in the address. */
export function MissionReplay({ id }: { id: string }) {
  const requested = Number(queryParam('at')) || null;
  const found = useSignal<ReplayView | null>(null);
  const problem = useSignal('');
  const playing = useSignal(false);
  useEffect(() => {
    let cancelled = false;
    // Wait until the slider rests before sending a request.
    const timer = setTimeout(() => {
      call('mission.replay', { id, at: requested }).then(
        (replay) => {
          if (!cancelled) [found.value, problem.value] = [replay, ''];
        },
        (error: Error) => !cancelled && (problem.value = error.message),
      );
    }, 60);
    return () => {
      cancelled = true;
      clearTimeout(timer);
    };
  }, [id, requested]);
  const replay = found.value?.mission === id ? found.value : null;
  const at = requested ?? replay?.last ?? 0;
  const last = replay ? replay.marks.length - 1 : -1;
  const index = replay ? (requested ? markAt(replay.marks, at) : last) : -1;
  // The last moment has no revision in the address, so that a running mission shows its newest state.
  const go = (next: number) => {
    const mark = replay?.marks[Math.max(0, Math.min(last, next))];
    if (mark) setQueryParam('at', next >= last ? null : String(mark.revision));
  };
  const toggle = () => {
    if (!playing.peek() && index >= last) go(0);
    playing.value = !playing.peek();
  };
  useEffect(() => {
    if (!playing.value || !replay) return;
    if (index >= last && replay.at === (requested ?? replay.last)) {
      playing.value = false;
      return;
    }
    const timer = setTimeout(() => go(index + 1), PLAY_INTERVAL_MS);
    return () => clearTimeout(timer);
  }, [playing.value, replay, index]);
  const mark = replay?.marks[index];
  // Between two moments, the revision itself is what the address asks for.
  const isLater = requested === null && mark !== undefined && mark.revision < (replay?.at ?? 0);
  const isBetween = requested !== null && mark !== undefined && mark.revision !== at;
  return (
    <Panel title="Replay" class="replay" aside={<code class="aside">{`regatta replay ${id}${requested ? ` --at ${requested}` : ''}`}</code>}>
      {problem.value && <p class="error">{problem.value}</p>}
      {!replay && !problem.value && <p class="empty">loading…</p>}
      {replay && (
        <>
          <div class="replay-bar">
            <button type="button" class="do first" onClick={toggle} aria-label={playing.value ? 'Pause' : 'Play'} title="Space, while the slider has the focus">
              {playing.value ? '❚❚' : '▶'}
            </button>
            <button type="button" class="do" onClick={() => go(index - 1)} disabled={index <= 0} aria-label="previous moment" title="←">
              ←
            </button>
            <button type="button" class="do" onClick={() => go(index + 1)} disabled={index >= last} aria-label="next moment" title="→">
              →
            </button>
            <Slider replay={replay} index={index} go={go} toggle={toggle} />
            <button type="button" class="do" onClick={() => go(last)} disabled={!requested}>
              now
            </button>
          </div>
          <p class="replay-now" aria-live="polite">
            <b>{isLater ? 'now' : clockTime(replay.wall)}</b>
            <span class={`mark at-${mark?.at ?? 'idle'}`}>
              {isLater && mark && `last moment, at ${clockTime(mark.wall)}: `}
              {plain(mark && !isBetween ? mark.text : replay.event, 200)}
            </span>
            <span class="dim">
              moment {index + 1} of {last + 1} · revision {replay.at} of {replay.last}
            </span>
          </p>
          <div class="replayed">
            <div>
              <ReplayBoard replay={replay} task={mark?.task} />
            </div>
            <Marks replay={replay} index={index} go={go} />
          </div>
        </>
      )}
    </Panel>
  );
}

/** The page /replay: a mission of the person's choice, or with `compare` several missions side by side. */
export function Replay() {
  useTopics('missions');
  const missions = topic('missions').all();
  const newest = [...missions].sort((a, b) => byName(b.id, a.id))[0]?.id ?? '';
  const id = queryParam('mission') || newest;
  const compared = queryParam('compare').split(',').filter(Boolean);
  if (compared.length > 0) return <Compare ids={compared} />;
  if (!id) return <Empty known={topic('missions').known.value}>No mission yet. Start one with regatta run "…"</Empty>;
  return (
    <>
      <p class="row crumbs">
        <a href="/missions">Missions</a> / <a href={`/m/${id}`}>{id}</a> / replay
        <MissionSelect label="another mission" exclude={[id]} onPick={(mission) => navigate(`/replay?mission=${mission}`)} />
      </p>
      <MissionReplay id={id} />
    </>
  );
}
