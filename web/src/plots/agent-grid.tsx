// A large fleet: one cell for each agent, and the share of each state by provider; and any fleet as a table.

import { Component } from 'preact';
import { age, plain } from '../format';
import { topic } from '../live/client';
import { go } from '../route';
import { Age, Glyph, Mark, Table, TaskLink, clock } from '../ui';
import { type At, type Lane, STATES, type Shares } from '../views';
import { LEGEND, byUrgency } from './lanes';

export function AsTable({ lanes }: { lanes: Lane[] }) {
  return (
    <Table heads={['Agent', 'State', 'Task', 'Doing', 'For']}>
      {[...lanes].sort(byUrgency).map((it) => (
        <tr key={it.agent} data-row tabIndex={0}>
          <td>
            <a href={`/agents/${it.agent}`}>{it.agent}</a>
          </td>
          <td>
            <Mark at={it.at} />
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

export function Many({ lanes }: { lanes: Lane[] }) {
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
