// Tasks as a graph: waves as columns, the longest open chain bold, landed ones together where there are many.

import type { At, Row } from '../views';

export interface Node {
  id: string;
  row: Row | null;
  at: At;
  label: string;
  x: number;
  y: number;
}

export interface Edge {
  from: Node;
  to: Node;
  bold: boolean;
}

export interface Graph {
  nodes: Node[];
  edges: Edge[];
  columns: number;
  rows: number;
  text: string;
}

const MOST = 60;
const HOW = 'Columns are waves; the longest open chain is bold.';

/** Which tasks to draw: all that fit, or those within two steps of one. */
function chosen(all: Row[], around: string): { rows: Row[]; text: string } {
  if (around && all.some((it) => it.id === around)) {
    let near = new Set([around]);
    for (let hop = 0; hop < 2; hop += 1) {
      const next = new Set(near);
      for (const it of all) {
        if (near.has(it.id)) it.blocked_by.forEach((id) => next.add(id));
        if (it.blocked_by.some((id) => near.has(id))) next.add(it.id);
      }
      near = next;
    }
    return { rows: all.filter((it) => near.has(it.id)).slice(0, MOST), text: `Two steps around ${around}. ${HOW}` };
  }
  if (all.length <= MOST) return { rows: all, text: HOW };
  const open = all.filter((it) => it.at !== 'landed');
  const landed = all.length - open.length;
  const text = open.length > MOST ? `${MOST} of ${open.length} open tasks; narrow the filter to see others.` : '';
  return { rows: open.slice(0, MOST), text: `${text}${landed > 0 ? ` ${landed} landed ones are one box.` : ''} ${HOW}`.trim() };
}

export function layers(all: Row[], around = ''): Graph {
  const { rows, text } = chosen(all, around);
  const by = new Map(rows.map((it) => [it.id, it]));
  const depth = new Map<string, number>();
  const of = (id: string, path: Set<string>): number => {
    const known = depth.get(id);
    if (known !== undefined) return known;
    const row = by.get(id);
    if (!row || path.has(id)) return -1; // not drawn, or a cycle that the daemon would have refused
    const inner = new Set(path).add(id);
    const deep = 1 + Math.max(-1, ...row.blocked_by.map((it) => of(it, inner)));
    depth.set(id, deep);
    return deep;
  };
  const landed = all.length - rows.length > 0 && !around ? all.filter((it) => it.at === 'landed' && !by.has(it.id)) : [];
  const shift = landed.length > 0 ? 1 : 0;
  const nodes = new Map<string, Node>();
  const filled: number[] = [];
  for (const row of [...rows].sort((a, b) => of(a.id, new Set()) - of(b.id, new Set()))) {
    const x = of(row.id, new Set()) + shift;
    const y = filled[x] ?? 0;
    filled[x] = y + 1;
    nodes.set(row.id, { id: row.id, row, at: row.at, label: row.subject, x, y });
  }
  if (shift > 0) {
    filled[0] = 1;
    nodes.set('landed', { id: 'landed', row: null, at: 'landed', label: `${landed.length} landed`, x: 0, y: 0 });
  }
  const heavy = new Set(longest(rows));
  const edges: Edge[] = [];
  for (const row of rows) {
    const to = nodes.get(row.id);
    for (const id of row.blocked_by) {
      const from = nodes.get(id);
      if (from && to) edges.push({ from, to, bold: heavy.has(`${id} ${row.id}`) });
    }
  }
  return { nodes: [...nodes.values()], edges, columns: Math.max(1, filled.length), rows: Math.max(1, ...filled.map((it) => it ?? 0)), text };
}

/** The edges of the longest chain of open tasks. */
function longest(rows: Row[]): string[] {
  const open = new Map(rows.filter((it) => it.at !== 'landed').map((it) => [it.id, it]));
  const best = new Map<string, string[]>();
  const chain = (id: string, path: Set<string>): string[] => {
    const known = best.get(id);
    if (known) return known;
    if (path.has(id)) return [];
    const before = (open.get(id)?.blocked_by ?? []).filter((it) => open.has(it)).map((it) => chain(it, new Set(path).add(id)));
    const long = before.reduce((most, it) => (it.length > most.length ? it : most), [] as string[]);
    const made = [...long, id];
    best.set(id, made);
    return made;
  };
  const all = [...open.keys()].map((it) => chain(it, new Set()));
  const most = all.reduce((one, it) => (it.length > one.length ? it : one), [] as string[]);
  return most.slice(1).map((it, nth) => `${most[nth]} ${it}`);
}
