// The agents' states over time, one row per agent. Large fleets and the table are in agent-grid.tsx.

import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { age, clockTime, plain, shortName } from '../format';
import { lazy } from '../lazy';
import { byName, topic } from '../live/client';
import { navigate, queryParam, setQueryParam } from '../route';
import { Panel, daemonNow, useTopics } from '../ui';
import type { AgentLaneView, DisplayState, FleetSize, LaneBar } from '../api';
import { BUSY_AGENT_STATES, FREE_AGENT_STATES, STATES } from '../states';

const AgentGrid = lazy<{ lanes: AgentLaneView[] }>(() => import('./agent-grid').then((module) => module.AgentGrid));
const AgentTable = lazy<{ lanes: AgentLaneView[] }>(() => import('./agent-grid').then((module) => module.AgentTable));

export const LEGEND: DisplayState[] = [...BUSY_AGENT_STATES, ...FREE_AGENT_STATES];
const WINDOWS: [string, number][] = [
  ['1m', 60_000],
  ['5m', 300_000],
  ['15m', 900_000],
  ['1h', 3_600_000],
  ['6h', 6 * 3_600_000],
  ['24h', 24 * 3_600_000],
];

/** Windows for the automatic choice, which takes the shortest one that contains all data. */
const AUTO_WINDOWS: [string, number][] = [['5s', 5_000], ['10s', 10_000], ['20s', 20_000], ['30s', 30_000], ['1m', 60_000], ['2m', 120_000], ['5m', 300_000], ['10m', 600_000], ['20m', 1_200_000], ['30m', 1_800_000], ...WINDOWS.slice(3)];

/** Returns the time window: the requested one, or one that fits the data. Automatic windows are at most an hour, or
 * longer if nothing happened in the last hour. */
export function windowFor(bars: LaneBar[][], now: number, requested: string): { ms: number; text: string; widened: boolean } {
  const chosen = WINDOWS.find((window) => window[0] === requested);
  let first = now;
  let last = 0;
  for (const lane of bars) {
    for (const bar of lane) {
      first = Math.min(first, bar.from);
      last = Math.max(last, bar.to ?? now);
    }
  }
  if (chosen) {
    // A requested window is kept even if it is empty, and the text says so.
    const empty = last <= now - chosen[1];
    return { ms: chosen[1], text: empty ? `nothing in the last ${requested}${last > 0 ? `; last activity ${age(now - last)} ago` : ''}` : `last ${requested}`, widened: empty };
  }
  const hour = 3_600_000;
  const isQuiet = last > 0 && last < now - hour;
  const span = isQuiet ? now - last : Math.min(now - first, hour);
  const fit = AUTO_WINDOWS.find((window) => window[1] >= span) ?? AUTO_WINDOWS[AUTO_WINDOWS.length - 1];
  const [name, ms] = fit ?? ['1h', hour];
  return { ms, text: isQuiet ? `nothing in the last hour; last ${name}` : `last ${name}`, widened: isQuiet };
}

/** A period without any activity that is longer than this is folded. */
const FOLD_AFTER_MS = 600_000;
/** Width of a fold in pixels. */
const FOLD_WIDTH = 22;

/** A time axis. Long periods without activity in any lane are folded. */
export interface Axis {
  x(wall: number): number;
  folds: { from: number; to: number }[];
}

export function axis(bars: LaneBar[][], from: number, now: number, width: number): Axis {
  const folds: Axis['folds'] = [];
  let end = from;
  const busy = now - from > FOLD_AFTER_MS ? bars.flat().sort((a, b) => a.from - b.from) : [];
  for (const bar of [...busy, ...(busy.length > 0 ? [{ from: now }] : [])] as LaneBar[]) {
    if (bar.from - end > FOLD_AFTER_MS) folds.push({ from: end, to: Math.min(bar.from, now) });
    end = Math.max(end, bar.to ?? now);
  }
  const folded = folds.reduce((sum, fold) => sum + fold.to - fold.from, 0);
  if (folded >= now - from) folds.length = 0;
  const scale = (width - folds.length * FOLD_WIDTH) / (now - from - (folds.length && folded));
  const x = (wall: number) => {
    let at = (wall - from) * scale;
    for (const fold of folds) {
      const inside = Math.min(Math.max(wall - fold.from, 0), fold.to - fold.from);
      at += (inside / (fold.to - fold.from)) * FOLD_WIDTH - inside * scale;
    }
    return at;
  };
  return { x, folds };
}

/** Returns the position of a bar, or null if it is outside the window. A bar without an end extends to now. */
export function barPosition(bar: LaneBar, from: number, now: number, x: Axis['x']): { x: number; width: number } | null {
  const end = Math.min(bar.to ?? now, now);
  const start = Math.max(bar.from, from);
  if (end <= from || start >= now || end < start) return null;
  return { x: x(start), width: Math.max(1.5, x(end) - x(start) - 1) };
}

const TICK_STEPS_MS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 3_600, 7_200, 14_400].map((seconds) => seconds * 1_000);

/** Returns the labels of the time axis, at round times and at least `minDistance` pixels apart. */
export function ticks(from: number, now: number, x: Axis['x'], minDistance = 44): { x: number; text: string }[] {
  const step = TICK_STEPS_MS.find((stepMs) => stepMs >= (now - from) / 7) ?? 14_400_000;
  const marks = [{ x: x(now), text: 'now' }];
  for (let agoMs = step; agoMs <= now - from; agoMs += step) {
    const at = x(now - agoMs);
    if ((marks[marks.length - 1]?.x ?? 0) - at >= minDistance) marks.push({ x: at, text: `-${age(agoMs)}` });
  }
  return marks;
}

export function Legend({ states = LEGEND }: { states?: DisplayState[] }) {
  return (
    <ul class="legend" aria-label="Legend">
      {states.map((at) => (
        <li key={at}>
          <span class={`swatch at-${at}`} aria-hidden="true" /> {STATES[at].glyph} {STATES[at].word}
        </li>
      ))}
    </ul>
  );
}

function WindowSelect() {
  return (
    <label class="window">
      <span class="sr">Window</span>
      <select value={queryParam('window')} onChange={(event) => setQueryParam('window', event.currentTarget.value, true)}>
        <option value="">automatic</option>
        {WINDOWS.map(([name]) => (
          <option key={name} value={name}>
            last {name}
          </option>
        ))}
      </select>
    </label>
  );
}

export function byUrgency(a: AgentLaneView, b: AgentLaneView): number {
  return STATES[a.at].rank - STATES[b.at].rank || byName(a.agent, b.agent);
}

/** The lanes of all agents, or of `onlyAgent`. */
export function Lanes({ size, onlyAgent }: { size: FleetSize; onlyAgent?: string }) {
  useTopics('lanes', size === 'many' ? 'shares' : 'bars');
  const known = topic('lanes').known.value;
  const lanes = topic('lanes')
    .all()
    .filter((lane) => !onlyAgent || lane.agent === onlyAgent);
  const table = queryParam('as') === 'table';
  const title = `${lanes.length} ${lanes.length === 1 ? 'lane' : 'lanes'}`;
  const aside = (
    <>
      {size !== 'many' && <WindowSelect />}
      <button type="button" class="plain" aria-pressed={table} onClick={() => setQueryParam('as', table ? null : 'table', true)}>
        {table ? 'Show as plot' : 'Show as table'}
      </button>
      <Legend />
    </>
  );
  return (
    <Panel title={title} aside={aside} class="lanes">
      {lanes.length === 0 ? (
        <p class="empty">{known ? 'No agents yet. Add one with regatta agent add, or try regatta demo.' : 'loading…'}</p>
      ) : table ? (
        <AgentTable lanes={lanes} />
      ) : size === 'many' ? (
        <AgentGrid lanes={lanes} />
      ) : (
        <LaneRows lanes={lanes} isTall={size === 'few'} />
      )}
    </Panel>
  );
}

/** Cuts a text to a width, at about 6.4 pixels per letter. */
function fitText(text: string, width: number): string {
  const room = Math.floor(width / 6.4);
  return text.length > room ? `${text.slice(0, Math.max(0, room - 1))}…` : text;
}

function LaneRows({ lanes, isTall }: { lanes: AgentLaneView[]; isTall: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const width = useSignal(900);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(([entry]) => {
      const now = Math.floor(entry?.contentRect.width ?? 0);
      if (now > 0 && Math.abs(now - width.peek()) > 1) width.value = now;
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const bars = topic('bars');
  void bars.changed.value;
  const sorted = isTall ? lanes : [...lanes].sort(byUrgency);
  const all = sorted.map((lane) => bars.get(`bars/${lane.agent}`)?.bars ?? []);
  const now = daemonNow();
  const shown = windowFor(all, now, queryParam('window'));
  const from = now - shown.ms;
  const step = isTall ? 30 : 17;
  // Thin rows show the reason for waiting next to the name, thick rows inside the bar.
  const labelWidth = !isTall && width.value > 700 ? 260 : 132;
  const plotWidth = Math.max(100, width.value - labelWidth);
  const height = 20 + step * sorted.length;
  const { x, folds } = axis(all, from, now, plotWidth);
  const counts = LEGEND.map((at) => [at, lanes.filter((lane) => lane.at === at).length] as const).filter((entry) => entry[1] > 0);
  const sentence = `${shown.text}; now ${counts.map(([at, count]) => `${count} ${STATES[at].word}`).join(', ')}`;
  return (
    <div ref={box}>
      {shown.widened && <p class="empty">{shown.text}</p>}
      <svg class="rows" width={width.value} height={height} role="img" aria-label={`Lanes over time, ${sentence}`}>
        <defs>
          <pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <rect width="6" height="6" class="hatch-ground" />
            <rect width="1.6" height="6" class="hatch-line" />
          </pattern>
        </defs>
        {!shown.widened && (
          <text class="ticks" y={11}>
            {shown.text}
          </text>
        )}
        {ticks(from, now, x).map((tick) => (
          <g key={tick.text}>
            <line class="tick" x1={labelWidth + tick.x} x2={labelWidth + tick.x} y1={16} y2={height} />
            <text class="ticks" x={labelWidth + tick.x} y={11} text-anchor={tick.text === 'now' ? 'end' : tick.x < 20 ? 'start' : 'middle'}>
              {tick.text}
            </text>
          </g>
        ))}
        {folds.map((fold) => (
          <g key={fold.from}>
            <rect class="fold" x={labelWidth + x(fold.from)} width={FOLD_WIDTH} y={16} height={height} />
            <text class="ticks" x={labelWidth + x(fold.from) + FOLD_WIDTH / 2} y={height - 4} text-anchor="middle">
              ⋯
            </text>
            <title>{`${age(fold.to - fold.from)} without activity, from ${clockTime(fold.from, false)}`}</title>
          </g>
        ))}
        {sorted.map((lane, row) => (
          <LaneBars key={lane.agent} lane={lane} bars={all[row] ?? []} y={18 + row * step} thickness={step - (isTall ? 5 : 4)} from={from} now={now} x={x} labelWidth={labelWidth} />
        ))}
        <line class="now" x1={labelWidth + plotWidth - 0.5} x2={labelWidth + plotWidth - 0.5} y1={14} y2={height} />
      </svg>
    </div>
  );
}

function LaneBars(props: { lane: AgentLaneView; bars: LaneBar[]; y: number; thickness: number; from: number; now: number; x: Axis['x']; labelWidth: number }) {
  const { lane, bars, y, thickness, from, now, x, labelWidth } = props;
  const isTall = thickness > 20;
  const name = shortName(lane.agent, 17);
  const why = labelWidth > 200 && lane.at !== 'working' && lane.text ? fitText(` · ${plain(lane.text, 80)}`, labelWidth - 24 - name.length * 6) : '';
  return (
    <g>
      <text class="bar" x={0} y={y + thickness / 2 + 4} onClick={() => navigate(`/agents/${lane.agent}`)}>
        <tspan class={`ink-${lane.at}`}>{STATES[lane.at].glyph}</tspan> {name}
        <tspan class="ink-dim">{why}</tspan>
        <title>{`${lane.agent}: ${STATES[lane.at].word} ${plain(lane.text, 200)}`}</title>
      </text>
      {bars.map((bar) => {
        const at = barPosition(bar, from, now, x);
        if (!at) return null;
        const label = [bar.task, bar.at === 'working' ? '' : plain(bar.text ?? '', 80)].filter(Boolean).join(' · ');
        return (
          <g key={`${bar.from}${bar.at}`} class="bar" onClick={() => bar.task && navigate(`/t/${bar.task}`)}>
            <rect class={`at-${bar.at}`} x={labelWidth + at.x} y={y} width={at.width} height={thickness} rx={2.5} />
            {isTall && at.width > 26 && (
              <text class={`in-${bar.at}`} x={labelWidth + at.x + 6} y={y + thickness / 2 + 4}>
                {fitText(label, at.width - 6)}
              </text>
            )}
            <title>{`${bar.task ?? ''} ${STATES[bar.at].word}, ${age((bar.to ?? now) - bar.from)} from ${clockTime(bar.from)}. ${plain(bar.text ?? '', 200)}`}</title>
          </g>
        );
      })}
    </g>
  );
}
