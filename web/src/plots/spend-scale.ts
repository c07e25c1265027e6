// The scales of the spend chart: axes with round figures, and the paths of its areas.

import type { TodaySpendView } from '../api';

const MINUTE_MS = 60_000;
const TIME_STEPS_MS = [1, 2, 5, 10, 15, 30, 60, 120, 180, 240, 360].map((minutes) => minutes * MINUTE_MS);
/** The shortest time that the chart shows, so that the first minutes do not fill it. */
const MIN_SPAN_MS = 10 * MINUTE_MS;

/** The rectangle in which the chart draws, and the values at its edges. */
export interface Plot {
  left: number;
  right: number;
  top: number;
  bottom: number;
  from: number;
  to: number;
  max: number;
}

export function xAt(plot: Plot, wall: number): number {
  return plot.left + ((wall - plot.from) / Math.max(1, plot.to - plot.from)) * (plot.right - plot.left);
}

export function yAt(plot: Plot, micro: number): number {
  return plot.bottom - (micro / Math.max(1, plot.max)) * (plot.bottom - plot.top);
}

/** Returns the start of the chart: the first payment, but at least some minutes before now. */
export function chartStart(spending: TodaySpendView, now: number): number {
  return Math.min(spending.line[0]?.[0] ?? now, now - MIN_SPAN_MS);
}

/** Returns the end of the chart: now, or the time at which the cap is reached. The forecast takes at most half the chart. */
export function chartEnd(spending: TodaySpendView, now: number): number {
  const from = chartStart(spending, now);
  return spending.forecast?.when === 'at' ? Math.max(now, Math.min(spending.forecast.wall, now + (now - from))) : now;
}

/** Returns round amounts from zero to at least `max`: 0, 2, 4, 6 dollars. */
export function moneyTicks(max: number, maxCount = 5): number[] {
  if (max <= 0) return [0];
  const rough = max / (maxCount - 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough) ?? rough;
  const ticks = [0];
  for (let value = step; value < max + step; value += step) ticks.push(Math.round(value));
  return ticks;
}

/** Formats an amount on the axis, with as many decimals as its step needs. */
export function moneyTickText(micro: number, step: number): string {
  const decimals = step >= 1e6 ? (step % 1e6 === 0 ? 0 : 1) : step >= 1e4 ? 2 : 4;
  return `$${(micro / 1e6).toFixed(decimals)}`;
}

/** Returns round times between two times, at most `maxCount`. */
export function timeTicks(from: number, to: number, maxCount: number): number[] {
  const step = TIME_STEPS_MS.find((candidate) => (to - from) / candidate <= maxCount) ?? 12 * 60 * MINUTE_MS;
  const offset = new Date(from).getTimezoneOffset() * MINUTE_MS;
  const ticks = [];
  for (let wall = Math.ceil((from - offset) / step) * step + offset; wall <= to; wall += step) ticks.push(wall);
  return ticks;
}

/** Returns the steps of a total: the value of each point counts until the next point, the last until now. */
export function stepPath(line: [number, number][], now: number, plot: Plot): string {
  const first = line[0];
  if (!first) return '';
  let path = `M${plot.left.toFixed(1)} ${yAt(plot, 0).toFixed(1)}`;
  for (const [wall, micro] of line) path += `H${xAt(plot, wall).toFixed(1)}V${yAt(plot, micro).toFixed(1)}`;
  return `${path}H${xAt(plot, now).toFixed(1)}`;
}

/** Returns the area between two step lines with the same times, up to now. */
export function areaPath(walls: number[], lower: number[], upper: number[], now: number, plot: Plot): string {
  const first = walls[0];
  if (first === undefined) return '';
  const x = (wall: number) => xAt(plot, wall).toFixed(1);
  const y = (micro = 0) => yAt(plot, micro).toFixed(1);
  let path = `M${x(first)} ${y(upper[0])}`;
  walls.forEach((wall, index) => (path += `H${x(wall)}V${y(upper[index])}`));
  path += `H${x(now)}V${y(lower[lower.length - 1])}`;
  for (let index = walls.length - 1; index > 0; index--) path += `H${x(walls[index] ?? 0)}V${y(lower[index - 1])}`;
  return `${path}H${x(first)}Z`;
}
