// The chart of a day's cost by provider, with the cap and the forecast. The same data is available as a table.

import { clockTime, plain, usd } from '../format';
import { queryParam, setQueryParam } from '../route';
import type { TodaySpendView } from '../api';
import './spend-chart.css';

const WIDTH = 800;
/** The colours of providers, in the chart and in the cost table. */
const COLOURS = ['working', 'review', 'landing', 'needs', 'waiting', 'landed'];
export const colour = (index: number) => COLOURS[index % COLOURS.length] ?? '';
const MAX_ROWS = 200;

/** Returns the end of the chart: now, or the time at which the cap is reached. The forecast takes at most half the chart. */
export function chartEnd(spending: TodaySpendView, now: number): number {
  const first = Math.min(spending.line[0]?.[0] ?? now, now - 60_000);
  return spending.forecast?.when === 'at' ? Math.max(now, Math.min(spending.forecast.wall, now + (now - first))) : now;
}

/** Returns the SVG path of the total cost as steps, and the start of the forecast after it. */
export function stepPath(line: [number, number][], now: number, top: number, height: number, end = now): { known: string; ahead: string } {
  const first = line[0];
  if (!first) return { known: '', ahead: '' };
  const from = Math.min(first[0], now - 60_000);
  const x = (wall: number) => (((wall - from) / Math.max(1, end - from)) * WIDTH).toFixed(1);
  const y = (micro: number) => (height - 4 - (micro / Math.max(1, top)) * (height - 12)).toFixed(1);
  let known = `M0 ${y(first[1])}`;
  for (const [wall, micro] of line) known += `H${x(wall)}V${y(micro)}`;
  const last = line[line.length - 1]?.[1] ?? 0;
  return { known: `${known}H${x(now)}`, ahead: end > now ? `M${x(now)} ${y(last)}` : '' };
}

/** Returns the SVG path of the area between two step lines with the same times, up to now. */
export function areaPath(walls: number[], lower: number[], upper: number[], now: number, top: number, height: number, end = now): string {
  const first = walls[0];
  if (first === undefined) return '';
  const from = Math.min(first, now - 60_000);
  const x = (wall: number) => (((wall - from) / Math.max(1, end - from)) * WIDTH).toFixed(1);
  const y = (micro = 0) => (height - 4 - (micro / Math.max(1, top)) * (height - 12)).toFixed(1);
  let path = `M${x(first)} ${y(upper[0])}`;
  walls.forEach((wall, index) => (path += `H${x(wall)}V${y(upper[index])}`));
  path += `H${x(now)}V${y(lower[lower.length - 1])}`;
  for (let index = walls.length - 1; index > 0; index--) path += `H${x(walls[index] ?? 0)}V${y(lower[index - 1])}`;
  return `${path}H${x(first)}Z`;
}

function Bands({ spending, now, top, height, end }: { spending: TodaySpendView; now: number; top: number; height: number; end: number }) {
  const walls = spending.line.map((point) => point[0]);
  let below = walls.map(() => 0);
  return (
    <>
      {(spending.bands ?? []).map((band, index) => {
        const lower = below;
        below = lower.map((sum, point) => sum + (band.micro_usd[point] ?? 0));
        return <path key={band.name} class="band" style={{ fill: `var(--${colour(index)})` }} d={areaPath(walls, lower, below, now, top, height, end)} />;
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
        {(spending.bands ?? []).map((band, index) => (
          <li key={band.name}>
            <span class={`swatch at-${colour(index)}`} aria-hidden="true" /> {plain(band.name, 40)} {usd(band.micro_usd[band.micro_usd.length - 1])}
          </li>
        ))}
      </ul>
      <button type="button" class="plain" aria-pressed={table} onClick={() => setQueryParam('spend', table ? null : 'table', true)}>
        {table ? 'Show as plot' : 'Show as table'}
      </button>
    </div>
  );
}

export function SpendChart({ spending, now, yAt, text, top, height }: { spending: TodaySpendView; now: number; yAt: (micro: number) => number; text: string; top: number; height: number }) {
  const end = chartEnd(spending, now);
  const path = stepPath(spending.line, now, top, height, end);
  const spent = spending.line[spending.line.length - 1]?.[1] ?? 0;
  // The forecast is a straight line from the current cost towards the cap, up to the end of the chart.
  const msToCap = spending.forecast?.when === 'at' ? spending.forecast.wall - now : 0;
  const projected = spending.cap && msToCap > 0 ? spent + ((spending.cap - spent) * (end - now)) / msToCap : spent;
  if (queryParam('spend') === 'table')
    return (
      <>
        <Legend spending={spending} />
        <SpendTable spending={spending} />
      </>
    );
  const parts = (spending.bands ?? []).map((band) => `${plain(band.name, 40)} ${usd(band.micro_usd[band.micro_usd.length - 1])}`).join(', ');
  return (
    <>
      <Legend spending={spending} />
      <div class="spend-box">
        {spending.cap && <small class="cap-label" style={{ top: `${yAt(spending.cap)}px` }}>cap {usd(spending.cap)}</small>}
        <svg class="spend" viewBox={`0 0 ${WIDTH} ${height}`} preserveAspectRatio="none" height={height} role="img" aria-label={`Spend today: ${text}; from ${clockTime(spending.line[0]?.[0] ?? now, false)} until now, ${usd(spending.today.usage.micro_usd)}${parts && `: ${parts}`}`}>
          {spending.cap && <line class="cap" x1={0} x2={WIDTH} y1={yAt(spending.cap)} y2={yAt(spending.cap)} />}
          <Bands spending={spending} now={now} top={top} height={height} end={end} />
          <path d={path.known} />
          {path.ahead && <path class="ahead" d={`${path.ahead}L${WIDTH} ${yAt(projected).toFixed(1)}`} />}
        </svg>
        <div class="spend-axis">
          <span>{spending.line[0] ? clockTime(spending.line[0][0], false) : ''}</span>
          <span>{end > now ? clockTime(end, false) : 'now'}</span>
        </div>
      </div>
    </>
  );
}
