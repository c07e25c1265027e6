// Lanes over time: one row for each agent. A large fleet is drawn elsewhere, and comes when there is one.

import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { age, clockTime, named, plain } from '../format';
import { later } from '../lazy';
import { byName, topic } from '../live/client';
import { get, go, set } from '../route';
import { Panel, moment, useTopics } from '../ui';
import { type At, type Bar, type Bars, type Lane, STATES } from '../views';

const Many = later<{ lanes: Lane[] }>(() => import('./agent-grid').then((it) => it.Many));
const AsTable = later<{ lanes: Lane[] }>(() => import('./agent-grid').then((it) => it.AsTable));

export const LEGEND: At[] = ['working', 'waiting', 'needs', 'review', 'landing', 'failed', 'idle', 'offline'];
const WINDOWS: [string, number][] = [
  ['1m', 60_000],
  ['5m', 300_000],
  ['15m', 900_000],
  ['1h', 3_600_000],
  ['6h', 6 * 3_600_000],
  ['24h', 24 * 3_600_000],
];

/** What the window is fitted to where nobody chose one: what there is fills at least half of it. */
const FITS: [string, number][] = [['5s', 5_000], ['10s', 10_000], ['20s', 20_000], ['30s', 30_000], ['1m', 60_000], ['2m', 120_000], ['5m', 300_000], ['10m', 600_000], ['20m', 1_200_000], ['30m', 1_800_000], ...WINDOWS.slice(3)];

/** The window that shows what there is: an hour, less if there is less, more if all is older. */
export function windowFor(bars: Bar[][], now: number, asked: string): { ms: number; text: string; widened: boolean } {
  const chosen = WINDOWS.find((it) => it[0] === asked);
  let first = now;
  let last = 0;
  for (const lane of bars) {
    for (const bar of lane) {
      first = Math.min(first, bar.from);
      last = Math.max(last, bar.to ?? now);
    }
  }
  if (chosen) {
    // A window that somebody chose stays; that it is empty is said.
    const empty = last <= now - chosen[1];
    return { ms: chosen[1], text: empty ? `nothing in the last ${asked}${last > 0 ? `; the last was ${age(now - last)} ago` : ''}` : `last ${asked}`, widened: empty };
  }
  const hour = 3_600_000;
  const quiet = last > 0 && last < now - hour;
  const span = quiet ? now - last : Math.min(now - first, hour);
  const fit = FITS.find((it) => it[1] >= span) ?? FITS[FITS.length - 1];
  const [name, ms] = fit ?? ['1h', hour];
  return { ms, text: quiet ? `nothing in the last hour; last ${name}` : `last ${name}`, widened: quiet };
}

/** How long nobody does anything before that stretch is folded, and how wide a fold is. */
const FOLD = 600_000;
const CREASE = 22;

/** Time across a width. A long stretch in which no lane did anything takes the place of a fold. */
export interface Axis {
  x(wall: number): number;
  folds: { from: number; to: number }[];
}

export function axis(bars: Bar[][], from: number, now: number, width: number): Axis {
  const folds: Axis['folds'] = [];
  let end = from;
  const busy = now - from > FOLD ? bars.flat().sort((a, b) => a.from - b.from) : [];
  for (const bar of [...busy, ...(busy.length > 0 ? [{ from: now }] : [])] as Bar[]) {
    if (bar.from - end > FOLD) folds.push({ from: end, to: Math.min(bar.from, now) });
    end = Math.max(end, bar.to ?? now);
  }
  const folded = folds.reduce((sum, it) => sum + it.to - it.from, 0);
  if (folded >= now - from) folds.length = 0;
  const scale = (width - folds.length * CREASE) / (now - from - (folds.length && folded));
  const x = (wall: number) => {
    let at = (wall - from) * scale;
    for (const it of folds) {
      const inside = Math.min(Math.max(wall - it.from, 0), it.to - it.from);
      at += (inside / (it.to - it.from)) * CREASE - inside * scale;
    }
    return at;
  };
  return { x, folds };
}

/** Where a bar stands in a window, or nothing if it is outside. One that goes on grows to now. */
export function placed(bar: Bar, from: number, now: number, x: Axis['x']): { x: number; width: number } | null {
  const end = Math.min(bar.to ?? now, now);
  const start = Math.max(bar.from, from);
  if (end <= from || start >= now || end < start) return null;
  return { x: x(start), width: Math.max(1.5, x(end) - x(start) - 1) };
}

const STEPS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 3_600, 7_200, 14_400].map((it) => it * 1_000);

/** The moments that are written over a window: round ones, and none upon another. */
export function ticks(from: number, now: number, x: Axis['x'], apart = 44): { x: number; text: string }[] {
  const step = STEPS.find((it) => it >= (now - from) / 7) ?? 14_400_000;
  const made = [{ x: x(now), text: 'now' }];
  for (let back = step; back <= now - from; back += step) {
    const at = x(now - back);
    if ((made[made.length - 1]?.x ?? 0) - at >= apart) made.push({ x: at, text: `-${age(back)}` });
  }
  return made;
}

export function Legend({ of = LEGEND }: { of?: At[] }) {
  return (
    <ul class="legend" aria-label="Legend">
      {of.map((at) => (
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
      <select value={get('window')} onChange={(it) => set('window', it.currentTarget.value, true)}>
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

/** The lanes of all, or of one agent. */
export function Lanes({ size, only }: { size: 'few' | 'some' | 'many'; only?: string }) {
  useTopics('lanes', size === 'many' ? 'shares' : 'bars');
  const known = topic('lanes').known.value;
  const lanes = topic('lanes')
    .all<Lane>()
    .filter((it) => !only || it.agent === only);
  const table = get('as') === 'table';
  const title = `${lanes.length} ${lanes.length === 1 ? 'lane' : 'lanes'}`;
  const aside = (
    <>
      {size !== 'many' && <Window />}
      <button type="button" class="plain" aria-pressed={table} onClick={() => set('as', table ? null : 'table', true)}>
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

/** How much of a text fits, at about this many pixels a letter. */
function fitted(text: string, width: number): string {
  const room = Math.floor(width / 6.4);
  return text.length > room ? `${text.slice(0, Math.max(0, room - 1))}…` : text;
}

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
  const all = sorted.map((lane) => bars.one<Bars>(`bars/${lane.agent}`)?.bars ?? []);
  const now = moment();
  const shown = windowFor(all, now, get('window'));
  const from = now - shown.ms;
  const step = tall ? 30 : 17;
  // Thin rows say beside the name why somebody waits; thick ones say it in the bar.
  const label = !tall && width.value > 700 ? 260 : 132;
  const inner = Math.max(100, width.value - label);
  const height = 20 + step * sorted.length;
  const { x, folds } = axis(all, from, now, inner);
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
        {!shown.widened && (
          <text class="ticks" y={11}>
            {shown.text}
          </text>
        )}
        {ticks(from, now, x).map((it) => (
          <g key={it.text}>
            <line class="tick" x1={label + it.x} x2={label + it.x} y1={16} y2={height} />
            <text class="ticks" x={label + it.x} y={11} text-anchor={it.text === 'now' ? 'end' : it.x < 20 ? 'start' : 'middle'}>
              {it.text}
            </text>
          </g>
        ))}
        {folds.map((it) => (
          <g key={it.from}>
            <rect class="fold" x={label + x(it.from)} width={CREASE} y={16} height={height} />
            <text class="ticks" x={label + x(it.from) + CREASE / 2} y={height - 4} text-anchor="middle">
              ⋯
            </text>
            <title>{`${age(it.to - it.from)} in which nobody did anything, from ${clockTime(it.from, false)}`}</title>
          </g>
        ))}
        {sorted.map((lane, row) => (
          <Row key={lane.agent} lane={lane} bars={all[row] ?? []} y={18 + row * step} thick={step - (tall ? 5 : 4)} from={from} now={now} x={x} label={label} />
        ))}
        <line class="now" x1={label + inner - 0.5} x2={label + inner - 0.5} y1={14} y2={height} />
      </svg>
    </div>
  );
}

function Row(props: { lane: Lane; bars: Bar[]; y: number; thick: number; from: number; now: number; x: Axis['x']; label: number }) {
  const { lane, bars, y, thick, from, now, x, label } = props;
  const tall = thick > 20;
  const name = named(lane.agent, 17);
  const why = label > 200 && lane.at !== 'working' && lane.text ? fitted(` · ${plain(lane.text, 80)}`, label - 24 - name.length * 6) : '';
  return (
    <g>
      <text class="bar" x={0} y={y + thick / 2 + 4} onClick={() => go(`/agents/${lane.agent}`)}>
        <tspan class={`ink-${lane.at}`}>{STATES[lane.at].glyph}</tspan> {name}
        <tspan class="ink-dim">{why}</tspan>
        <title>{`${lane.agent}: ${STATES[lane.at].word} ${plain(lane.text, 200)}`}</title>
      </text>
      {bars.map((bar) => {
        const at = placed(bar, from, now, x);
        if (!at) return null;
        const word = [bar.task, bar.at === 'working' ? '' : plain(bar.text ?? '', 80)].filter(Boolean).join(' · ');
        return (
          <g key={`${bar.from}${bar.at}`} class="bar" onClick={() => bar.task && go(`/t/${bar.task}`)}>
            <rect class={`at-${bar.at}`} x={label + at.x} y={y} width={at.width} height={thick} rx={2.5} />
            {tall && at.width > 26 && (
              <text class={`in-${bar.at}`} x={label + at.x + 6} y={y + thick / 2 + 4}>
                {fitted(word, at.width - 6)}
              </text>
            )}
            <title>{`${bar.task ?? ''} ${STATES[bar.at].word}, ${age((bar.to ?? now) - bar.from)} from ${clockTime(bar.from)}. ${plain(bar.text ?? '', 200)}`}</title>
          </g>
        );
      })}
    </g>
  );
}
