import { render } from 'preact';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { GraphView } from '../api';
import { onMessage, topic } from '../live/client';
import { Graph } from './graph';

vi.mock('../live/worker?sharedworker&url', () => ({ default: '/assets/worker.js' }));

const GRAPH: GraphView = {
  title: 'all tasks',
  text: '2 tasks in 2 waves',
  tasks: 2,
  columns: 2,
  rows: 1,
  nodes: [
    { column: 0, row: 0, tasks: ['T1'], label: 'First', word: 'landed', at: 'landed', critical: false },
    { column: 1, row: 0, tasks: ['T2'], label: 'Second', word: 'working', at: 'working', agent: 'ann', needs: ['T1'], critical: false },
  ],
  edges: [{ from: 0, to: 1, through: [[0, 0], [1, 0]], critical: false }],
  critical: [],
};

const boxes: HTMLElement[] = [];
function draw(scope: string): HTMLElement {
  const box = document.createElement('div');
  document.body.append(box);
  boxes.push(box);
  render(<Graph scope={scope} matchesFilter={null} />, box);
  return box;
}

afterEach(() => {
  for (const box of boxes.splice(0)) {
    render(null, box);
    box.remove();
  }
});

async function nextFrame(): Promise<void> {
  for (let index = 0; index < 3; index += 1) await new Promise((done) => requestAnimationFrame(() => done(null)));
}

describe('the graph', () => {
  it('is drawn when its data arrives after the topic was reset', async () => {
    const box = draw('');
    onMessage({ kind: 'reset', topics: ['graph'] });
    await nextFrame();
    expect(box.textContent).toContain('loading');
    onMessage({ kind: 'frame', seq: 1, at: 0, p: [{ t: 'graph', k: 'graph', v: GRAPH }] });
    await nextFrame();
    expect(box.querySelectorAll('svg a')).toHaveLength(2);
    // The daemon sends everything again, for example after a restart.
    onMessage({ kind: 'reset', topics: ['graph'] });
    await nextFrame();
    expect(box.querySelectorAll('svg a')).toHaveLength(2);
    onMessage({ kind: 'frame', seq: 2, at: 0, p: [{ t: 'graph', k: 'graph', v: { ...GRAPH, nodes: GRAPH.nodes.slice(0, 1), edges: [] } }] });
    await nextFrame();
    expect(box.querySelectorAll('svg a')).toHaveLength(1);
  });

  it('says that a mission does not exist only after the daemon has answered', async () => {
    const box = draw('M9');
    onMessage({ kind: 'reset', topics: ['graph.M9'] });
    await nextFrame();
    expect(topic('graph.M9').known.value).toBe(false);
    expect(box.textContent).toBe('loading…');
    onMessage({ kind: 'frame', seq: 1, at: 0, p: [] });
    await nextFrame();
    expect(box.textContent).toContain('M9 does not exist');
  });
});
