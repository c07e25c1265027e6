// A large fleet: one cell per agent, and the states per provider over the last hour. Also the table of any fleet.

import { Component } from 'preact';
import { plain } from '../format';
import { topic } from '../live/client';
import { navigate } from '../route';
import { Age, Glyph, Mark, Table, TaskLink, clock } from '../ui';
import type { AgentLaneView, DisplayState, StateSharesView } from '../api';
import { BUSY_AGENT_STATES, STATES } from '../states';
import { LEGEND, byUrgency } from './lanes';
import { exactDuration } from './time-axis';

export function AgentTable({ lanes }: { lanes: AgentLaneView[] }) {
  return (
    <Table heads={['Agent', 'State', 'Task', 'Activity', 'For']}>
      {[...lanes].sort(byUrgency).map((lane) => (
        <tr key={lane.agent} data-row tabIndex={0}>
          <td>
            <a href={`/agents/${lane.agent}`}>{lane.agent}</a>
          </td>
          <td>
            <Mark at={lane.at} />
          </td>
          <td>{lane.task && <TaskLink id={lane.task} />}</td>
          <td>{plain(lane.text, 120)}</td>
          <td>
            <Age since={lane.since_wall} />
          </td>
        </tr>
      ))}
    </Table>
  );
}

/** An empty fleet: what an agent is, and the commands that add one. */
export function NoAgents() {
  const steps: [string, string][] = [
    ['regatta provider', 'finds the agent programs on this machine'],
    ['regatta agent add claude-1 --preset claude', 'adds one of them as an agent'],
    ['regatta demo --serve', 'shows a fleet at work, without any program or key'],
  ];
  return (
    <div class="no-agents">
      <p>
        <b>No agents yet, so no task can start.</b> An agent is a coding program that works under a name.
      </p>
      <ul class="spans">
        {steps.map(([line, effect]) => (
          <li key={line}>
            <code>{line}</code> <span class="dim">{effect}</span>
          </li>
        ))}
      </ul>
      <p class="empty">
        <a href="/setup">Setup</a> lists the programs that Regatta knows.
      </p>
    </div>
  );
}

/** The cell of one agent. Entities are replaced, never mutated, so a cell renders again only if its entity is another
 * object. Rendered nodes are not cached, because a reused node keeps every tree it was part of in memory. */
class Cell extends Component<{ lane: AgentLaneView }> {
  shouldComponentUpdate(next: { lane: AgentLaneView }) {
    return next.lane !== this.props.lane;
  }

  render({ lane }: { lane: AgentLaneView }) {
    return (
      <i class={`cell at-${lane.at}`} title={`${lane.agent}: ${STATES[lane.at].word} ${lane.task ?? ''} ${plain(lane.text, 100)}`} onClick={() => lane.task && navigate(`/t/${lane.task}`)}>
        {STATES[lane.at].glyph}
      </i>
    );
  }
}

export function AgentGrid({ lanes }: { lanes: AgentLaneView[] }) {
  const sorted = [...lanes].sort(byUrgency);
  const counts = LEGEND.map((at) => [at, lanes.filter((lane) => lane.at === at).length] as const).filter((entry) => entry[1] > 0);
  const urgent = sorted.filter((lane) => lane.at === 'failed' || lane.at === 'needs').slice(0, 12);
  const shares = topic('shares').all();
  const slots = minutesFor(shares, clock.value);
  return (
    <>
      <p class="counts">{counts.map(([at, count]) => `${count} ${STATES[at].word}`).join(' · ')}</p>
      <div class="cells" role="img" aria-label={`One cell for each agent, most urgent first: ${counts.map(([at, count]) => `${count} ${STATES[at].word}`).join(', ')}`}>
        {sorted.map((lane) => (
          <Cell key={lane.agent} lane={lane} />
        ))}
      </div>
      {urgent.length > 0 && (
        <ul class="urgent">
          {urgent.map((lane) => (
            <li key={lane.agent}>
              <Glyph at={lane.at} /> {lane.agent} {lane.task && <TaskLink id={lane.task} />} {plain(lane.text, 100)}
            </li>
          ))}
        </ul>
      )}
      {shares.length > 0 && (
        <p class="axis minutes" aria-hidden="true">
          {minuteTicks(slots).map((minutes) => (
            <span key={minutes} style={{ right: `${(100 * minutes) / slots}%` }}>
              {minutes === 0 ? 'now' : `-${exactDuration(minutes * 60_000)}`}
            </span>
          ))}
        </p>
      )}
      {shares.map((shares) => (
        <ProviderShare key={shares.provider} shares={shares} slots={slots} />
      ))}
    </>
  );
}

const STATE_ORDER = Object.keys(STATES) as DisplayState[];

/** Returns one SVG path per state, so that an hour of a fleet needs only a few elements. */
export function stackedPaths(minutes: [number, number[]][], lanes: number, now: number, width: number, height: number, slots = 60): Map<DisplayState, string> {
  const paths = new Map<DisplayState, string>();
  const slot = width / slots;
  const first = Math.floor(now / 60_000) - slots + 1;
  // A minute in which no state changed has no entry, so the minute before it continues.
  let next = 0;
  let counts: number[] = [];
  for (let index = 0; index < slots; index += 1) {
    for (let entry = minutes[next]; entry && Math.floor(entry[0] / 60_000) - first <= index; entry = minutes[next]) {
      counts = entry[1];
      next += 1;
    }
    let y = height;
    for (const at of BUSY_AGENT_STATES) {
      const tall = ((counts[STATE_ORDER.indexOf(at)] ?? 0) / Math.max(1, lanes)) * height;
      if (tall <= 0) continue;
      y -= tall;
      paths.set(at, `${paths.get(at) ?? ''}M${(index * slot).toFixed(1)} ${y.toFixed(1)}h${(slot - 0.6).toFixed(1)}v${tall.toFixed(1)}h-${(slot - 0.6).toFixed(1)}z`);
    }
  }
  return paths;
}

/** Returns how many minutes to show, so that the data fills most of them. */
export function minutesFor(shares: StateSharesView[], now: number): number {
  const first = Math.min(now, ...shares.flatMap((shares) => shares.minutes[0]?.[0] ?? []));
  const past = Math.floor(now / 60_000) - Math.floor(first / 60_000) + 1;
  return Math.min(60, Math.max(5, past));
}

/** Returns the whole minutes before now that the axis names: at most seven, in even steps. */
function minuteTicks(slots: number): number[] {
  const step = [1, 2, 5, 10].find((minutes) => slots / minutes <= 6) ?? 10;
  return Array.from({ length: Math.floor(slots / step) + 1 }, (_, index) => index * step);
}

function ProviderShare({ shares, slots }: { shares: StateSharesView; slots: number }) {
  const height = 44;
  const width = 800;
  const last = shares.minutes[shares.minutes.length - 1]?.[1] ?? [];
  const counts = BUSY_AGENT_STATES.map((at) => [at, last[STATE_ORDER.indexOf(at)] ?? 0] as const).filter((entry) => entry[1] > 0);
  return (
    <div class="share">
      <div>
        {shares.provider}
        <small>
          {shares.lanes} {shares.lanes === 1 ? 'agent' : 'agents'}
        </small>
      </div>
      <svg viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" height={height} role="img" aria-label={`${shares.provider}, last ${slots} minutes; now ${counts.map(([at, count]) => `${count} ${STATES[at].word}`).join(', ')}`}>
        {[...stackedPaths(shares.minutes, shares.lanes, clock.value, width, height, slots)].map(([at, d]) => (
          <path key={at} class={`at-${at}`} d={d} />
        ))}
      </svg>
    </div>
  );
}
