// The chart of a day's cost: a stacked area per provider, with axes, the cap and the forecast. The same data is available
// as a table.

import { useEffect, useRef, useState } from 'preact/hooks';
import { seriesClass } from '../components';
import { clockTime, plain, usd } from '../format';
import { forecastText } from '../format-cost';
import { queryParam, setQueryParam } from '../route';
import { type Plot, areaPath, chartEnd, chartStart, moneyTickText, moneyTicks, stepPath, timeTicks, xAt, yAt } from './spend-scale';
import { Panel, clock } from '../ui';
import type { TodaySpendView } from '../api';
import './spend-chart.css';

const MAX_ROWS = 200;
const DEFAULT_WIDTH_PX = 800;
const PX_PER_TIME_TICK = 90;
const PX_PER_MONEY_TICK = 32;
/** The room above the highest value, as a part of the chart. */
const HEADROOM = 1.08;

function Bands({ spending, now, plot }: { spending: TodaySpendView; now: number; plot: Plot }) {
  const walls = spending.line.map((point) => point[0]);
  let below = walls.map(() => 0);
  return (
    <>
      {(spending.bands ?? []).map((band) => {
        const lower = below;
        below = lower.map((sum, point) => sum + (band.micro_usd[point] ?? 0));
        return <path key={band.name} class={`band ${seriesClass(band.name)}`} d={areaPath(walls, lower, below, now, plot)} />;
      })}
    </>
  );
}

function SpendTable({ spending }: { spending: TodaySpendView }) {
  const bands = spending.bands ?? [];
  const rows = spending.line.map((point, index) => [point, index] as const).slice(1).slice(-MAX_ROWS);
  return (
    <div class="scroll">
      <table class="list">
        <thead>
          <tr>
            <th>Until</th>
            {bands.map((band) => (
              <th key={band.name} class="right">{plain(band.name, 40)}</th>
            ))}
            <th class="right">Total</th>
          </tr>
        </thead>
        <tbody>
          {rows.reverse().map(([[wall, micro], index]) => (
            <tr key={wall}>
              <td>{clockTime(wall, false)}</td>
              {bands.map((band) => (
                <td key={band.name} class="right">{usd(band.micro_usd[index])}</td>
              ))}
              <td class="right">{usd(micro)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The cost per provider, and the switch between chart and table. */
function Legend({ spending }: { spending: TodaySpendView }) {
  const table = queryParam('spend') === 'table';
  return (
    <div class="spend-legend">
      <ul class="legend">
        {(spending.bands ?? []).map((band) => (
          <li key={band.name}>
            <span class={`swatch ${seriesClass(band.name)}`} aria-hidden="true" /> {plain(band.name, 40)} {usd(band.micro_usd[band.micro_usd.length - 1])}
          </li>
        ))}
        <li class="total">— total</li>
        {spending.forecast?.when === 'at' && <li class="total">- - forecast</li>}
      </ul>
      <button type="button" class="plain" aria-pressed={table} onClick={() => setQueryParam('spend', table ? null : 'table', true)}>
        {table ? 'Show as plot' : 'Show as table'}
      </button>
    </div>
  );
}

function Axes({ plot, ticks }: { plot: Plot; ticks: number[] }) {
  const step = ticks[1] ?? 1e6;
  const times = timeTicks(plot.from, plot.to, Math.max(2, Math.floor((plot.right - plot.left) / PX_PER_TIME_TICK)));
  return (
    <g aria-hidden="true">
      {ticks.map((micro) => (
        <g key={micro}>
          <line class="grid" x1={plot.left} x2={plot.right} y1={yAt(plot, micro)} y2={yAt(plot, micro)} />
          <text x={plot.left - 6} y={yAt(plot, micro) + 4} text-anchor="end">
            {moneyTickText(micro, step)}
          </text>
        </g>
      ))}
      {times.map((wall) => (
        <text key={wall} x={xAt(plot, wall)} y={plot.bottom + 15} text-anchor="middle">
          {clockTime(wall, false)}
        </text>
      ))}
    </g>
  );
}

/** Returns the width of the element in `box`, and follows its changes. */
function useWidth() {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(DEFAULT_WIDTH_PX);
  useEffect(() => {
    const element = box.current;
    if (!element || typeof ResizeObserver === 'undefined') return undefined;
    const observer = new ResizeObserver(([entry]) => entry && setWidth(Math.max(240, Math.round(entry.contentRect.width))));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return { box, width };
}

function SpendChart({ spending, now, text, height }: { spending: TodaySpendView; now: number; text: string; height: number }) {
  const { box, width } = useWidth();
  const isTable = queryParam('spend') === 'table';
  const end = chartEnd(spending, now);
  const spent = spending.line[spending.line.length - 1]?.[1] ?? 0;
  // The forecast is a straight line from the current cost towards the cap, up to the end of the chart.
  const msToCap = spending.forecast?.when === 'at' ? spending.forecast.wall - now : 0;
  const projected = spending.cap && msToCap > 0 ? spent + ((spending.cap - spent) * (end - now)) / msToCap : spent;
  // A cap far above the cost would flatten the chart, so it is drawn only if at least a fifth of it is used.
  const shownCap = spending.cap && spending.cap <= 5 * Math.max(spent, projected) ? spending.cap : 0;
  const max = Math.max(shownCap, spent, projected) * HEADROOM;
  const ticks = moneyTicks(max, Math.max(4, Math.floor(height / PX_PER_MONEY_TICK))).filter((micro) => micro <= max);
  const plot: Plot = { left: 52, right: width - 12, top: 10, bottom: height - 22, from: chartStart(spending, now), to: end, max };
  const parts = (spending.bands ?? []).map((band) => `${plain(band.name, 40)} ${usd(band.micro_usd[band.micro_usd.length - 1])}`).join(', ');
  const label = `Spend today: ${text}; from ${clockTime(plot.from, false)} until now, ${usd(spending.today.usage.micro_usd)}${parts && `: ${parts}`}`;
  return (
    <div ref={box}>
      <Legend spending={spending} />
      {isTable ? (
        <SpendTable spending={spending} />
      ) : (
        <svg class="spend" viewBox={`0 0 ${width} ${height}`} height={height} role="img" aria-label={label}>
          <Axes plot={plot} ticks={ticks} />
          <Bands spending={spending} now={now} plot={plot} />
          <path class="total-line" d={stepPath(spending.line, now, plot)} />
          {end > now && (
            <>
              <line class="now-line" x1={xAt(plot, now)} x2={xAt(plot, now)} y1={plot.top} y2={plot.bottom} />
              <path class="ahead" d={`M${xAt(plot, now).toFixed(1)} ${yAt(plot, spent).toFixed(1)}L${plot.right} ${yAt(plot, projected).toFixed(1)}`} />
            </>
          )}
          {shownCap > 0 && (
            <>
              <line class="cap" x1={plot.left} x2={plot.right} y1={yAt(plot, shownCap)} y2={yAt(plot, shownCap)} />
              <text class="cap-text" x={plot.left + 6} y={yAt(plot, shownCap) - 5 < 10 ? yAt(plot, shownCap) + 13 : yAt(plot, shownCap) - 5}>
                cap {usd(shownCap)}
              </text>
            </>
          )}
        </svg>
      )}
    </div>
  );
}

/** Today's cost as a panel: its text with the forecast, and the chart. */
export function SpendPanel({ spending, height }: { spending: TodaySpendView; height: number }) {
  const text = `${spending.text}${spending.forecast ? ` · ${forecastText(spending.forecast)}` : ''}`;
  return (
    <Panel title={<a href="/cost">Spend today</a>} aside={<span class={`aside ${spending.forecast?.when === 'reached' ? 'bad' : ''}`}>{text}</span>}>
      <SpendChart spending={spending} now={clock.value} text={text} height={height} />
    </Panel>
  );
}
