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
import { type Axis, FOLD_WIDTH, WINDOWS, axis, barPosition, ticks, windowFor } from './time-axis';

const AgentGrid = lazy<{ lanes: AgentLaneView[] }>(() => import('./agent-grid').then((module) => module.AgentGrid));
const AgentTable = lazy<{ lanes: AgentLaneView[] }>(() => import('./agent-grid').then((module) => module.AgentTable));

export const LEGEND: DisplayState[] = [...BUSY_AGENT_STATES, ...FREE_AGENT_STATES];
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

const NoAgents = lazy(() => import('./agent-grid').then((module) => module.NoAgents));

/** The lanes of all agents, or of `onlyAgent`. */
export function Lanes({ size, onlyAgent }: { size: FleetSize; onlyAgent?: string }) {
  useTopics('lanes', size === 'many' ? 'shares' : 'bars');
  const known = topic('lanes').known.value;
  const lanes = topic('lanes')
    .all()
    .filter((lane) => !onlyAgent || lane.agent === onlyAgent);
  const table = queryParam('as') === 'table';
  const title = `${lanes.length} ${lanes.length === 1 ? 'agent' : 'agents'}`;
  // The legend names the states that the plot shows.
  const barStates = new Set(lanes.flatMap((lane) => (topic('bars').get(`bars/${lane.agent}`)?.bars ?? []).map((bar) => bar.at)));
  const shownStates = LEGEND.filter((at) => at === 'working' || barStates.has(at) || lanes.some((lane) => lane.at === at));
  const aside = lanes.length > 0 && (
    <>
      {size !== 'many' && <WindowSelect />}
      <button type="button" class="plain" aria-pressed={table} onClick={() => setQueryParam('as', table ? null : 'table', true)}>
        {table ? 'Show as plot' : 'Show as table'}
      </button>
      <Legend states={shownStates} />
    </>
  );
  return (
    <Panel title={title} aside={aside} class="lanes">
      {lanes.length === 0 ? (
        known ? (
          <NoAgents />
        ) : (
          <p class="empty">loading…</p>
        )
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

let measure: CanvasRenderingContext2D | null | undefined;

/** Returns the width of a text in the plot, as the browser draws it. */
function textWidth(text: string): number {
  if (measure === undefined) {
    measure = document.createElement('canvas').getContext?.('2d') ?? null;
    if (measure) measure.font = '12px system-ui, sans-serif';
  }
  return measure ? measure.measureText(text).width : text.length * 6.6;
}

/** Cuts a text to a width in pixels. */
export function fitText(text: string, width: number): string {
  if (textWidth(text) <= width) return text;
  let length = Math.max(0, Math.floor((text.length * width) / Math.max(1, textWidth(text))));
  while (length > 0 && textWidth(`${text.slice(0, length)}…`) > width) length -= 1;
  return length > 0 ? `${text.slice(0, length).trimEnd()}…` : '';
}

const NAME_LENGTH = 26;
const MIN_LABEL_WIDTH = 96;
/** Width of a row's glyph and the gap between the label and the plot. */
const LABEL_PADDING = 28;

/** Returns why an agent does not work, for the label of a thin row. Thick rows show it in the bar. */
const reasonOf = (lane: AgentLaneView) => (lane.at !== 'working' && lane.text ? ` · ${plain(lane.text, 120)}` : '');

/** Returns the width of the labels: as wide as they need, and at most a third of the plot. */
export function labelWidthFor(lanes: AgentLaneView[], width: number, hasReasons: boolean): number {
  const needed = lanes.map((lane) => textWidth(shortName(lane.agent, NAME_LENGTH) + (hasReasons ? reasonOf(lane) : '')));
  return Math.round(Math.min(Math.max(MIN_LABEL_WIDTH, LABEL_PADDING + Math.max(0, ...needed)), width * (width < 600 ? 0.42 : 0.34)));
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
  const labelWidth = labelWidthFor(sorted, width.value, !isTall && width.value > 700);
  const plotWidth = Math.max(100, width.value - labelWidth);
  const height = 22 + step * sorted.length;
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
          <text class="ticks" y={12}>
            {fitText(shown.text, labelWidth - 30)}
          </text>
        )}
        {ticks(from, now, x).map((tick) => (
          <g key={tick.text}>
            <line class="tick" x1={labelWidth + tick.x} x2={labelWidth + tick.x} y1={16} y2={height} />
            <text class="ticks" x={labelWidth + tick.x} y={12} text-anchor={tick.text === 'now' ? 'end' : tick.x < 20 ? 'start' : 'middle'}>
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
          <LaneBars key={lane.agent} lane={lane} bars={all[row] ?? []} y={20 + row * step} thickness={step - (isTall ? 5 : 4)} from={from} now={now} x={x} labelWidth={labelWidth} />
        ))}
        <line class="now" x1={labelWidth + plotWidth - 0.5} x2={labelWidth + plotWidth - 0.5} y1={14} y2={height} />
      </svg>
    </div>
  );
}

function LaneBars(props: { lane: AgentLaneView; bars: LaneBar[]; y: number; thickness: number; from: number; now: number; x: Axis['x']; labelWidth: number }) {
  const { lane, bars, y, thickness, from, now, x, labelWidth } = props;
  const isTall = thickness > 20;
  const name = fitText(shortName(lane.agent, NAME_LENGTH), labelWidth - LABEL_PADDING);
  const room = labelWidth - LABEL_PADDING - textWidth(name);
  const why = !isTall && room > 60 ? fitText(reasonOf(lane), room) : '';
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
                {fitText(label, at.width - 12)}
              </text>
            )}
            <title>{`${bar.task ?? ''} ${STATES[bar.at].word}, ${age((bar.to ?? now) - bar.from)} from ${clockTime(bar.from)}. ${plain(bar.text ?? '', 200)}`}</title>
          </g>
        );
      })}
    </g>
  );
}
