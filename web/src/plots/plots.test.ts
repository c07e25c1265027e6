import { describe, expect, it } from 'vitest';
import type { AgentLaneView, GraphView, TodaySpendView } from '../api';
import { topicName } from './graph';
import { bounded, drawing, edgePath, neighbour, zoomed } from './graph-layout';
import { labelWidthFor } from './lanes';
import { tickStep, tickText } from './mission-lanes';
import { fitText, textWidth } from './text-width';
import { axis, barPosition, ticks, windowFor } from './time-axis';
import { stackedPaths } from './agent-grid';
import { type Plot, areaPath, chartEnd, moneyTickText, moneyTicks, stepPath, timeTicks } from './spend-scale';

describe('bars', () => {
  it('without an end extend to now, and are cut at the window', () => {
    const { x } = axis([], 0, 100, 1000);
    expect(barPosition({ from: 50, at: 'working' }, 0, 100, x)).toEqual({ x: 500, width: 499 });
    expect(barPosition({ from: -50, to: 20, at: 'working' }, 0, 100, x)).toEqual({ x: 0, width: 199 });
    expect(barPosition({ from: -50, to: 0, at: 'working' }, 0, 100, x)).toBeNull();
    expect(barPosition({ from: 100, at: 'working' }, 0, 100, x)).toBeNull();
    expect(barPosition({ from: 99, to: 99, at: 'working' }, 0, 100, x)?.width).toBe(1.5);
  });

  it('are folded where nothing happened for more than ten minutes', () => {
    const minute = 60_000;
    const bars = [[{ from: 5 * minute, to: 10 * minute, at: 'working' as const }], [{ from: 50 * minute, at: 'waiting' as const }]];
    const timeAxis = axis(bars, 0, 60 * minute, 222);
    expect(timeAxis.folds).toEqual([{ from: 10 * minute, to: 50 * minute }]);
    // Of sixty minutes, twenty remain unfolded. They share the 200 pixels next to the fold.
    expect([0, 10, 50, 60].map((minutes) => Math.round(timeAxis.x(minutes * minute)))).toEqual([0, 100, 122, 222]);
    expect(axis([[{ from: 0, to: 1, at: 'working' }]], 20 * minute, 60 * minute, 200)).toMatchObject({ folds: [] });
    expect(axis([[{ from: 9 * minute, at: 'working' }]], 0, 20 * minute, 200).folds).toEqual([]);
    expect(ticks(0, 60 * minute, timeAxis.x, 20).map((tick) => tick.text)).toEqual(['now', '-10m', '-50m', '-1h']);
  });

  it('get a time window that fits them', () => {
    const now = 100 * 3_600_000;
    expect(windowFor([], now, '')).toMatchObject({ ms: 5_000, widened: false });
    expect(windowFor([[{ from: now - 120_000, at: 'working' }]], now, '').ms).toBe(120_000);
    expect(windowFor([[{ from: now - 9e7, at: 'working' }]], now, '').ms).toBe(3_600_000);
    const old = windowFor([[{ from: now - 8e6, to: now - 7.2e6, at: 'working' }]], now, '');
    expect(old).toMatchObject({ ms: 2 * 3_600_000, widened: true });
    expect(windowFor([], now, '24h').ms).toBe(24 * 3_600_000);
    expect(windowFor([[{ from: now - 8e6, to: now - 7.2e6, at: 'working' }]], now, '5m')).toMatchObject({ ms: 300_000, text: 'nothing in the last 5m; last activity 2h ago' });
    expect(windowFor([[{ from: now - 8e6, at: 'working' }]], now, '5m').text).toBe('last 5m');
  });

  it('fill at least two thirds of the automatic window, under labels that all differ', () => {
    const now = 100 * 3_600_000;
    for (let seconds = 6; seconds <= 3_600; seconds += 7) {
      const { ms } = windowFor([[{ from: now - seconds * 1_000, at: 'working' }]], now, '');
      const share = (seconds * 1_000) / ms;
      expect(share > 0.66 && share <= 1, `${seconds} s: ${share}`).toBe(true);
      const labels = ticks(now - ms, now, axis([], now - ms, now, 900).x).map((tick) => tick.text);
      expect(new Set(labels).size).toBe(labels.length);
      expect(labels.length).toBeGreaterThan(3);
    }
    expect(ticks(now - 120_000, now, axis([], now - 120_000, now, 900).x).map((tick) => tick.text)).toEqual(['now', '-20s', '-40s', '-1m', '-1m 20s', '-1m 40s', '-2m']);
  });

  it('stand beside labels that are as wide as they need', () => {
    const lane = (agent: string, text: string) => ({ agent, text, at: 'waiting' }) as unknown as AgentLaneView;
    const short = labelWidthFor([lane('ann', 'x')], 1_000, false);
    const long = labelWidthFor([lane('opencode-12', 'its agent is at capacity: opencode-2 1/1')], 1_000, true);
    expect(short < long && long <= 340).toBe(true);
  });

  it('of a fleet are one path per state', () => {
    const now = 1_000 * 60_000;
    const minutes: [number, number[]][] = Array.from({ length: 60 }, (_, index) => [now - (59 - index) * 60_000, [0, 1, 0, 0, 3, 0, 0, 0, 0]]);
    const paths = stackedPaths(minutes, 4, now, 600, 40);
    expect([...paths.keys()].sort()).toEqual(['needs', 'working']);
    expect(paths.get('working')?.match(/M/g)?.length).toBe(60);
    // The counts of a minute hold until the next entry, also if that minute is before the window.
    expect(stackedPaths([[0, [0, 0, 0, 0, 4]]], 4, now, 600, 40).get('working')?.match(/M/g)?.length).toBe(60);
    expect(stackedPaths([[now + 60_000, [9]]], 4, now, 600, 40).size).toBe(0);
  });
});

describe('spend', () => {
  const plot: Plot = { left: 0, right: 800, top: 8, bottom: 46, from: 0, to: 60_000, max: 10 };

  it('is drawn as steps', () => {
    expect(stepPath([], 60_000, plot)).toBe('');
    expect(areaPath([], [], [], 60_000, plot)).toBe('');
    // Forward along the upper line, back along the lower line.
    expect(areaPath([0, 0, 30_000], [0, 0, 5], [0, 5, 10], 60_000, plot)).toBe('M0.0 46.0H0.0V46.0H0.0V27.0H400.0V8.0H800.0V27.0H400.0V46.0H0.0V46.0H0.0Z');
    expect(stepPath([[0, 0], [30_000, 10]], 60_000, plot)).toBe('M0.0 46.0H0.0V46.0H400.0V8.0H800.0');
    expect(stepPath([[0, 0], [30_000, 10]], 60_000, { ...plot, to: 120_000, max: 20 })).toBe('M0.0 46.0H0.0V46.0H200.0V27.0H400.0');
  });

  it('ends where the cap is reached, with the forecast on at most half of the chart', () => {
    const hour = 3_600_000;
    const spending = (wall: number) => ({ line: [[0, 1]], forecast: { when: 'at', wall } }) as unknown as TodaySpendView;
    expect([chartEnd(spending(1.5 * hour), hour), chartEnd(spending(9 * hour), hour)]).toEqual([1.5 * hour, 2 * hour]);
    expect(chartEnd({ line: [[0, 1]] } as unknown as TodaySpendView, hour)).toBe(hour);
  });

  it('has axes with round figures', () => {
    expect(moneyTicks(7_800_000)).toEqual([0, 2_000_000, 4_000_000, 6_000_000, 8_000_000]);
    expect(moneyTicks(0)).toEqual([0]);
    expect([moneyTickText(2_000_000, 2_000_000), moneyTickText(250_000, 250_000), moneyTickText(5_000, 5_000), moneyTickText(7_500_000, 2_500_000)]).toEqual(['$2', '$0.25', '$0.0050', '$7.5']);
    const minute = 60_000;
    expect(timeTicks(1 * minute, 26 * minute, 6).map((wall) => wall / minute)).toEqual([5, 10, 15, 20, 25]);
  });
});

describe('the graph', () => {
  const at = (x: number, y: number) => ({ x, y });
  const node = (task: string, column: number, row: number, more: Partial<GraphView['nodes'][number]> = {}) => ({ column, row, tasks: [task], label: task, word: 'waiting', at: 'waiting' as const, critical: false, ...more });
  const GRAPH: GraphView = {
    title: 'M1',
    text: '',
    tasks: 9,
    columns: 2,
    rows: 4,
    nodes: [node('T1', 0, 0), node('T2', 0, 2, { loose: true }), node('T3', 0, 3, { loose: true }), node('T4', 1, 0), node('T5', 1, 1, { tasks: ['T5', 'T6', 'T7'] })],
    edges: [
      { from: 0, to: 3, through: [[0, 0], [1, 0]], critical: true },
      { from: 0, to: 4, through: [[0, 0], [1, 1]], critical: false },
    ],
    critical: ['T1', 'T4'],
  };
  const closed = drawing(GRAPH, () => false, 3);

  it('has edges that are curved between columns and straight through a cell', () => {
    expect(edgePath([at(8, 46), at(284, 46)])).toBe('M220 46C252 46 252 46 277 46');
    expect(edgePath([at(8, 96), at(284, 46), at(560, 96)])).toBe('M220 96C252 96 252 46 284 46H496C528 46 528 96 553 96');
  });

  it('lists tasks without dependencies as a grid below the others', () => {
    const [first, second] = [closed.placed[1], closed.placed[2]];
    expect(closed.looseTop).not.toBeNull();
    expect(first?.y).toBe(second?.y);
    expect((first?.y ?? 0) > (closed.placed[4]?.y ?? 0)).toBe(true);
    const narrow = drawing(GRAPH, () => false, 1);
    expect((narrow.placed[2]?.y ?? 0) > (narrow.placed[1]?.y ?? 0)).toBe(true);
    // The critical edge is drawn last.
    expect(closed.paths.map((path) => path.critical)).toEqual([false, true]);
  });

  it('makes room for the tasks of an unfolded group', () => {
    const open = drawing(GRAPH, (found) => found.tasks.length > 1, 3);
    expect(open.placed[4]?.lines).toBe(3);
    expect(open.height - closed.height).toBe((open.placed[4]?.height ?? 0) - (closed.placed[4]?.height ?? 0));
  });

  it('is followed along its edges by the arrow keys', () => {
    const to = (from: number, key: string) => neighbour(GRAPH, closed, from, `Arrow${key}`);
    expect([to(0, 'Right'), to(3, 'Left'), to(4, 'Left'), to(3, 'Down'), to(4, 'Up'), to(3, 'Right'), to(1, 'Right')]).toEqual([3, 0, 0, 4, 3, -1, 2]);
  });

  it('zooms at a point, and is not moved out of its window', () => {
    const view = zoomed({ x: 0, y: 0, zoom: 1 }, 2, 100, 50);
    expect(view).toEqual({ zoom: 2, x: -100, y: -50 });
    expect(zoomed(view, 0.5, 100, 50)).toEqual({ zoom: 1, x: 0, y: 0 });
    const size = { width: 400, height: 100 };
    expect(bounded({ x: 900, y: -900, zoom: 1 }, size, 300, 300)).toEqual({ zoom: 1, x: 0, y: 0 });
    expect(bounded({ x: -900, y: 20, zoom: 1 }, size, 300, 300)).toEqual({ zoom: 1, x: -100, y: 20 });
  });

  it('has a topic only for valid scopes', () => {
    expect(['', 'M3', 'T9'].map(topicName)).toEqual(['graph', 'graph.M3', 'graph.T9']);
    expect(['m3', 'A1', 'T09', 'T1,head', 'M'].map(topicName)).toEqual([null, null, null, null, null]);
  });
});

describe('labels', () => {
  it('are cut to the width that they have', () => {
    expect(fitText('short', 200)).toBe('short');
    const cut = fitText('Check passwords in constant time', 100);
    expect(cut.endsWith('…') && textWidth(cut) <= 100).toBe(true);
    expect(fitText('anything', 3)).toBe('');
  });

  it('of a time axis are exact', () => {
    expect([0, 20_000, 90_000, 3_600_000, 5_400_000].map(tickText)).toEqual(['start', '20s', '1m 30s', '1h', '1h 30m']);
    expect(tickStep(120_000, 7)).toBe(30_000);
    expect(120_000 / tickStep(120_000, 7) <= 7).toBe(true);
  });
});
