// Where the boxes and lines of the task graph are drawn, and how the view moves. The daemon computes the grid.

import type { GraphView } from '../api';

export const BOX = { width: 212, height: 48, across: 276, gap: 14, top: 30, left: 8 };
/** The height of a line in an unfolded group, and the maximum number of lines. */
export const LINE = 20;
export const MAX_LINES = 12;
/** The space between the graph and the grid of tasks without dependencies, with its heading. */
const LOOSE_GAP = 34;
export const [MIN_ZOOM, MAX_ZOOM] = [0.15, 2.5];

export type GraphNode = GraphView['nodes'][number];

export interface Placed {
  node: GraphNode;
  x: number;
  y: number;
  height: number;
  lines: number;
}

export interface Drawing {
  placed: Placed[];
  paths: { d: string; critical: boolean; from: number; to: number }[];
  width: number;
  height: number;
  /** Where the grid of tasks without dependencies begins, if there are some next to a graph. */
  looseTop: number | null;
  waves: number;
}

/** Returns the SVG path of an edge through points: curved between columns, straight through a box's width. */
export function edgePath(through: { x: number; y: number }[]): string {
  return through
    .map(({ x, y }, index) => {
      const before = through[index - 1];
      if (!before) return `M${x + BOX.width} ${y}`;
      const bend = (BOX.across - BOX.width) / 2;
      const last = index === through.length - 1;
      return `C${before.x + BOX.width + bend} ${before.y} ${x - bend} ${y} ${last ? x - 7 : x} ${y}${last ? '' : `H${x + BOX.width}`}`;
    })
    .join('');
}

/** Places the boxes. Unfolded groups make their row higher. Tasks without dependencies become a grid of `columns`. */
export function drawing(graph: GraphView, isOpen: (node: GraphNode) => boolean, columns: number): Drawing {
  const linked = graph.nodes.filter((node) => !node.loose);
  const linesOf = (node: GraphNode) => (node.tasks.length > 1 && isOpen(node) ? Math.min(node.tasks.length, MAX_LINES) + Number(node.tasks.length > MAX_LINES) : 0);
  const heightOf = (node: GraphNode) => BOX.height + (linesOf(node) > 0 ? linesOf(node) * LINE + 8 : 0);
  const hasGraph = linked.length > 0;
  const rows = graph.edges.flatMap((edge) => edge.through.map(([, row]) => row)).concat(linked.map((node) => node.row));
  const tops: number[] = [hasGraph ? BOX.top : 4];
  for (let row = 0; row <= Math.max(-1, ...rows); row += 1) {
    const inRow = linked.filter((node) => node.row === row).map(heightOf);
    tops.push((tops[row] ?? 0) + Math.max(BOX.height, ...inRow) + BOX.gap);
  }
  const xOf = (column: number) => BOX.left + column * BOX.across;
  let y = tops[tops.length - 1] ?? 0;
  const loose = graph.nodes.filter((node) => node.loose);
  const looseTop = hasGraph && loose.length > 0 ? y + 4 : null;
  if (looseTop !== null) y += LOOSE_GAP;
  const across = Math.max(1, columns);
  const grid = new Map<GraphNode, { x: number; y: number }>();
  for (let start = 0; start < loose.length; start += across) {
    const row = loose.slice(start, start + across);
    row.forEach((node, column) => grid.set(node, { x: BOX.left + column * (BOX.width + BOX.gap), y }));
    y += Math.max(...row.map(heightOf)) + BOX.gap;
  }
  const placed = graph.nodes.map((node) => ({ node, height: heightOf(node), lines: linesOf(node), ...(grid.get(node) ?? { x: xOf(node.column), y: tops[node.row] ?? 0 }) }));
  const paths = graph.edges.map((edge) => ({ ...edge, d: edgePath(edge.through.map(([column, row]) => ({ x: xOf(column), y: (tops[row] ?? 0) + BOX.height / 2 }))) }));
  // Critical edges are drawn last, so that they are on top.
  paths.sort((a, b) => Number(a.critical) - Number(b.critical));
  const width = Math.max(0, ...placed.map((box) => box.x + BOX.width)) + BOX.left;
  const waves = hasGraph ? Math.max(...linked.map((node) => node.column)) + 1 : 0;
  return { placed, paths, width, height: y, looseTop, waves };
}

/** Returns the box to which an arrow key moves: right and left along the edges, up and down within a column. */
export function neighbour(graph: GraphView, drawn: Drawing, at: number, key: string): number {
  const from = drawn.placed[at];
  if (!from) return -1;
  const nearest = (found: number[], distance: (box: Placed) => number) => found.filter((index) => index !== at).sort((a, b) => distance(drawn.placed[a] as Placed) - distance(drawn.placed[b] as Placed))[0] ?? -1;
  const all = drawn.placed.map((_, index) => index);
  if (key === 'ArrowRight' || key === 'ArrowLeft') {
    const sign = key === 'ArrowRight' ? 1 : -1;
    const linked = graph.edges.flatMap((edge) => (sign > 0 && edge.from === at ? [edge.to] : sign < 0 && edge.to === at ? [edge.from] : []));
    if (linked.length > 0) return nearest(linked, (box) => Math.abs(box.y - from.y));
    if (!from.node.loose) return -1;
    return nearest(all.filter((index) => drawn.placed[index]?.y === from.y && ((drawn.placed[index]?.x ?? 0) - from.x) * sign > 0), (box) => Math.abs(box.x - from.x));
  }
  const sign = key === 'ArrowDown' ? 1 : -1;
  return nearest(all.filter((index) => ((drawn.placed[index]?.y ?? 0) - from.y) * sign > 0 && Math.abs((drawn.placed[index]?.x ?? 0) - from.x) < BOX.width), (box) => Math.abs(box.y - from.y));
}

export interface View {
  x: number;
  y: number;
  zoom: number;
}

/** Returns the view after zooming by `factor`, with the point `(x, y)` of the window at its place. */
export function zoomed(view: View, factor: number, x: number, y: number): View {
  const zoom = Math.min(MAX_ZOOM, Math.max(MIN_ZOOM, view.zoom * factor));
  const scale = zoom / view.zoom;
  return { zoom, x: x - (x - view.x) * scale, y: y - (y - view.y) * scale };
}

/** Keeps a part of the drawing in the window. A drawing that fits is not moved out of it. */
export function bounded(view: View, drawn: { width: number; height: number }, width: number, height: number): View {
  const within = (at: number, size: number, room: number) => (size <= room ? Math.min(Math.max(at, 0), room - size) : Math.min(0, Math.max(at, room - size)));
  return { zoom: view.zoom, x: within(view.x, drawn.width * view.zoom, width), y: within(view.y, drawn.height * view.zoom, height) };
}
