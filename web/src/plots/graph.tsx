// The task graph. The daemon computes the layout, the folding and the critical path; this file only draws them.

import { plain } from '../format';
import { topic } from '../live/client';
import { Empty, useTopics } from '../ui';
import type { DisplayState, GraphView } from '../api';
import { STATES } from '../states';
import { Legend } from './lanes';

const BOX = { width: 176, height: 40, across: 226, down: 50, top: 26 };

const leftOf = (column: number) => column * BOX.across + 2;
const middleOf = (row: number) => BOX.top + row * BOX.down + BOX.height / 2;

/** Returns the SVG path of an edge through cells: curved between columns, straight through a cell. */
export function edgePath(through: [number, number][]): string {
  return through
    .map(([column, row], index) => {
      const [x, y, last] = [leftOf(column), middleOf(row), index === through.length - 1];
      if (index === 0) return `M${x + BOX.width} ${y}`;
      const [[lastColumn, lastRow], bend] = [through[index - 1] ?? ([0, 0] as const), (BOX.across - BOX.width) / 2] as const;
      return `C${leftOf(lastColumn) + BOX.width + bend} ${middleOf(lastRow)} ${x - bend} ${y} ${x} ${y}${last ? '' : `H${x + BOX.width}`}`;
    })
    .join('');
}

/** Returns the topic of a graph: of all tasks, of a mission, or of the tasks around one task. Null if `scope` is invalid. */
export function topicName(scope: string): 'graph' | `graph.${string}` | null {
  return scope === '' ? 'graph' : /^[MT][1-9]\d{0,14}$/.test(scope) ? `graph.${scope}` : null;
}

function Node({ node, faint, mission }: { node: GraphView['nodes'][number]; faint: boolean; mission: string }) {
  const [x, y, id] = [leftOf(node.column), BOX.top + node.row * BOX.down, node.tasks.length === 1 ? node.tasks[0] : ''];
  const { glyph } = STATES[node.at];
  const needs = node.needs?.length ? `, needs ${node.needs.join(' ')}` : '';
  const description = `${id ? `${id} ${node.word}: ` : ''}${plain(node.label, 200)}${node.agent ? `, ${node.agent}` : ''}${needs}${node.critical ? '; on the critical path' : ''}`;
  // The title is both the tooltip and the name for screen readers.
  return (
    <a data-row class={faint ? 'faint' : ''} href={id ? `/t/${id}` : `/tasks?at=${node.at}${mission ? `&mission=${mission}` : ''}`}>
      <title>{description}</title>
      {!id && <rect class="node" x={x + 4} y={y + 4} width={BOX.width} height={BOX.height} rx={5} />}
      <rect class={`node${node.critical ? ' bold' : ''}`} x={x} y={y} width={BOX.width} height={BOX.height} rx={5} />
      <rect class={`at-${node.at}`} x={x} y={y} width={5} height={BOX.height} rx={2} />
      <text x={x + 13} y={y + 17}>
        {glyph} {id ? `${id} ${node.word}` : plain(node.label, 24)}
      </text>
      <text class="dim" x={x + 13} y={y + 33}>
        {id ? plain(node.label, 25) : 'several tasks'}
      </text>
    </a>
  );
}

/** The graph of all tasks, of a mission, or around one task. Tasks that `matchesFilter` rejects are dimmed. */
export function Graph({ scope, matchesFilter }: { scope: string; matchesFilter: ((task: string) => boolean) | null }) {
  const name = topicName(scope);
  useTopics(...(name ? [name] : []));
  const graph = name ? topic(name).get('graph') : undefined;
  if (!graph) return <Empty known={!name || topic(name).known.value}>{scope} does not exist. Show the graph of a mission or a task, such as regatta graph M1 or regatta graph T1</Empty>;
  if (graph.nodes.length === 0) return <p class="empty">No tasks yet.</p>;
  const seen = new Set<DisplayState>(graph.nodes.map((node) => node.at));
  const mission = scope.startsWith('M') ? scope : '';
  // Critical edges are drawn last, so that they are on top.
  const edges = [...graph.edges].sort((a, b) => Number(a.critical) - Number(b.critical));
  return (
    <>
      <div class="row">
        <p class="empty">
          <b>{plain(graph.title, 120)}</b> · {graph.text}
          {graph.critical.length > 0 && '; the critical path of the remaining tasks is bold'} · <code>regatta graph{scope && ` ${scope}`}</code> {scope && <a href="/tasks?view=graph">show all</a>}
        </p>
        <Legend states={(Object.keys(STATES) as DisplayState[]).filter((at) => seen.has(at))} />
      </div>
      <div class="scroll">
        <svg class="graph" width={leftOf(graph.columns) - BOX.across + BOX.width + 8} height={BOX.top + graph.rows * BOX.down} role="group" aria-label={`${plain(graph.title, 120)}: ${graph.text}`}>
          {Array.from({ length: graph.columns }, (_, index) => (
            <text key={index} class="dim" x={leftOf(index)} y={14} aria-hidden="true">
              wave {index + 1}
            </text>
          ))}
          {edges.map((edge) => (
            <path key={`${edge.from} ${edge.to}`} class={edge.critical ? 'bold' : ''} d={edgePath(edge.through)} />
          ))}
          {graph.nodes.map((node) => (
            <Node key={node.tasks[0]} node={node} mission={mission} faint={matchesFilter !== null && !node.tasks.some(matchesFilter)} />
          ))}
        </svg>
      </div>
    </>
  );
}
