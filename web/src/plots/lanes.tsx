// Lanes over time: one row for each agent, or, for a large fleet, one cell each and the share of each state.

import { useSignal } from '@preact/signals';
import { Component } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { age, clockTime, plain } from '../format';
import { byName, topic } from '../live/client';
import { get, go, set } from '../route';
import { Age, Glyph, Panel, Table, TaskLink, clock, useTopics } from '../ui';
import { type At, type Bar, type Bars, type Lane, STATES, type Shares } from '../views';

const LEGEND: At[] = ['working', 'waiting', 'needs', 'review', 'landing', 'failed', 'idle'];
const WINDOWS: [string, number][] = [
  ['1m', 60_000],
  ['5m', 300_000],
  ['15m', 900_000],
  ['1h', 3_600_000],
  ['6h', 6 * 3_600_000],
  ['24h', 24 * 3_600_000],
];

/** What the window is fitted to where nobody chose one: what there is fills at least half of it. */
const FITS: [string, number][] = [['10s', 10_000], ['20s', 20_000], ['30s', 30_000], ['1m', 60_000], ['2m', 120_000], ['5m', 300_000], ['10m', 600_000], ['20m', 1_200_000], ['30m', 1_800_000], ...WINDOWS.slice(3)];

/** The window that shows what there is: an hour, less if there is less, more if all is older. */
export function windowFor(bars: Bar[][], now: number, asked: string): { ms: number; text: string; widened: boolean } {
  const chosen = WINDOWS.find((it) => it[0] === asked);
  if (chosen) return { ms: chosen[1], text: `last ${asked}`, widened: false };
  let first = now;
  let last = 0;
  for (const lane of bars) {
    for (const bar of lane) {
      first = Math.min(first, bar.from);
      last = Math.max(last, bar.to ?? now);
    }
  }
  const hour = 3_600_000;
  const quiet = last > 0 && last < now - hour;
  const span = quiet ? now - last : Math.min(now - first, hour);
  const fit = FITS.find((it) => it[1] >= span) ?? FITS[FITS.length - 1];
  const [name, ms] = fit ?? ['1h', hour];
  return { ms, text: quiet ? `nothing in the last hour; last ${name}` : `last ${name}`, widened: quiet };
}

/** Where a bar stands in a window, or nothing if it is outside. One that goes on grows to now. */
export function placed(bar: Bar, from: number, now: number, width: number): { x: number; width: number } | null {
  const end = Math.min(bar.to ?? now, now);
  const start = Math.max(bar.from, from);
  if (end <= from || start >= now || end < start) return null;
  const scale = width / (now - from);
  const x = (start - from) * scale;
  return { x, width: Math.max(1.5, (end - start) * scale - 1) };
}

function Legend() {
  return (
    <ul class="legend" aria-label="Legend">
      {LEGEND.map((at) => (
        <li key={at}>
          <span class={`swatch at-${at}`} aria-hidden="true" /> {STATES[at].glyph} {STATES[at].word}
        </li>
      ))}
    </ul>
  );
}

function Window() {
  return (
    <label class="window">
      <span class="sr">Window</span>
      <select value={get('window')} onChange={(it) => set('window', it.currentTarget.value)}>
        <option value="">as it fits</option>
        {WINDOWS.map(([name]) => (
          <option key={name} value={name}>
            last {name}
          </option>
        ))}
      </select>
    </label>
  );
}

export function byUrgency(a: Lane, b: Lane): number {
  return STATES[a.at].rank - STATES[b.at].rank || byName(a.agent, b.agent);
}

export function Lanes({ size }: { size: 'few' | 'some' | 'many' }) {
  useTopics('lanes', size === 'many' ? 'shares' : 'bars');
  const known = topic('lanes').known.value;
  const lanes = topic('lanes').all<Lane>();
  const table = get('as') === 'table';
  const title = `${lanes.length} ${lanes.length === 1 ? 'lane' : 'lanes'}`;
  const aside = (
    <>
      {size !== 'many' && <Window />}
      <button type="button" class="plain" aria-pressed={table} onClick={() => set('as', table ? null : 'table')}>
        {table ? 'Show as plot' : 'Show as table'}
      </button>
      <Legend />
    </>
  );
  return (
    <Panel title={title} aside={aside} class="lanes">
      {lanes.length === 0 ? (
        <p class="empty">{known ? 'No agent is registered yet: regatta agent add, or see the demo: regatta demo' : 'asking the daemon…'}</p>
      ) : table ? (
        <AsTable lanes={lanes} />
      ) : size === 'many' ? (
        <Many lanes={lanes} />
      ) : (
        <Rows lanes={lanes} tall={size === 'few'} />
      )}
    </Panel>
  );
}

function AsTable({ lanes }: { lanes: Lane[] }) {
  return (
    <Table heads={['Agent', 'State', 'Task', 'Doing', 'For']}>
      {[...lanes].sort(byUrgency).map((it) => (
        <tr key={it.agent}>
          <td>{it.agent}</td>
          <td>
            <Glyph at={it.at} /> {STATES[it.at].word}
          </td>
          <td>{it.task && <TaskLink id={it.task} />}</td>
          <td>{plain(it.text, 120)}</td>
          <td>
            <Age since={it.since_wall} />
          </td>
        </tr>
      ))}
    </Table>
  );
}

const LABEL = 132;

function Rows({ lanes, tall }: { lanes: Lane[]; tall: boolean }) {
  const place = useRef<HTMLDivElement>(null);
  const width = useSignal(900);
  useEffect(() => {
    const it = place.current;
    if (!it) return;
    const watch = new ResizeObserver(([entry]) => {
      const now = Math.floor(entry?.contentRect.width ?? 0);
      if (now > 0 && Math.abs(now - width.peek()) > 1) width.value = now;
    });
    watch.observe(it);
    return () => watch.disconnect();
  }, []);
  const bars = topic('bars');
  void bars.changed.value;
  const sorted = tall ? lanes : [...lanes].sort(byUrgency);
  const of = (lane: Lane) => bars.one<Bars>(`bars/${lane.agent}`)?.bars ?? [];
  const now = clock.value;
  const shown = windowFor(sorted.map(of), now, get('window'));
  const from = now - shown.ms;
  const step = tall ? 30 : 17;
  const inner = Math.max(100, width.value - LABEL);
  const height = 20 + step * sorted.length;
  const ticks = [0, 1, 2, 3, 4, 5, 6].map((it) => it / 6);
  const counts = LEGEND.map((at) => [at, lanes.filter((it) => it.at === at).length] as const).filter((it) => it[1] > 0);
  const sentence = `${shown.text}; now ${counts.map(([at, many]) => `${many} ${STATES[at].word}`).join(', ')}`;
  return (
    <div ref={place}>
      {shown.widened && <p class="empty">{shown.text}</p>}
      <svg class="rows" width={width.value} height={height} role="img" aria-label={`Lanes over time, ${sentence}`}>
        <defs>
          <pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <rect width="6" height="6" class="hatch-ground" />
            <rect width="1.6" height="6" class="hatch-line" />
          </pattern>
        </defs>
        {ticks.map((it) => (
          <g key={it}>
            <line class="tick" x1={LABEL + inner * it} x2={LABEL + inner * it} y1={16} y2={height} />
            <text class="ticks" x={LABEL + inner * it} y={11} text-anchor={it === 1 ? 'end' : it === 0 ? 'start' : 'middle'}>
              {it === 1 ? 'now' : `-${age(Math.round((shown.ms * (1 - it)) / 1_000) * 1_000)}`}
            </text>
          </g>
        ))}
        {sorted.map((lane, row) => (
          <Row key={lane.agent} lane={lane} bars={of(lane)} y={18 + row * step} step={step} from={from} now={now} inner={inner} tall={tall} />
        ))}
        <line class="now" x1={LABEL + inner - 0.5} x2={LABEL + inner - 0.5} y1={14} y2={height} />
      </svg>
    </div>
  );
}

function Row(props: { lane: Lane; bars: Bar[]; y: number; step: number; from: number; now: number; inner: number; tall: boolean }) {
  const { lane, bars, y, step, from, now, inner, tall } = props;
  const thick = tall ? step - 5 : step - 4;
  return (
    <g>
      <text class="label" x={0} y={y + thick / 2 + 4}>
        <tspan class={`ink-${lane.at}`}>{STATES[lane.at].glyph}</tspan> {lane.agent.length > 17 ? `…${lane.agent.slice(-16)}` : lane.agent}
        <title>{`${lane.agent}: ${STATES[lane.at].word} ${plain(lane.text, 200)}`}</title>
      </text>
      {bars.map((bar) => {
        const at = placed(bar, from, now, inner);
        if (!at) return null;
        const word = [bar.task, bar.at === 'working' ? '' : plain(bar.text ?? '', 80)].filter(Boolean).join(' · ');
        const room = Math.floor(at.width / 6.4) - 1;
        const words = `${bar.task ?? ''} ${STATES[bar.at].word}, ${age((bar.to ?? now) - bar.from)} from ${clockTime(bar.from)}. ${plain(bar.text ?? '', 200)}`;
        return (
          <g key={bar.from} class="bar" onClick={() => bar.task && go(`/t/${bar.task}`)}>
            <rect class={`at-${bar.at}`} x={LABEL + at.x} y={y} width={at.width} height={thick} rx={2.5} />
            {tall && room >= 3 && (
              <text class={`in-${bar.at}`} x={LABEL + at.x + 6} y={y + thick / 2 + 4}>
                {word.length > room ? `${word.slice(0, room - 1)}…` : word}
              </text>
            )}
            <title>{words}</title>
          </g>
        );
      })}
    </g>
  );
}

/** A lane's cell. An entity is replaced, never changed, so of 300 only those of new ones are drawn and compared. What was
 * drawn is not kept beside the tree: a node that is used again holds on to every tree it was in. */
class Cell extends Component<{ of: Lane }> {
  shouldComponentUpdate(next: { of: Lane }) {
    return next.of !== this.props.of;
  }

  render({ of: it }: { of: Lane }) {
    return (
      <i class={`cell at-${it.at}`} title={`${it.agent}: ${STATES[it.at].word} ${it.task ?? ''} ${plain(it.text, 100)}`} onClick={() => it.task && go(`/t/${it.task}`)}>
        {STATES[it.at].glyph}
      </i>
    );
  }
}

function Many({ lanes }: { lanes: Lane[] }) {
  const sorted = [...lanes].sort(byUrgency);
  const counts = LEGEND.map((at) => [at, lanes.filter((it) => it.at === at).length] as const).filter((it) => it[1] > 0);
  const urgent = sorted.filter((it) => it.at === 'failed' || it.at === 'needs').slice(0, 12);
  const shares = topic('shares').all<Shares>();
  const slots = minutesFor(shares, clock.value);
  return (
    <>
      <p class="counts">{counts.map(([at, many]) => `${many} ${STATES[at].word}`).join(' · ')}</p>
      <div class="cells" role="img" aria-label={`One cell for each agent, most urgent first: ${counts.map(([at, many]) => `${many} ${STATES[at].word}`).join(', ')}`}>
        {sorted.map((it) => (
          <Cell key={it.agent} of={it} />
        ))}
      </div>
      {urgent.length > 0 && (
        <ul class="urgent">
          {urgent.map((it) => (
            <li key={it.agent}>
              <Glyph at={it.at} /> {it.agent} {it.task && <TaskLink id={it.task} />} {plain(it.text, 100)}
            </li>
          ))}
        </ul>
      )}
      {shares.length > 0 && (
        <p class="axis" aria-hidden="true">
          {[0, 1, 2, 3, 4].map((it) => (
            <span key={it}>-{age(Math.round(slots * (1 - it / 5) * 60) * 1_000)}</span>
          ))}
          <span>now</span>
        </p>
      )}
      {shares.map((it) => (
        <Share key={it.provider} of={it} slots={slots} />
      ))}
    </>
  );
}

const ORDER: At[] = ['failed', 'needs', 'waiting', 'landing', 'review', 'working', 'idle', 'offline', 'landed'];
const STACK: At[] = ['working', 'review', 'landing', 'waiting', 'needs', 'failed'];

/** One path for each state, so that an hour of a fleet is a handful of elements. */
export function stacked(minutes: [number, number[]][], lanes: number, now: number, width: number, height: number, slots = 60): Map<At, string> {
  const paths = new Map<At, string>();
  const slot = width / slots;
  const first = Math.floor(now / 60_000) - slots + 1;
  for (const [wall, counts] of minutes) {
    const nth = Math.floor(wall / 60_000) - first;
    if (nth < 0 || nth >= slots) continue;
    let y = height;
    for (const at of STACK) {
      const tall = ((counts[ORDER.indexOf(at)] ?? 0) / Math.max(1, lanes)) * height;
      if (tall <= 0) continue;
      y -= tall;
      paths.set(at, `${paths.get(at) ?? ''}M${(nth * slot).toFixed(1)} ${y.toFixed(1)}h${(slot - 0.6).toFixed(1)}v${tall.toFixed(1)}h-${(slot - 0.6).toFixed(1)}z`);
    }
  }
  return paths;
}

/** How many minutes are shown: what there is fills at least half of them. */
export function minutesFor(shares: Shares[], now: number): number {
  const first = Math.min(now, ...shares.flatMap((it) => it.minutes[0]?.[0] ?? []));
  const past = Math.floor(now / 60_000) - Math.floor(first / 60_000) + 1;
  return [5, 10, 20, 30].find((it) => it >= past) ?? 60;
}

function Share({ of, slots }: { of: Shares; slots: number }) {
  const height = 44;
  const width = 800;
  const last = of.minutes[of.minutes.length - 1]?.[1] ?? [];
  const words = STACK.map((at) => [at, last[ORDER.indexOf(at)] ?? 0] as const).filter((it) => it[1] > 0);
  return (
    <div class="share">
      <div>
        {of.provider}
        <small>{of.lanes} lanes</small>
      </div>
      <svg viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" height={height} role="img" aria-label={`${of.provider}, last ${slots} minutes; now ${words.map(([at, many]) => `${many} ${STATES[at].word}`).join(', ')}`}>
        {[...stacked(of.minutes, of.lanes, clock.value, width, height, slots)].map(([at, d]) => (
          <path key={at} class={`at-${at}`} d={d} />
        ))}
      </svg>
    </div>
  );
}
