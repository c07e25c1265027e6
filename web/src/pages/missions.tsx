// All missions: running ones first, then ended ones with their results.

import './mission.css';
import { plain } from '../format';
import { byName, topic } from '../live/client';
import { queryParam, setQueryParam } from '../route';
import { Age, Empty, Mark, Panel, clock, useTopics } from '../ui';
import type { MissionRowView } from '../api';
import { StateBar, missionTime } from './mission';

function MissionLine({ mission }: { mission: MissionRowView }) {
  const { id } = mission;
  return (
    <tr data-row tabIndex={0}>
      <td class={`mark at-${mission.at}`}>
        <Mark at={mission.at} word={mission.word} />
      </td>
      <td class="mission-name">
        <a href={`/m/${id}`} title={plain(mission.title, 300)}>
          <b>{id}</b> <bdi>{plain(mission.title, 160)}</bdi>
        </a>
      </td>
      <td class="progress">
        <StateBar counts={mission.counts} label={id} />
        <span class="dim">{plain(mission.text, 80)}</span>
      </td>
      <td class="dim name">{mission.project}</td>
      <td class="right name">{plain(mission.spend, 60)}</td>
      <td class="right name">{missionTime(mission, clock.value)}</td>
      <td class="right name">
        <Age since={mission.ended_wall ?? mission.created_wall} /> ago
      </td>
      <td class="name links">
        <a href={`/m/${id}?tab=graph`}>graph</a> <a href={`/m/${id}?tab=replay`}>replay</a>
      </td>
    </tr>
  );
}

function Group({ title, missions }: { title: string; missions: MissionRowView[] }) {
  return (
    <tbody>
      <tr class="group">
        <th colSpan={8} scope="rowgroup">
          {title} · {missions.length}
        </th>
      </tr>
      {missions.map((mission) => (
        <MissionLine key={mission.id} mission={mission} />
      ))}
    </tbody>
  );
}

export function Missions() {
  useTopics('missions');
  const all = topic('missions').all();
  const query = queryParam('q').toLowerCase();
  const found = all.filter((mission) => `${mission.id} ${mission.title} ${mission.project} ${mission.word}`.toLowerCase().includes(query)).sort((a, b) => byName(b.id, a.id));
  const [running, ended] = [found.filter((mission) => mission.running), found.filter((mission) => !mission.running)];
  return (
    <Panel
      title={`${all.length} mission${all.length === 1 ? '' : 's'}`}
      class="missions"
      aside={
        <span class="filters">
          <input id="filter" type="search" aria-label="Filter" placeholder="filter  /" value={queryParam('q')} onInput={(event) => setQueryParam('q', event.currentTarget.value)} />
          <code class="aside">regatta mission list</code>
        </span>
      }
    >
      {found.length === 0 ? (
        <Empty known={topic('missions').known.value}>{all.length > 0 ? 'No mission matches.' : 'No mission yet. Describe a goal on Now, or start a plan with regatta run.'}</Empty>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Missions">
          <table class="list">
            <thead>
              <tr>
                <th>State</th>
                <th>Mission</th>
                <th>Progress</th>
                <th>Project</th>
                <th class="right">Spent</th>
                <th class="right">Time</th>
                <th class="right">Started or ended</th>
                <th>
                  <span class="sr">Views</span>
                </th>
              </tr>
            </thead>
            {running.length > 0 && <Group title="Running" missions={running} />}
            {ended.length > 0 && <Group title="Ended" missions={ended} />}
          </table>
        </div>
      )}
    </Panel>
  );
}
