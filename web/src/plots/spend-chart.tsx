// The line of a day's spend, stacked by provider, with its cap and where it goes at this rate; or the same as a table.

import { clockTime, plain, usd } from '../format';
import { get, set } from '../route';
import type { Spending } from '../views';

const WIDTH = 800;
/** Which colour the nth provider has, here and in its share. */
export const COLOURS = ['working', 'review', 'landing', 'needs', 'waiting', 'landed'];
export const colour = (nth: number) => COLOURS[nth % COLOURS.length] ?? '';
/** The most rows of the table. */
const MOST_ROWS = 200;

/** Up to when a line is drawn: to now, or as far on as it goes back if its cap is reached later. */
export function ends(of: Spending, now: number): number {
  const first = Math.min(of.line[0]?.[0] ?? now, now - 60_000);
  return of.forecast?.when === 'at' ? Math.max(now, Math.min(of.forecast.wall, now + (now - first))) : now;
}

/** The line of a day's spend, stepping up at each moment it was known to, from the first to `end`. */
export function stepped(line: [number, number][], now: number, top: number, height: number, end = now): { known: string; ahead: string } {
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

/** What lies between two lines that step at the same moments, up to now. */
export function area(walls: number[], lower: number[], upper: number[], now: number, top: number, height: number, end = now): string {
  const first = walls[0];
  if (first === undefined) return '';
  const from = Math.min(first, now - 60_000);
  const x = (wall: number) => (((wall - from) / Math.max(1, end - from)) * WIDTH).toFixed(1);
  const y = (micro = 0) => (height - 4 - (micro / Math.max(1, top)) * (height - 12)).toFixed(1);
  let path = `M${x(first)} ${y(upper[0])}`;
  walls.forEach((wall, nth) => (path += `H${x(wall)}V${y(upper[nth])}`));
  path += `H${x(now)}V${y(lower[lower.length - 1])}`;
  for (let nth = walls.length - 1; nth > 0; nth--) path += `H${x(walls[nth] ?? 0)}V${y(lower[nth - 1])}`;
  return `${path}H${x(first)}Z`;
}

function Bands({ of, now, most, height, end }: { of: Spending; now: number; most: number; height: number; end: number }) {
  const walls = of.line.map((it) => it[0]);
  let below = walls.map(() => 0);
  return (
    <>
      {(of.bands ?? []).map((band, nth) => {
        const lower = below;
        below = lower.map((it, at) => it + (band.micro_usd[at] ?? 0));
        return <path key={band.name} class="band" style={{ fill: `var(--${colour(nth)})` }} d={area(walls, lower, below, now, most, height, end)} />;
      })}
    </>
  );
}

function AsTable({ of }: { of: Spending }) {
  const bands = of.bands ?? [];
  const rows = of.line.map((it, nth) => [it, nth] as const).slice(1).slice(-MOST_ROWS);
  return (
    <div class="scroll">
      <table class="list">
        <thead>
          <tr>
            <th>By</th>
            {bands.map((it) => (
              <th key={it.name} class="right">{plain(it.name, 40)}</th>
            ))}
            <th class="right">Together</th>
          </tr>
        </thead>
        <tbody>
          {rows.reverse().map(([[wall, micro], nth]) => (
            <tr key={wall}>
              <td>{clockTime(wall, false)}</td>
              {bands.map((it) => (
                <td key={it.name} class="right">{usd(it.micro_usd[nth])}</td>
              ))}
              <td class="right">{usd(micro)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Who was paid how much, and a switch to the table. */
function Legend({ of }: { of: Spending }) {
  const table = get('spend') === 'table';
  return (
    <div class="spend-legend">
      <ul class="legend">
        {(of.bands ?? []).map((it, nth) => (
          <li key={it.name}>
            <span class={`swatch at-${colour(nth)}`} aria-hidden="true" /> {plain(it.name, 40)} {usd(it.micro_usd[it.micro_usd.length - 1])}
          </li>
        ))}
      </ul>
      <button type="button" class="plain" aria-pressed={table} onClick={() => set('spend', table ? null : 'table', true)}>
        {table ? 'Show as plot' : 'Show as table'}
      </button>
    </div>
  );
}

export function Drawn({ of, now, at, text, most, height }: { of: Spending; now: number; at: (micro: number) => number; text: string; most: number; height: number }) {
  const end = ends(of, now);
  const path = stepped(of.line, now, most, height, end);
  const spent = of.line[of.line.length - 1]?.[1] ?? 0;
  // Straight on, as far as it is drawn.
  const whole = of.forecast?.when === 'at' ? of.forecast.wall - now : 0;
  const far = of.cap && whole > 0 ? spent + ((of.cap - spent) * (end - now)) / whole : spent;
  if (get('spend') === 'table')
    return (
      <>
        <Legend of={of} />
        <AsTable of={of} />
      </>
    );
  const parts = (of.bands ?? []).map((it) => `${plain(it.name, 40)} ${usd(it.micro_usd[it.micro_usd.length - 1])}`).join(', ');
  return (
    <>
      <Legend of={of} />
      <div class="spend-box">
        {of.cap && <small class="cap-label" style={{ top: `${at(of.cap)}px` }}>cap {usd(of.cap)}</small>}
        <svg class="spend" viewBox={`0 0 ${WIDTH} ${height}`} preserveAspectRatio="none" height={height} role="img" aria-label={`Spend today: ${text}; from ${clockTime(of.line[0]?.[0] ?? now, false)} until now, ${usd(of.today.usage.micro_usd)}${parts && `: ${parts}`}`}>
          {of.cap && <line class="cap" x1={0} x2={WIDTH} y1={at(of.cap)} y2={at(of.cap)} />}
          <Bands of={of} now={now} most={most} height={height} end={end} />
          <path d={path.known} />
          {path.ahead && <path class="ahead" d={`${path.ahead}L${WIDTH} ${at(far).toFixed(1)}`} />}
        </svg>
        <div class="spend-axis">
          <span>{of.line[0] ? clockTime(of.line[0][0], false) : ''}</span>
          <span>{end > now ? clockTime(end, false) : 'now'}</span>
        </div>
      </div>
    </>
  );
}
