// The line of a day's spend, with its cap and where it goes at this rate.

import { clockTime, usd } from '../format';
import type { Spending } from '../views';

const WIDTH = 800;

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

export function Drawn({ of, now, at, text, most, height }: { of: Spending; now: number; at: (micro: number) => number; text: string; most: number; height: number }) {
  const end = ends(of, now);
  const path = stepped(of.line, now, most, height, end);
  const spent = of.line[of.line.length - 1]?.[1] ?? 0;
  // Straight on, as far as it is drawn.
  const whole = of.forecast?.when === 'at' ? of.forecast.wall - now : 0;
  const far = of.cap && whole > 0 ? spent + ((of.cap - spent) * (end - now)) / whole : spent;
  return (
    <div class="spend-box">
      {of.cap && <small class="cap-label" style={{ top: `${at(of.cap)}px` }}>cap {usd(of.cap)}</small>}
      <svg class="spend" viewBox={`0 0 ${WIDTH} ${height}`} preserveAspectRatio="none" height={height} role="img" aria-label={`Spend today: ${text}; from ${clockTime(of.line[0]?.[0] ?? now, false)} until now, ${usd(of.today.usage.micro_usd)}`}>
        {of.cap && <line class="cap" x1={0} x2={WIDTH} y1={at(of.cap)} y2={at(of.cap)} />}
        <path d={path.known} />
        {path.ahead && <path class="ahead" d={`${path.ahead}L${WIDTH} ${at(far).toFixed(1)}`} />}
      </svg>
      <div class="spend-axis">
        <span>{of.line[0] ? clockTime(of.line[0][0], false) : ''}</span>
        <span>{end > now ? clockTime(end, false) : 'now'}</span>
      </div>
    </div>
  );
}
