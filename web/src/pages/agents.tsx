import { plain, usd } from '../format';
import { topic } from '../live/client';
import { byUrgency } from '../plots/lanes';
import { get, set } from '../route';
import { Age, Do, Empty, Glyph, Panel, TaskLink, useTopics } from '../ui';
import { type Lane, type Runner, STATES } from '../views';

function Gauge({ percent }: { percent: number }) {
  const advice = percent >= 80 ? 'nearly full: it sums itself up soon' : percent >= 60 ? 'filling up' : '';
  return (
    <span class={`gauge ${percent >= 80 ? 'bad' : percent >= 60 ? 'late' : ''}`} title={`context ${percent} % ${advice}`}>
      <meter min={0} max={100} value={percent} aria-label={`context ${percent} %`} /> {percent} %
    </span>
  );
}

function Line({ it }: { it: Lane }) {
  const differs = it.running !== '' && it.wanted !== '' && it.running !== it.wanted;
  return (
    <tr data-row tabIndex={0}>
      <td>
        <a href={`/agents/${it.agent}`}>{it.agent}</a>
      </td>
      <td>
        {it.provider} {plain(it.wanted, 60)}
      </td>
      <td class={differs ? 'bad' : ''}>
        {plain(it.running, 60)} {differs && <b>(!)</b>}
      </td>
      <td class="right">
        {it.capacity.current}/{it.capacity.max}
      </td>
      <td>
        <Glyph at={it.at} /> {STATES[it.at].word} {it.task && <TaskLink id={it.task} />}
      </td>
      <td class="dim">{plain(it.text, 120)}</td>
      <td>{it.context !== undefined && <Gauge percent={it.context} />}</td>
      <td class="right">{it.micro_usd === undefined ? '' : usd(it.micro_usd)}</td>
      <td class="right">
        <Age since={it.since_wall} />
      </td>
      <td>
        <span class="row">
          {it.actions.map((action) => (
            <Do key={action.label} action={action} />
          ))}
        </span>
      </td>
    </tr>
  );
}

export function Agents({ only }: { only?: string }) {
  useTopics('lanes', 'runners');
  const words = get('q').toLowerCase();
  const lanes = topic('lanes')
    .all<Lane>()
    .filter((it) => (only ? it.agent === only : `${it.agent} ${it.provider} ${it.at} ${it.task}`.toLowerCase().includes(words)))
    .sort(byUrgency);
  const runners = topic('runners').all<Runner>();
  return (
    <>
      <Panel
        title={only ? `Agent ${only}` : `${lanes.length} agent${lanes.length === 1 ? '' : 's'}`}
        aside={
          <span class="filters">
            {!only && <input id="filter" type="search" aria-label="Filter" placeholder="filter  /" value={get('q')} onInput={(it) => set('q', it.currentTarget.value)} />}
            <code class="aside">regatta agent list</code>
          </span>
        }
      >
        {lanes.length === 0 ? (
          <Empty known={topic('lanes').known.value}>{words || only ? 'No agent matches.' : 'No agent is registered yet: regatta agent add'}</Empty>
        ) : (
          <div class="scroll">
            <table class="list">
              <thead>
                <tr>
                  <th>Name</th>
                  <th>Wanted</th>
                  <th>Running</th>
                  <th class="right">Slots</th>
                  <th>State</th>
                  <th>Doing</th>
                  <th>Context</th>
                  <th class="right">Today</th>
                  <th class="right">For</th>
                  <th>Do</th>
                </tr>
              </thead>
              <tbody>
                {lanes.slice(0, 300).map((it) => (
                  <Line key={it.agent} it={it} />
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Panel>
      {!only && (
        <Panel title="Runners" aside={<code class="aside">regatta runner list</code>}>
          {runners.length === 0 ? (
            <Empty known={topic('runners').known.value}>No other machine has joined: all work runs here.</Empty>
          ) : (
            <table class="list">
              <thead>
                <tr>
                  <th>Name</th>
                  <th>State</th>
                  <th>Labels</th>
                  <th class="right">Running</th>
                  <th>Version</th>
                  <th class="right">Seen</th>
                </tr>
              </thead>
              <tbody>
                {runners.map((it) => (
                  <tr key={it.name} data-row tabIndex={0}>
                    <td>{it.name}</td>
                    <td>{it.state}</td>
                    <td>{it.labels.map((one) => plain(one, 40)).join(' ')}</td>
                    <td class="right">
                      {it.running}/{it.max_tasks}
                    </td>
                    <td>{plain(it.version, 40)}</td>
                    <td class="right">
                      <Age since={it.seen_wall} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
        </Panel>
      )}
    </>
  );
}
