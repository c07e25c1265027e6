// The attempts of a mission's agents over time, one row per agent.

import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { age, clockTime, plain, shortName } from '../format';
import { Panel, clock } from '../ui';
import type { DisplayState, MissionPage } from '../api';
import { STATES } from '../states';
import { Legend } from './lanes';
import { fitText } from './text-width';

const [ROW, TOP, LABEL] = [28, 22, 150];
const TICK_STEPS_MS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 28_800, 86_400].map((seconds) => seconds * 1_000);

/** Returns the distance of ticks so that a plot of this length has at most `max` of them. */
export function tickStep(lengthMs: number, max: number): number {
  return TICK_STEPS_MS.find((step) => lengthMs / step <= max) ?? Math.ceil(lengthMs / max / 86_400_000) * 86_400_000;
}

/** Returns the label of a tick: the exact time since the start, such as `1m 30s`. */
export function tickText(ms: number): string {
  const seconds = Math.round(ms / 1_000);
  const parts = [
    [Math.floor(seconds / 86_400), 'd'],
    [Math.floor(seconds / 3_600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'm'],
    [seconds % 60, 's'],
  ] as const;
  return (
    parts
      .filter(([count]) => count > 0)
      .map(([count, unit]) => `${count}${unit}`)
      .join(' ') || 'start'
  );
}

export function MissionLanes({ page }: { page: MissionPage }) {
  const box = useRef<HTMLDivElement>(null);
  const width = useSignal(800);
  useEffect(() => {
    if (!box.current) return;
    const observer = new ResizeObserver(([entry]) => {
      const now = Math.floor(entry?.contentRect.width ?? 0);
      if (now > 0 && now !== width.peek()) width.value = now;
    });
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const { mission, lanes } = page;
  const start = mission.created_wall;
  const end = Math.max(start + 1_000, mission.ended_wall ?? clock.value);
  const label = width.value < 500 ? 96 : LABEL;
  const plot = Math.max(80, width.value - label - 2);
  const x = (wall: number) => label + ((Math.min(Math.max(wall, start), end) - start) / (end - start)) * plot;
  const step = tickStep(end - start, Math.max(2, Math.floor(plot / 90)));
  const height = TOP + lanes.length * ROW;
  const seen = new Set<DisplayState>(lanes.flatMap((lane) => lane.bars.map((bar) => bar.at)));
  return (
    <Panel
      title={
        <>
          Agents <b class="badge">{page.lanes_total}</b>
        </>
      }
      aside={<Legend states={(Object.keys(STATES) as DisplayState[]).filter((at) => seen.has(at))} />}
    >
      <div ref={box}>
        {lanes.length === 0 ? (
          <p class="empty">No agent has worked on this mission yet.</p>
        ) : (
          <svg class="mission-lanes" width={width.value} height={height} role="group" aria-label={`Attempts of ${lanes.length} agents over ${age(end - start)}`}>
            {Array.from({ length: Math.floor((end - start) / step) + 1 }, (_, index) => index * step).map((at) => (
              <g key={at}>
                <line class="tick" x1={x(start + at)} x2={x(start + at)} y1={TOP - 6} y2={height} />
                {(at === 0 || x(end) - x(start + at) > 30) && (
                  <text class="ticks" x={x(start + at) + (at === 0 ? 0 : 3)} y={12}>
                    {tickText(at)}
                  </text>
                )}
              </g>
            ))}
            {lanes.map((lane, row) => {
              const y = TOP + row * ROW;
              return (
                <g key={lane.agent}>
                  <a href={`/agents/${lane.agent}`}>
                    <text x={0} y={y + 17}>
                      <tspan class={`glyph at-${lane.at}`}>{STATES[lane.at].glyph}</tspan> {fitText(shortName(lane.agent, 22), label - 24)}
                    </text>
                    <title>{`${lane.agent}: ${lane.word}`}</title>
                  </a>
                  <line class="tick" x1={label} x2={label + plot} y1={y + ROW - 1.5} y2={y + ROW - 1.5} />
                  {lane.bars.map((bar) => {
                    const [left, right] = [x(bar.from), x(bar.to ?? end)];
                    const size = Math.max(3, right - left - 1);
                    const text = bar.task ? fitText(bar.task, size - 8) : '';
                    return (
                      <a key={`${bar.task}${bar.from}`} href={`/t/${bar.task}`}>
                        <rect class={`at-${bar.at}`} x={left} y={y + 3} width={size} height={ROW - 9} rx={3} />
                        {text === bar.task && (
                          <text class={`in at-${bar.at}`} x={left + 5} y={y + 17}>
                            {text}
                          </text>
                        )}
                        <title>{`${bar.task} ${STATES[bar.at].word}, ${age((bar.to ?? end) - bar.from)} from ${clockTime(bar.from)}. ${plain(bar.text ?? '', 200)}`}</title>
                      </a>
                    );
                  })}
                </g>
              );
            })}
          </svg>
        )}
        {page.lanes_total > lanes.length && <p class="dim">{page.lanes_total - lanes.length} more agents worked on the mission.</p>}
      </div>
    </Panel>
  );
}
