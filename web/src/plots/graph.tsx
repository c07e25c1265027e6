// The task graph. The daemon computes the layout, the folding and the critical path; this file draws them, with zoom, pan
// and movement along the edges by keys.

import './graph.css';
import { type Signal, useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { plain, shortName } from '../format';
import { topic } from '../live/client';
import { route, setQueryParam } from '../route';
import { Empty, useTopics } from '../ui';
import type { DisplayState, GraphView, TaskRowView } from '../api';
import { STATES } from '../states';
import { BOX, type GraphNode, LINE, MAX_LINES, MIN_ZOOM, type Placed, type View, bounded, drawing, neighbour, zoomed } from './graph-layout';
import { Legend } from './lanes';
import { MissionSelect } from './mission-select';
import { fitText, textWidth } from './text-width';

const ZOOM_STEP = 1.25;
/** Below this zoom, text is hard to read. The first view is not smaller, even if the graph does not fit. */
const READABLE_ZOOM = 0.75;
const DRAG_THRESHOLD = 4;

/** Returns the topic of a graph: of all tasks, of a mission, or of the tasks around one task. Null if `scope` is invalid. */
export function topicName(scope: string): 'graph' | `graph.${string}` | null {
  return scope === '' ? 'graph' : /^[MT][1-9]\d{0,14}$/.test(scope) ? `graph.${scope}` : null;
}

/** More ids than this never fit into a box. */
const MAX_IDS = 8;

/** Returns the tasks of a group in a few words: `T1, T2 and 10 more`. */
function idsText(tasks: string[], maxWidth: number): string {
  for (let count = Math.min(tasks.length, MAX_IDS); count > 0; count -= 1) {
    const text = count === tasks.length ? tasks.join(', ') : `${tasks.slice(0, count).join(', ')} and ${tasks.length - count} more`;
    if (textWidth(text) <= maxWidth) return text;
  }
  return `${tasks.length} tasks`;
}

function nodeTitle(node: GraphNode): string {
  const id = node.tasks.length === 1 ? node.tasks[0] : '';
  const needs = node.needs?.length ? `, needs ${node.needs.join(' ')}` : '';
  return `${id ? `${id} ${node.word}: ` : ''}${plain(node.label, 300)}${node.agent ? `, ${node.agent}` : ''}${needs}${id ? '' : `: ${node.tasks.slice(0, 40).join(' ')}`}${node.critical ? '; on the critical path' : ''}`;
}

function TaskNode({ box, index, faint }: { box: Placed; index: number; faint: boolean }) {
  const { node, x, y } = box;
  const first = `${node.tasks[0]} ${node.word}`;
  const room = BOX.width - 46 - textWidth(first, 600);
  const agent = node.agent && room > 40 ? fitText(shortName(node.agent, 20), room) : '';
  return (
    <g transform={`translate(${x} ${y})`}>
      <a data-row data-node={index} class={`task-node${faint ? ' faint' : ''}${node.critical ? ' critical' : ''}`} href={`/t/${node.tasks[0]}`}>
        <title>{nodeTitle(node)}</title>
        <rect class="node" width={BOX.width} height={BOX.height} rx={6} />
        <rect class={`at-${node.at}`} x={0.75} y={0.75} width={5} height={BOX.height - 1.5} rx={2.5} />
        <text x={16} y={20}>
          <tspan class={`glyph ink-at at-${node.at}`}>{STATES[node.at].glyph}</tspan> <tspan class="strong">{first}</tspan>
        </text>
        {agent && (
          <text class="dim" x={BOX.width - 10} y={20} text-anchor="end">
            {agent}
          </text>
        )}
        <text class="subject" x={16} y={38}>
          {fitText(plain(node.label, 200), BOX.width - 28)}
        </text>
      </a>
    </g>
  );
}

function GroupNode({ box, index, faint, open, toggle, rows, more }: { box: Placed; index: number; faint: boolean; open: boolean; toggle: () => void; rows: (id: string) => TaskRowView | undefined; more: string }) {
  const { node, x, y, height } = box;
  return (
    <g class={`task-node group-node${faint ? ' faint' : ''}${node.critical ? ' critical' : ''}`} transform={`translate(${x} ${y})`}>
      <rect class="node behind" x={4} y={4} width={BOX.width} height={height} rx={6} />
      <g
        data-row
        data-node={index}
        role="button"
        tabIndex={0}
        aria-expanded={open}
        onClick={toggle}
        onKeyDown={(event) => {
          if (event.key !== 'Enter' && event.key !== ' ') return;
          event.preventDefault();
          event.stopPropagation();
          toggle();
        }}
      >
        <title>{`${nodeTitle(node)}. ${open ? 'Fold' : 'Unfold'}`}</title>
        <rect class="node" width={BOX.width} height={height} rx={6} />
        <rect class={`at-${node.at}`} x={0.75} y={0.75} width={5} height={height - 1.5} rx={2.5} />
        <text x={16} y={20}>
          <tspan class={`glyph ink-at at-${node.at}`}>{STATES[node.at].glyph}</tspan> <tspan class="strong">{fitText(plain(node.label, 100), BOX.width - 64, 600)}</tspan>
        </text>
        <text class="dim" x={BOX.width - 10} y={20} text-anchor="end">
          {open ? '▾' : '▸'}
        </text>
        <text class="dim" x={16} y={38}>
          {idsText(node.tasks, BOX.width - 28)}
        </text>
      </g>
      {open &&
        node.tasks.slice(0, MAX_LINES).map((id, line) => {
          const row = rows(id);
          return (
            <a key={id} data-row href={`/t/${id}`}>
              <title>{row ? `${id} ${row.word}: ${plain(row.subject, 300)}` : id}</title>
              <rect class="line-ground" x={8} y={BOX.height + line * LINE} width={BOX.width - 12} height={LINE} rx={3} />
              <text x={16} y={BOX.height + line * LINE + 14}>
                {row && <tspan class={`glyph ink-at at-${row.at}`}>{STATES[row.at].glyph}</tspan>} <tspan class="strong">{id}</tspan> {row && fitText(plain(row.subject, 160), BOX.width - 46 - textWidth(id, 600))}
              </text>
            </a>
          );
        })}
      {open && node.tasks.length > MAX_LINES && (
        <a href={more}>
          <text class="dim" x={16} y={BOX.height + MAX_LINES * LINE + 14}>
            {node.tasks.length - MAX_LINES} more in the list of tasks
          </text>
        </a>
      )}
    </g>
  );
}

function Canvas(props: { graph: GraphView; legend: ComponentChildren; matchesFilter: ((task: string) => boolean) | null; rows: (id: string) => TaskRowView | undefined; more: (node: GraphNode) => string; opened: Signal<ReadonlySet<string>> }) {
  const { graph, opened } = props;
  const box = useRef<HTMLDivElement>(null);
  const width = useSignal(0);
  const moved = useSignal<View | null>(null);
  const pointers = useRef(new Map<number, { x: number; y: number }>());
  const drag = useRef({ travelled: 0, active: false });
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    width.value = element.clientWidth;
    const observer = new ResizeObserver(() => {
      if (element.clientWidth !== width.peek()) width.value = element.clientWidth;
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const room = width.value || 1_000;
  const isOpen = (node: GraphNode) => opened.value.has(node.tasks[0] ?? '');
  const drawn = drawing(graph, isOpen, Math.floor((room - 2 * BOX.left + BOX.gap) / (BOX.width + BOX.gap)));
  const fitWidth = Math.min(1, room / drawn.width);
  const firstZoom = Math.max(READABLE_ZOOM, fitWidth);
  const maxHeight = Math.max(260, Math.floor(innerHeight * 0.72));
  const height = Math.min(maxHeight, Math.max(90, Math.ceil(drawn.height * (moved.value ? Math.max(firstZoom, moved.value.zoom) : firstZoom)) + 8));
  const view = bounded(moved.value ?? { x: 0, y: 0, zoom: firstZoom }, drawn, room, height);
  const set = (next: View) => (moved.value = bounded(next, drawn, room, height));
  const zoomBy = (factor: number, x = room / 2, y = height / 2) => set(zoomed(view, factor, x, y));
  const fit = () => set({ x: 0, y: 0, zoom: Math.max(MIN_ZOOM, Math.min(1, room / drawn.width, maxHeight / drawn.height)) });
  const reveal = (index: number) => {
    const target = drawn.placed[index];
    if (!target) return;
    const [left, top, margin] = [target.x * view.zoom + view.x, target.y * view.zoom + view.y, 24];
    const dx = left < margin ? margin - left : Math.min(0, room - margin - (left + BOX.width * view.zoom));
    const dy = top < margin ? margin - top : Math.min(0, height - margin - (top + BOX.height * view.zoom));
    if (dx !== 0 || dy !== 0) set({ ...view, x: view.x + dx, y: view.y + dy });
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const index = Number((event.target as Element).closest('[data-node]')?.getAttribute('data-node') ?? -1);
    const pans: Record<string, [number, number]> = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    const pan = pans[event.key];
    if (event.key === '+' || event.key === '=') zoomBy(ZOOM_STEP);
    else if (event.key === '-') zoomBy(1 / ZOOM_STEP);
    else if (event.key === '0') fit();
    else if (pan && index >= 0) {
      const next = neighbour(graph, drawn, index, event.key);
      if (next >= 0) box.current?.querySelector<SVGElement>(`[data-node="${next}"]`)?.focus({ preventScroll: true });
    } else if (pan) set({ ...view, x: view.x + pan[0], y: view.y + pan[1] });
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const place = (event: { clientX: number; clientY: number }) => {
    const edge = box.current?.getBoundingClientRect();
    return { x: event.clientX - (edge?.left ?? 0), y: event.clientY - (edge?.top ?? 0) };
  };
  const onWheel = (event: WheelEvent) => {
    const at = place(event);
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoomBy(Math.exp(-event.deltaY / 300), at.x, at.y);
      return;
    }
    const next = bounded({ ...view, x: view.x - (event.shiftKey ? event.deltaY : event.deltaX), y: view.y - (event.shiftKey ? 0 : event.deltaY) }, drawn, room, height);
    // At the edge of the graph, the wheel scrolls the page.
    if (next.x === view.x && next.y === view.y) return;
    event.preventDefault();
    moved.value = next;
  };
  const onPointerMove = (event: PointerEvent) => {
    const before = pointers.current.get(event.pointerId);
    if (!before) return;
    const now = place(event);
    const other = [...pointers.current].find(([id]) => id !== event.pointerId)?.[1];
    pointers.current.set(event.pointerId, now);
    if (other) {
      const distance = (point: { x: number; y: number }) => Math.hypot(point.x - other.x, point.y - other.y);
      drag.current.active = true;
      set(zoomed(view, distance(now) / Math.max(1, distance(before)), (now.x + other.x) / 2, (now.y + other.y) / 2));
      return;
    }
    drag.current.travelled += Math.hypot(now.x - before.x, now.y - before.y);
    if (!drag.current.active && drag.current.travelled > DRAG_THRESHOLD) {
      drag.current.active = true;
      box.current?.setPointerCapture(event.pointerId);
    }
    if (drag.current.active) set({ ...view, x: view.x + now.x - before.x, y: view.y + now.y - before.y });
  };
  const endPointer = (event: PointerEvent) => {
    pointers.current.delete(event.pointerId);
  };
  const percent = Math.round(view.zoom * 100);
  return (
    <div class="graph-view">
      <div class="row graph-legend">
        {props.legend}
        <div class="graph-zoom" role="group" aria-label="Zoom">
          <button type="button" class="do" onClick={() => zoomBy(1 / ZOOM_STEP)} aria-label="zoom out" title="-">
            −
          </button>
          <button type="button" class="do percent" onClick={() => set(zoomed(view, 1 / view.zoom, 0, 0))} aria-label={`zoom ${percent} %, set to 100 %`} title="100 %">
            {percent} %
          </button>
          <button type="button" class="do" onClick={() => zoomBy(ZOOM_STEP)} aria-label="zoom in" title="+">
            +
          </button>
          <button type="button" class="do" onClick={fit} title="0">
            fit
          </button>
        </div>
      </div>
      <div
        class="graph-window"
        ref={box}
        style={{ height: `${height}px` }}
        tabIndex={0}
        role="group"
        aria-label={`${plain(graph.title, 120)}: ${graph.text}. Arrow keys move, plus and minus zoom, 0 shows everything.`}
        onKeyDown={onKeyDown}
        onWheel={onWheel}
        onPointerDown={(event) => {
          if (event.button !== 0) return;
          if (pointers.current.size === 0) drag.current = { travelled: 0, active: false };
          pointers.current.set(event.pointerId, place(event));
        }}
        onPointerMove={onPointerMove}
        onPointerUp={endPointer}
        onPointerCancel={endPointer}
        onPointerLeave={(event) => event.pointerType === 'mouse' && !drag.current.active && endPointer(event)}
        onDragStart={(event) => event.preventDefault()}
        onClickCapture={(event) => {
          // A click at the end of a drag opens nothing.
          if (!drag.current.active) return;
          drag.current.active = false;
          event.preventDefault();
          event.stopPropagation();
        }}
        onFocusCapture={(event) => {
          const index = (event.target as Element).closest('[data-node]')?.getAttribute('data-node');
          if (index && (event.target as Element).matches(':focus-visible')) reveal(Number(index));
        }}
      >
        <svg class="graph" width={room} height={height}>
          <defs>
            <marker id="arrow" viewBox="0 0 8 8" refX={1} refY={4} markerWidth={8} markerHeight={8} markerUnits="userSpaceOnUse" orient="auto">
              <path class="arrow-head" d="M0 0L8 4L0 8Z" />
            </marker>
            <marker id="arrow-critical" viewBox="0 0 8 8" refX={1} refY={4} markerWidth={10} markerHeight={10} markerUnits="userSpaceOnUse" orient="auto">
              <path class="arrow-head critical" d="M0 0L8 4L0 8Z" />
            </marker>
          </defs>
          <g transform={`translate(${view.x} ${view.y}) scale(${view.zoom})`}>
            {Array.from({ length: drawn.waves }, (_, index) => (
              <text key={index} class="dim wave" x={BOX.left + index * BOX.across} y={18} aria-hidden="true">
                Wave {index + 1}
              </text>
            ))}
            {drawn.looseTop !== null && (
              <text class="dim wave" x={BOX.left} y={drawn.looseTop + 16}>
                Without dependencies · {graph.nodes.filter((node) => node.loose).reduce((sum, node) => sum + node.tasks.length, 0)} tasks
              </text>
            )}
            {drawn.paths.map((path) => (
              <path key={`${path.from} ${path.to}`} class={path.critical ? 'edge bold' : 'edge'} d={path.d} marker-end={`url(#${path.critical ? 'arrow-critical' : 'arrow'})`} />
            ))}
            {drawn.placed.map((placed, index) => {
              const { node } = placed;
              const faint = props.matchesFilter !== null && !node.tasks.some(props.matchesFilter);
              const key = node.tasks[0] ?? '';
              if (node.tasks.length === 1) return <TaskNode key={key} box={placed} index={index} faint={faint} />;
              const toggle = () => {
                const next = new Set(opened.peek());
                if (!next.delete(key)) next.add(key);
                opened.value = next;
              };
              return <GroupNode key={key} box={placed} index={index} faint={faint} open={isOpen(node)} toggle={toggle} rows={props.rows} more={props.more(node)} />;
            })}
          </g>
        </svg>
      </div>
    </div>
  );
}

interface GraphProps {
  scope: string;
  matchesFilter: ((task: string) => boolean) | null;
}

/** The graph of all tasks, of a mission, or around one task. Tasks that `matchesFilter` rejects are dimmed. */
export function Graph(props: GraphProps) {
  return <ScopedGraph key={props.scope} {...props} />;
}

function ScopedGraph({ scope, matchesFilter }: GraphProps) {
  const name = topicName(scope);
  const opened = useSignal<ReadonlySet<string>>(new Set());
  const mission = scope.startsWith('M') ? scope : '';
  const rowsTopic = mission ? (`tasks.${mission}` as const) : 'tasks';
  const needsRows = opened.value.size > 0;
  useTopics(...(name ? [name] : []), ...(needsRows ? [rowsTopic] : []));
  const graph = name ? topic(name).get('graph') : undefined;
  if (!graph) return <Empty known={!name || topic(name).known.value}>{scope} does not exist. Show the graph of a mission or a task, such as regatta graph M1 or regatta graph T1</Empty>;
  const isTasksPage = route.value.path === '/tasks';
  const picker = isTasksPage && <MissionSelect label="graph of a mission" exclude={[scope]} onPick={(id) => setQueryParam('mission', id, true)} />;
  if (graph.nodes.length === 0) return <p class="empty row">No tasks yet. {picker}</p>;
  const seen = new Set<DisplayState>(graph.nodes.map((node) => node.at));
  const groups = graph.nodes.filter((node) => node.tasks.length > 1);
  const rows = (id: string) => (needsRows ? topic(rowsTopic).get(`task/${id}`) : undefined);
  const more = (node: GraphNode) => (mission ? `/m/${mission}?tab=tasks&at=${node.at}` : `/tasks?at=${node.at}`);
  const allOpen = groups.length > 0 && groups.every((node) => opened.value.has(node.tasks[0] ?? ''));
  const path = graph.critical.length > 6 ? [...graph.critical.slice(0, 4), '…', graph.critical[graph.critical.length - 1]] : graph.critical;
  const legend = (
    <>
      <Legend states={(Object.keys(STATES) as DisplayState[]).filter((at) => seen.has(at))} />
      {path.length > 0 && (
        <span class="critical-legend">
          <i aria-hidden="true" /> critical path, the longest chain of open tasks: {path.join(' → ')}
          {graph.critical.length > 6 && ` (${graph.critical.length} tasks)`}
        </span>
      )}
    </>
  );
  const isMissionPage = route.value.path.startsWith('/m/');
  return (
    <>
      <div class="row graph-head">
        <p>
          {isMissionPage ? <b>{graph.text}</b> : <><b>{plain(graph.title, 120)}</b> <span class="dim">· {graph.text}</span></>}
        </p>
        {picker}
        {groups.length > 0 && (
          <button type="button" class="do" aria-pressed={allOpen} onClick={() => (opened.value = new Set(allOpen ? [] : groups.map((node) => node.tasks[0] ?? '')))}>
            {allOpen ? 'fold all groups' : `unfold ${groups.length === 1 ? 'the group' : `all ${groups.length} groups`}`}
          </button>
        )}
        <code class="aside">regatta graph{scope && ` ${scope}`}</code>
        {scope && isTasksPage && <a href="/tasks?view=graph">show all</a>}
      </div>
      <Canvas legend={legend} graph={graph} matchesFilter={matchesFilter} rows={rows} more={more} opened={opened} />
      <p class="dim graph-hint">
        Drag or scroll to move, <kbd>Ctrl</kbd> and the wheel or <kbd>+</kbd> <kbd>-</kbd> to zoom, <kbd>0</kbd> to see everything. On a task, the arrow keys follow the lines.
      </p>
    </>
  );
}
