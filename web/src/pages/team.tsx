// All teams: the members as specified, as resolved and as they run now.

import { plain } from '../format';
import { topic } from '../live/client';
import { MEMBER_ACTIVITIES, MEMBER_STATES } from '../states';
import { ActionButton, Age, Empty, Mark, Panel, Table, TaskLink, useTopics } from '../ui';
import type { MemberIdentity, TeamLaunch, TeamPage } from '../api';

function identityText(identity: Partial<MemberIdentity> | undefined): string {
  return [identity?.provider, identity?.backend, identity?.model, identity?.effort].filter(Boolean).join(' ');
}

/** Returns whether a member got something else than was specified. Fields without a specified value are ignored. */
export function differs(wanted: Partial<MemberIdentity> | undefined, actual: Partial<MemberIdentity> | undefined): boolean {
  return (['provider', 'backend', 'model', 'effort'] as const).some((field) => wanted?.[field] && actual?.[field] && wanted[field] !== actual[field]);
}

function Members({ team }: { team: TeamPage }) {
  const wanted = [team.desired.lead, ...team.desired.members];
  return (
    <Table heads={['Member', 'Wanted', 'Lane', 'Resolved', 'Live', 'Details', 'Actions']}>
      {team.summary.members.map((line) => {
        const spec = wanted.find((candidate) => candidate.name === line.name);
        const entry = team.resolved?.members.find((candidate) => candidate.name === line.name);
        const live = team.live.find((candidate) => candidate.name === line.name);
        const actual = identityText(entry?.got);
        const isDifferent = differs(entry?.asked, entry?.got);
        const activity = live && MEMBER_ACTIVITIES[live.live];
        const actions = team.each.find((entry) => entry[0] === line.name)?.[1] ?? [];
        return (
          <tr key={line.name} data-row tabIndex={0}>
            <td>
              <a href={`/agents/${team.desired.name}/${line.name}`}>{line.name}</a> {line.lead && <span class="dim">lead</span>}
            </td>
            <td>{plain(identityText(spec) || line.provider, 80)}</td>
            <td>{entry?.lane?.id ?? line.lane ?? ''}</td>
            <td>
              {entry && <Mark at={MEMBER_STATES[entry.state].at} word={line.word} />} <span class={isDifferent ? 'bad' : ''}>{plain(actual, 80)}</span> {isDifferent && <b class="bad">! differs from wanted</b>}
            </td>
            <td>
              {activity && <Mark at={activity.at} word={activity.word} />} {live?.tasks?.map((id) => <TaskLink key={id} id={id} />)}
            </td>
            <td class="dim">
              {line.said === line.word ? '' : plain(line.said, 160)} {entry?.notes?.map((note) => plain(note, 160)).join(' · ')}
            </td>
            <td>
              <span class="row">
                {actions.map((action) => (
                  <ActionButton key={action.label} action={action} />
                ))}
              </span>
            </td>
          </tr>
        );
      })}
    </Table>
  );
}

function Lanes({ launch }: { launch: TeamLaunch }) {
  return (
    <ul class="spans">
      {launch.lanes.map((lane) => (
        <li key={lane.id}>
          <b>{plain(lane.id, 80)}</b> {lane.kind}, {plain(lane.owner, 60)}: {lane.members.join(', ')}
        </li>
      ))}
    </ul>
  );
}

export function Team() {
  useTopics('teams');
  const teams = topic('teams').all();
  if (teams.length === 0) {
    return (
      <Panel title="Teams">
        <Empty known={topic('teams').known.value}>No teams yet. Create one with regatta team create.</Empty>
      </Panel>
    );
  }
  return (
    <>
      {teams.map((team) => (
        <Panel
          key={team.desired.name}
          title={`Team ${team.desired.name}`}
          aside={
            <span class="aside row">
              {plain(team.summary.said, 200)}{' '}
              {team.actions.map((action) => (
                <ActionButton key={action.label} action={action} />
              ))}{' '}
              <code>regatta team show {team.desired.name}</code>
            </span>
          }
        >
          {team.summary.degraded && <p class="error">{plain(team.summary.degraded, 300)}</p>}
          <Members team={team} />
          {team.resolved && (
            <>
              <h3>Lanes of {team.resolved.id}</h3>
              <Lanes launch={team.resolved} />
            </>
          )}
          {team.history && team.history.length > 0 && (
            <>
              <h3>Earlier launches</h3>
              <ul class="spans">
                {team.history.map((launch) => (
                  <li key={launch.id}>
                    <b>{launch.id}</b> started <Age since={launch.begun_wall} /> ago:{' '}
                    {launch.members.map((member) => (
                      <span key={member.name}>
                        {member.name} <Mark {...MEMBER_STATES[member.state]} />{' '}
                      </span>
                    ))}
                  </li>
                ))}
              </ul>
            </>
          )}
        </Panel>
      ))}
    </>
  );
}
