// All teams: the members as specified, as the last launch resolved them and as they run now, by lane.

import { Callout, EmptyState, Figures, ShellLine } from '../components';
import { age, clockTime, plain } from '../format';
import { topic } from '../live/client';
import { MEMBER_ACTIVITIES, MEMBER_STATES } from '../states';
import { ActionButton, Age, Mark, Panel, Table, TaskLink, clock, useTopics } from '../ui';
import type { Lane, LaunchEntry, MemberIdentity, MemberSummary, TeamLaunch, TeamPage } from '../api';
import './team.css';

const COLUMNS = 6;
const MAX_EVIDENCE = 20;

function identityText(identity: Partial<MemberIdentity> | undefined): string {
  return [identity?.provider, identity?.backend, identity?.model, identity?.effort].filter(Boolean).join(' ');
}

/** Returns whether a member got something else than was specified. Fields without a specified value are ignored. */
export function differs(wanted: Partial<MemberIdentity> | undefined, actual: Partial<MemberIdentity> | undefined): boolean {
  return (['provider', 'backend', 'model', 'effort'] as const).some((field) => wanted?.[field] && actual?.[field] && wanted[field] !== actual[field]);
}

/** Returns the lanes with their members' lines. Members without a lane come last. */
export function membersByLane(members: MemberSummary[], lanes: Lane[]): [Lane | null, MemberSummary[]][] {
  const groups: [Lane | null, MemberSummary[]][] = lanes.map((lane) => [lane, members.filter((member) => lane.members.includes(member.name))]);
  const rest = members.filter((member) => !lanes.some((lane) => lane.members.includes(member.name)));
  return rest.length > 0 ? [...groups, [null, rest]] : groups;
}

function LaneHead({ lane }: { lane: Lane }) {
  const isPrimary = lane.kind === 'primary';
  return (
    <tr class="lane">
      <th colSpan={COLUMNS} scope="colgroup">
        Lane {plain(lane.id, 80)} <small>{isPrimary ? `the lead's lane: its members start first, all at once, with ${plain(lane.owner, 60)}` : `starts after the lead's lane, with ${plain(lane.owner, 60)}`}</small>
      </th>
    </tr>
  );
}

/** The signs by which the launch of a member was judged, such as the start of its program. */
function Evidence({ entry }: { entry: LaunchEntry | undefined }) {
  const evidence = entry?.evidence ?? [];
  if (evidence.length === 0) return null;
  return (
    <details>
      <summary>{evidence.length === 1 ? '1 step' : `${evidence.length} steps`} of the launch</summary>
      <ul class="evidence">
        {evidence.slice(-MAX_EVIDENCE).map((sign) => (
          <li key={`${sign.wall}${sign.text}`}>
            <time>{clockTime(sign.wall)}</time>
            {plain(sign.text, 200)}
          </li>
        ))}
      </ul>
    </details>
  );
}

/** Why a member does not run, and what to do. */
function Failure({ team, line, text }: { team: TeamPage; line: MemberSummary; text: string }) {
  const actions = team.each.find((entry) => entry[0] === line.name)?.[1] ?? [];
  return (
    <tr class="failure">
      <td colSpan={COLUMNS}>
        <Callout tone="problem">
          <p>
            {line.name}: {plain(text, 300)}
          </p>
          <span class="row">
            {actions.map((action) => (
              <ActionButton key={action.label} action={{ ...action, label: `${action.label} ${line.name}` }} />
            ))}
            <span class="aside">{actions.length > 0 ? 'or change' : 'Change'} its settings in team.toml, then</span>
            <ShellLine line={`regatta team edit --file team.toml && regatta team relaunch ${team.desired.name}`} />
          </span>
        </Callout>
      </td>
    </tr>
  );
}

function MemberRow({ team, line }: { team: TeamPage; line: MemberSummary }) {
  const spec = [team.desired.lead, ...team.desired.members].find((candidate) => candidate.name === line.name);
  const entry = team.resolved?.members.find((candidate) => candidate.name === line.name);
  const live = team.live.find((candidate) => candidate.name === line.name);
  const isDifferent = differs(entry?.asked, entry?.got);
  const activity = live && MEMBER_ACTIVITIES[live.live];
  const state = entry && MEMBER_STATES[entry.state];
  const hasFailed = state?.at === 'failed' || activity?.at === 'failed';
  const said = line.said === line.word ? '' : line.said;
  return (
    <>
      <tr class="top-aligned" data-row tabIndex={0}>
        <td class="name">
          <a href={`/agents/${team.desired.name}/${line.name}`}>{line.name}</a> {line.lead && <span class="dim">lead</span>}
        </td>
        <td data-label="Wanted">{plain(identityText(spec) || line.provider, 80)}</td>
        <td data-label="Resolved">
          <span class={isDifferent ? 'differs' : ''}>
            {plain(identityText(entry?.got), 80)} {isDifferent && '! differs from wanted'}
          </span>
          {entry?.notes?.map((note) => (
            <div key={note} class="aside">
              {plain(note, 160)}
            </div>
          ))}
        </td>
        <td>
          {state && <Mark at={state.at} word={line.word} />}
          {!hasFailed && said && <div class="aside">{plain(said, 160)}</div>}
          <Evidence entry={entry} />
        </td>
        <td data-label="Live">{activity && <Mark at={activity.at} word={activity.word} />}</td>
        <td>{live?.tasks?.map((id) => <TaskLink key={id} id={id} />)}</td>
      </tr>
      {hasFailed && <Failure team={team} line={line} text={said || entry?.cause?.text || activity?.word || line.word} />}
    </>
  );
}

function Members({ team }: { team: TeamPage }) {
  const groups = membersByLane(team.summary.members, team.resolved?.lanes ?? []);
  return (
    <div class="scroll">
      <table class="list members stack">
        <thead>
          <tr>
            <th>Member</th>
            <th>Wanted</th>
            <th>Resolved</th>
            <th>Launch</th>
            <th>Live</th>
            <th>Tasks</th>
          </tr>
        </thead>
        {groups.map(([lane, members]) => (
          <tbody key={lane?.id ?? ''}>
            {lane && <LaneHead lane={lane} />}
            {members.map((line) => (
              <MemberRow key={line.name} team={team} line={line} />
            ))}
          </tbody>
        ))}
      </table>
    </div>
  );
}

function Launches({ launches }: { launches: TeamLaunch[] }) {
  return (
    <section class="launches">
      <h3>Earlier launches</h3>
      <Table class="stack" heads={['Launch', 'Started', '>Lasted', 'Result', 'Members']}>
        {launches.map((launch) => (
          <tr key={launch.id} data-row tabIndex={0}>
            <td>{launch.id}</td>
            <td>
              <Age since={launch.begun_wall} /> ago
            </td>
            <td class="right" data-label="Lasted">{age(launch.updated_wall - launch.begun_wall)}</td>
            <td>{plain(launch.told ?? '', 120) || 'no result was recorded'}</td>
            <td>
              {launch.members.map((member) => (
                <span key={member.name} class="task-tag">
                  {member.name} <Mark {...MEMBER_STATES[member.state]} />{' '}
                </span>
              ))}
            </td>
          </tr>
        ))}
      </Table>
    </section>
  );
}

function OneTeam({ team }: { team: TeamPage }) {
  const { summary, desired, resolved } = team;
  const figures = [
    { name: 'Alive', value: `${summary.alive} of ${summary.expected}`, more: plain(summary.said, 160), isBad: team.up && summary.alive < summary.expected },
    { name: 'Lead', value: desired.lead.name, more: plain(identityText(desired.lead), 80) },
    { name: 'Providers', value: summary.mixed ? 'mixed' : 'one', more: [...new Set(summary.members.map((member) => member.provider))].join(', ') },
    { name: 'Launch', value: resolved?.id ?? 'none', more: resolved ? `${age(clock.value - resolved.begun_wall)} ago, revision ${resolved.revision}` : 'not launched yet' },
  ];
  return (
    <Panel
      title={`Team ${desired.name}`}
      aside={
        <>
          {team.actions.map((action) => (
            <ActionButton key={action.label} action={action} />
          ))}
          <ShellLine line={`regatta team show ${desired.name}`} />
        </>
      }
    >
      {summary.degraded && (
        <Callout tone="problem">
          <p>✕ {plain(summary.degraded, 300)}</p>
        </Callout>
      )}
      <Figures figures={figures} />
      <p class="truth">
        <b>Wanted</b> is what team.toml asks for, <b>resolved</b> is what the last launch chose from it, <b>live</b> is what the programs do now. <code>regatta team explain {desired.name}</code> says why.
      </p>
      <Members team={team} />
      {team.history && team.history.length > 0 && <Launches launches={team.history} />}
    </Panel>
  );
}

export function Team() {
  useTopics('teams');
  const teams = topic('teams').all();
  if (teams.length > 0) {
    return (
      <>
        {teams.map((team) => (
          <OneTeam key={team.desired.name} team={team} />
        ))}
      </>
    );
  }
  return (
    <Panel title="Teams">
      {topic('teams').known.value ? (
        <EmptyState title="No teams yet" text="A team is a lead and its members, from one provider or several, that start and stop together. This page shows what was asked for, what was started and what runs.">
          <ShellLine line="regatta team create --file team.toml" />
        </EmptyState>
      ) : (
        <p class="empty">loading…</p>
      )}
    </Panel>
  );
}
