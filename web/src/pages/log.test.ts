import { describe, expect, it } from 'vitest';
import { Heights } from './log-heights';

/** Heights computed by adding up all rows. */
function slowTop(heights: Heights, row: number): number {
  let top = 0;
  for (let index = 0; index < row; index += 1) top += heights.get(index);
  return top;
}

describe('heights of the rows of a log', () => {
  it('finds the row at a distance and the distance of a row', () => {
    const heights = new Heights(30);
    heights.resize(2_000);
    for (let row = 0; row < 2_000; row += 7) heights.set(row, 10 + (row % 300));
    for (const row of [0, 1, 255, 256, 257, 1_000, 1_999]) {
      expect(heights.top(row)).toBeCloseTo(slowTop(heights, row));
      expect(heights.rowAt(heights.top(row))).toBe(row);
      expect(heights.rowAt(heights.top(row) + heights.get(row) - 0.5)).toBe(row);
    }
    expect(heights.total()).toBeCloseTo(slowTop(heights, 2_000));
    expect(heights.rowAt(1e9)).toBe(1_999);
    expect(heights.rowAt(-5)).toBe(0);
  });

  it('keeps measured heights when rows are added', () => {
    const heights = new Heights(30);
    heights.resize(10);
    heights.set(3, 500);
    heights.set(3, 400);
    heights.resize(5_000);
    expect(heights.top(4)).toBe(3 * 30 + 400);
    expect(heights.total()).toBe(4_999 * 30 + 400);
    heights.resize(2);
    expect(heights.total()).toBe(60);
  });
});
