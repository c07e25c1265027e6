// The time axis of plots: the window that fits the data, folded idle times, and labels at round times.

import { age } from '../format';
import type { LaneBar } from '../api';

export const WINDOWS: [string, number][] = [
  ['1m', 60_000],
  ['5m', 300_000],
  ['15m', 900_000],
  ['1h', 3_600_000],
  ['6h', 6 * 3_600_000],
  ['24h', 24 * 3_600_000],
];

const HOUR_MS = 3_600_000;
const TICK_STEPS_MS = [1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1_200, 1_800, 3_600, 7_200, 14_400].map((seconds) => seconds * 1_000);
/** Number of tick steps that a window has at most. */
const MAX_STEPS = 7;

/** Formats a duration without loss, so that two labels of an axis never read the same: `1m 40s`. */
export function exactDuration(ms: number): string {
  const seconds = Math.round(ms / 1_000);
  const parts: [number, string][] = [
    [Math.floor(seconds / 3_600), 'h'],
    [Math.floor((seconds % 3_600) / 60), 'm'],
    [seconds % 60, 's'],
  ];
  const text = parts.filter(([count]) => count > 0).map(([count, unit]) => `${count}${unit}`);
  return text.join(' ') || '0s';
}

function tickStep(ms: number): number {
  return TICK_STEPS_MS.find((stepMs) => stepMs >= ms / MAX_STEPS) ?? 14_400_000;
}

/** Returns the time window: the requested one, or one that fits the data and is a whole number of ticks. Automatic
 * windows are at most an hour, or longer if nothing happened in the last hour. */
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
  const isQuiet = last > 0 && last < now - HOUR_MS;
  const span = Math.max(5_000, isQuiet ? now - last : Math.min(now - first, HOUR_MS));
  const step = tickStep(span);
  const ms = Math.ceil(span / step) * step;
  const name = exactDuration(ms);
  return { ms, text: isQuiet ? `nothing in the last hour; last ${name}` : `last ${name}`, widened: isQuiet };
}

/** A period without any activity that is longer than this is folded. */
const FOLD_AFTER_MS = 600_000;
/** Width of a fold in pixels. */
export const FOLD_WIDTH = 22;

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

/** Returns the labels of the time axis, at round times and at least `minDistance` pixels apart. */
export function ticks(from: number, now: number, x: Axis['x'], minDistance = 56): { x: number; text: string }[] {
  const step = tickStep(now - from);
  const marks = [{ x: x(now), text: 'now' }];
  for (let agoMs = step; agoMs <= now - from; agoMs += step) {
    const at = x(now - agoMs);
    if ((marks[marks.length - 1]?.x ?? 0) - at >= minDistance) marks.push({ x: at, text: `-${exactDuration(agoMs)}` });
  }
  return marks;
}
