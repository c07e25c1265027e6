import { plain } from '../format';
import { topic } from '../live/client';
import { Age, Do, Empty, Panel, Table, TaskLink, useTopics } from '../ui';
import type { Identity, Launch, Team as View } from '../views';

function who(it: Identity | undefined): string {
  return [it?.provider, it?.backend, it?.model, it?.effort].filter(Boolean).join(' ');
}

/** Whether something that was asked for is not what was got. What nobody asked for may be anything. */
export function differs(asked: Identity | undefined, got: Identity | undefined): boolean {
  return (['provider', 'backend', 'model', 'effort'] as const).some((it) => asked?.[it] && got?.[it] && asked[it] !== got[it]);
}

/** How a member's start, or its life, is marked: a glyph, the word, a colour. */
const SIGNS: Record<string, [string, string]> = {
  'failed to start': ['✕', 'bad'],
  dead: ['✕', 'bad'],
  degraded: ['!', 'late'],
  hung: ['!', 'late'],
  waiting: ['!', 'late'],
  'pending permission': ['!', 'late'],
  queued: ['‖', 'dim'],
  starting: ['…', 'dim'],
  coming: ['…', 'dim'],
  ending: ['…', 'dim'],
  'pending bootstrap': ['…', 'dim'],
  alive: ['✓', 'good'],
  working: ['▶', 'accent'],
  idle: ['·', 'dim'],
  absent: ['○', 'dim'],
  skipped: ['○', 'dim'],
  stopped: ['○', 'dim'],
};

function Sign({ word }: { word: string }) {
  const [glyph, name] = SIGNS[word] ?? ['', ''];
  return word ? (
    <b class={name}>
      <span aria-hidden="true">{glyph}</span> {word}
    </b>
  ) : null;
}

function Members({ it }: { it: View }) {
  const wanted = [it.desired.lead, ...it.desired.members];
  return (
    <Table heads={['Member', 'Wanted', 'Lane', 'Resolved', 'Live', 'In words', 'Do']}>
      {it.summary.members.map((line) => {
        const wish = wanted.find((one) => one.name === line.name);
        const entry = it.resolved?.members.find((one) => one.name === line.name);
        const live = it.live.find((one) => one.name === line.name);
        const got = who(entry?.got);
        const other = differs(entry?.asked, entry?.got);
        const state = entry?.state.replace(/_/g, ' ') ?? '';
        const actions = it.each.find((one) => one[0] === line.name)?.[1] ?? [];
        return (
          <tr key={line.name} data-row tabIndex={0}>
            <td>
              <a href={`/agents/${it.desired.name}/${line.name}`}>{line.name}</a> {line.lead && <span class="dim">lead</span>}
            </td>
            <td>{plain(who(wish) || line.provider, 80)}</td>
            <td>{entry?.lane?.id ?? line.lane ?? ''}</td>
            <td>
              <Sign word={state} /> <span class={other ? 'bad' : ''}>{plain(got, 80)}</span> {other && <b class="bad">! not what was wanted</b>}
            </td>
            <td>
              <Sign word={live?.live ?? ''} /> {live?.tasks?.map((id) => <TaskLink key={id} id={id} />)}
            </td>
            <td class="dim">
              {line.said === state ? '' : plain(line.said, 160)} {entry?.notes?.map((one) => plain(one, 160)).join(' · ')}
            </td>
            <td>
              <span class="row">
                {actions.map((action) => (
                  <Do key={action.label} action={action} />
                ))}
              </span>
            </td>
          </tr>
        );
      })}
    </Table>
  );
}

function Lanes({ it }: { it: Launch }) {
  return (
    <ul class="spans">
      {it.lanes.map((lane) => (
        <li key={lane.id}>
          <b>{plain(lane.id, 80)}</b> {lane.kind}, {plain(lane.owner, 60)}: {lane.members.join(', ')}
        </li>
      ))}
    </ul>
  );
}

export function Team() {
  useTopics('teams');
  const teams = topic('teams').all<View>();
  if (teams.length === 0) {
    return (
      <Panel title="Teams">
        <Empty known={topic('teams').known.value}>There is no team yet: regatta team create</Empty>
      </Panel>
    );
  }
  return (
    <>
      {teams.map((it) => (
        <Panel
          key={it.desired.name}
          title={`Team ${it.desired.name}`}
          aside={
            <span class="aside row">
              {plain(it.summary.said, 200)}{' '}
              {it.actions.map((action) => (
                <Do key={action.label} action={action} />
              ))}{' '}
              <code>regatta team show {it.desired.name}</code>
            </span>
          }
        >
          {it.summary.degraded && <p class="error">{plain(it.summary.degraded, 300)}</p>}
          <Members it={it} />
          {it.resolved && (
            <>
              <h3>Lanes of {it.resolved.id}</h3>
              <Lanes it={it.resolved} />
            </>
          )}
          {it.history && it.history.length > 0 && (
            <>
              <h3>Launches before</h3>
              <ul class="spans">
                {it.history.map((one) => (
                  <li key={one.id}>
                    <b>{one.id}</b> began <Age since={one.begun_wall} /> ago:{' '}
                    {one.members.map((member) => (
                      <span key={member.name}>
                        {member.name} <Sign word={member.state.replace(/_/g, ' ')} />{' '}
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
