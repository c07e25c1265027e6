// Tasks as a graph, drawn as the daemon lays it out: which box is where, what is folded and which way is the longest is
// its to say.

import { plain } from '../format';
import { topic } from '../live/client';
import { Empty, useTopics } from '../ui';
import { type At, type Graph as View, STATES } from '../views';
import { Legend } from './lanes';

const BOX = { width: 176, height: 40, across: 226, down: 50, top: 26 };

const left = (column: number) => column * BOX.across + 2;
const middle = (row: number) => BOX.top + row * BOX.down + BOX.height / 2;

/** A line through cells: bent from one column to the next, straight where it passes one. */
export function line(through: [number, number][]): string {
  return through
    .map(([column, row], nth) => {
      const [x, y, last] = [left(column), middle(row), nth === through.length - 1];
      if (nth === 0) return `M${x + BOX.width} ${y}`;
      const [[was, height], bend] = [through[nth - 1] ?? ([0, 0] as const), (BOX.across - BOX.width) / 2] as const;
      return `C${left(was) + BOX.width + bend} ${middle(height)} ${x - bend} ${y} ${x} ${y}${last ? '' : `H${x + BOX.width}`}`;
    })
    .join('');
}

/** What a graph is of, as its topic is called: a mission, a task with what is around it, or everything. */
export function named(of: string): string | null {
  return of === '' ? 'graph' : /^[MT][1-9]\d{0,14}$/.test(of) ? `graph.${of}` : null;
}

function Node({ it, faint, mission }: { it: View['nodes'][number]; faint: boolean; mission: string }) {
  const [x, y, id] = [left(it.column), BOX.top + it.row * BOX.down, it.tasks.length === 1 ? it.tasks[0] : ''];
  const { glyph } = STATES[it.at];
  const needs = it.needs?.length ? `, needs ${it.needs.join(' ')}` : '';
  const said = `${id ? `${id} ${it.word}: ` : ''}${plain(it.label, 200)}${it.agent ? `, ${it.agent}` : ''}${needs}${it.critical ? ', on the longest way' : ''}`;
  // Its title is what it is called, to who hears it and to who points at it.
  return (
    <a data-row class={faint ? 'faint' : ''} href={id ? `/t/${id}` : `/tasks?at=${it.at}${mission ? `&mission=${mission}` : ''}`}>
      <title>{said}</title>
      {!id && <rect class="node" x={x + 4} y={y + 4} width={BOX.width} height={BOX.height} rx={5} />}
      <rect class={`node${it.critical ? ' bold' : ''}`} x={x} y={y} width={BOX.width} height={BOX.height} rx={5} />
      <rect class={`at-${it.at}`} x={x} y={y} width={5} height={BOX.height} rx={2} />
      <text x={x + 13} y={y + 17}>
        {glyph} {id ? `${id} ${it.word}` : plain(it.label, 24)}
      </text>
      <text class="dim" x={x + 13} y={y + 33}>
        {id ? plain(it.label, 25) : 'folded into one'}
      </text>
    </a>
  );
}

/** The graph of a mission, of a task with what is around it, or of all; `fits` says which tasks a filter is after. */
export function Graph({ of, fits }: { of: string; fits: ((task: string) => boolean) | null }) {
  const name = named(of);
  useTopics(...(name ? [name] : []));
  const it = name ? topic(name).one<View>('graph') : undefined;
  if (!it) return <Empty known={!name || topic(name).known.value}>There is no {of} to draw. regatta graph M1, or regatta graph T1</Empty>;
  if (it.nodes.length === 0) return <p class="empty">There is no task to draw yet.</p>;
  const seen = new Set<At>(it.nodes.map((one) => one.at));
  const mission = of.startsWith('M') ? of : '';
  // What is bold is drawn last, on top.
  const edges = [...it.edges].sort((a, b) => Number(a.critical) - Number(b.critical));
  return (
    <>
      <div class="row">
        <p class="empty">
          <b>{plain(it.title, 120)}</b> · {it.text}
          {it.critical.length > 0 && '; the longest way through what is left is bold'} · <code>regatta graph{of && ` ${of}`}</code> {of && <a href="/tasks?view=graph">show all</a>}
        </p>
        <Legend of={(Object.keys(STATES) as At[]).filter((at) => seen.has(at))} />
      </div>
      <div class="scroll">
        <svg class="graph" width={left(it.columns) - BOX.across + BOX.width + 8} height={BOX.top + it.rows * BOX.down} role="group" aria-label={`${plain(it.title, 120)}: ${it.text}`}>
          {Array.from({ length: it.columns }, (_, nth) => (
            <text key={nth} class="dim" x={left(nth)} y={14} aria-hidden="true">
              wave {nth + 1}
            </text>
          ))}
          {edges.map((one) => (
            <path key={`${one.from} ${one.to}`} class={one.critical ? 'bold' : ''} d={line(one.through)} />
          ))}
          {it.nodes.map((one) => (
            <Node key={one.tasks[0]} it={one} mission={mission} faint={fits !== null && !one.tasks.some(fits)} />
          ))}
        </svg>
      </div>
    </>
  );
}
