// All agents and runners, or one agent in detail.

import { effect, useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { plain, shortName, usd } from '../format';
import { Card, groupItems } from '../inbox';
import { byName, connection, topic } from '../live/client';
import { Lanes, byUrgency } from '../plots/lanes';
import { queryParam, setQueryParam } from '../route';
import { call } from '../session';
import { type Column, Heads, sortRows } from '../table';
import { ActionButton, Age, Empty, Mark, Panel, Table, TaskLink, useTopics } from '../ui';
import type { AgentLaneView } from '../api';
import { STATES } from '../states';

/** Returns what to do about a context that is nearly full. */
function contextAdvice(percent: number): string {
  if (percent >= 80) return '! nearly full: the program will soon compact its context and lose details; prefer a new task';
  if (percent >= 60) return '! filling up: keep the next instructions short';
  return '';
}

function Gauge({ percent, showAdvice }: { percent: number; showAdvice?: boolean }) {
  const advice = contextAdvice(percent);
  return (
    <span class={`gauge ${percent >= 80 ? 'bad' : percent >= 60 ? 'late' : ''}`} title={`context ${percent} % ${advice}`}>
      <meter min={0} max={100} value={percent} aria-label={`context ${percent} %`} /> {percent} % {showAdvice ? advice : advice && '!'}
    </span>
  );
}

const HEADS: Column<AgentLaneView>[] = [
  { name: 'name', head: 'Name', sortKey: (lane) => lane.agent },
  { name: 'at', head: 'State', sortKey: (lane) => STATES[lane.at].rank },
  { name: 'doing', head: 'Activity' },
  { name: 'since', head: 'For', sortKey: (lane) => -lane.since_wall, right: true },
  { name: 'wanted', head: 'Wanted', sortKey: (lane) => `${lane.provider} ${lane.wanted}` },
  { name: 'running', head: 'Running', sortKey: (lane) => lane.running },
  { name: 'slots', head: 'Slots', sortKey: (lane) => lane.capacity.current, right: true },
  { name: 'said', head: 'Last output', right: true },
  { name: 'context', head: 'Context', sortKey: (lane) => lane.context },
  { name: 'today', head: 'Today', sortKey: (lane) => lane.micro_usd, right: true },
  { name: 'do', head: 'Actions' },
];

function LaneRow({ lane, lastOutput }: { lane: AgentLaneView; lastOutput?: number }) {
  const differs = lane.running !== '' && lane.wanted !== '' && lane.running !== lane.wanted;
  return (
    <tr data-row tabIndex={0}>
      <td class="name">
        <a href={`/agents/${lane.agent}`} title={lane.agent}>
          {shortName(lane.agent)}
        </a>
      </td>
      <td class={`mark at-${lane.at}`}>
        <i aria-hidden="true">{STATES[lane.at].glyph}</i> {plain(lane.word || STATES[lane.at].word, 40)}
      </td>
      <td class="dim" title={plain(lane.text || lane.subject, 400)}>
        {lane.task && <TaskLink id={lane.task} />} {plain(lane.text || lane.subject, 120)}
      </td>
      <td class="right">
        <Age since={lane.since_wall} />
      </td>
      <td>
        <span class="name">{lane.provider}</span> <span class="name">{plain(lane.wanted, 60)}</span>
      </td>
      <td class={differs ? 'bad' : ''}>
        <span class="name">{plain(lane.running, 60)}</span> {differs && <b>! differs from wanted</b>}
      </td>
      <td class="right">
        {lane.capacity.current}/{lane.capacity.max}
      </td>
      <td class="right">{lastOutput === undefined ? '' : <Age since={lastOutput} />}</td>
      <td>{lane.context !== undefined && <Gauge percent={lane.context} />}</td>
      <td class="right">{lane.micro_usd === undefined ? '' : usd(lane.micro_usd)}</td>
      <td>
        <span class="row">
          {lane.actions.map((action) => (
            <ActionButton key={action.label} action={action} />
          ))}
        </span>
      </td>
    </tr>
  );
}

/** Returns when each agent's program last sent output. Output does not change the board, so the live stream does not
 * contain it, and this hook polls for it. */
function useLastOutput(): Map<string, number> {
  const lastOutput = useSignal<Map<string, number>>(new Map());
  useEffect(() => {
    const refresh = () => {
      if (document.hidden || connection.peek().state !== 'live') return;
      call('agent.list', {}).then(
        (all) => (lastOutput.value = new Map(all.flatMap((agent) => (agent.heard_wall === undefined ? [] : [[agent.name, agent.heard_wall]])))),
        () => {}, // the connection status already shows that the daemon is gone
      );
    };
    const timer = setInterval(refresh, 5_000);
    const stop = effect(() => {
      if (connection.value.state === 'live') refresh();
    });
    return () => {
      clearInterval(timer);
      stop();
    };
  }, []);
  return lastOutput.value;
}

/** One agent: its state, its open requests, its lane and its tasks. */
function AgentDetail({ lane, lastOutput }: { lane: AgentLaneView; lastOutput?: number }) {
  useTopics('tasks', 'inbox', 'head');
  void topic('head').changed.value;
  const size = topic('head').get('head')?.size;
  const differs = lane.running !== '' && lane.wanted !== '' && lane.running !== lane.wanted;
  const requests = groupItems(
    topic('inbox')
      .all()
      .filter((item) => item.agent === lane.agent),
  );
  const rows = topic('tasks')
    .all()
    .filter((row) => row.agent === lane.agent)
    .sort((a, b) => a.rank - b.rank || byName(b.id, a.id));
  const facts: [string, ComponentChildren][] = [
    ['State', <Mark at={lane.at} word={lane.word} />],
    ['For', <Age since={lane.since_wall} />],
    [
      'Activity',
      <>
        {lane.task && <TaskLink id={lane.task} />} {plain(lane.text || lane.subject || 'nothing', 300)}
      </>,
    ],
    ['Wanted', `${lane.provider} ${plain(lane.wanted, 80)}`],
    ['Running', lane.running ? <span class={differs ? 'bad' : ''}>{plain(lane.running, 80)}{differs && ' ! differs from wanted'}</span> : 'no program is running'],
    ['Slots', `${lane.capacity.current} of ${lane.capacity.max}`],
    ['Last output', lastOutput === undefined ? 'nothing yet' : <Age since={lastOutput} />],
    ['Context', lane.context === undefined ? 'not reported' : <Gauge percent={lane.context} showAdvice />],
    ['Today', lane.micro_usd === undefined ? 'no price reported' : usd(lane.micro_usd)],
  ];
  return (
    <>
      <Panel
        title={`Agent ${lane.agent}`}
        aside={
          <span class="aside row">
            {lane.actions.map((action) => (
              <ActionButton key={action.label} action={action} />
            ))}
            <code>regatta why {lane.agent}</code>
          </span>
        }
      >
        <dl class="facts">
          {facts.map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
        </dl>
      </Panel>
      {requests.map((group, index) => (
        <Card key={group.key} group={group} index={index} isOpen />
      ))}
      {size !== 'many' && <Lanes size="few" onlyAgent={lane.agent} />}
      <Panel title={`${rows.length} task${rows.length === 1 ? '' : 's'}`} aside={<a class="aside" href={`/tasks?q=${encodeURIComponent(lane.agent)}`}>all tasks that mention it</a>}>
        {rows.length === 0 ? (
          <Empty known={topic('tasks').known.value}>This agent has no listed tasks.</Empty>
        ) : (
          <Table heads={['State', 'Task', 'Subject', 'Why', '>Cost', '>For']} class="tasks">
            {rows.slice(0, 50).map((row) => (
              <tr key={row.id} data-row tabIndex={0}>
                <td class={`mark at-${row.at}`}>
                  <i aria-hidden="true">{STATES[row.at].glyph}</i> {row.word}
                </td>
                <td>
                  <TaskLink id={row.id} />
                </td>
                <td class="subject">{plain(row.subject, 200)}</td>
                <td class="dim">{plain(row.text, 140)}</td>
                <td class="right">{row.micro_usd === undefined ? '' : usd(row.micro_usd)}</td>
                <td class="right">
                  <Age since={row.since_wall} />
                </td>
              </tr>
            ))}
          </Table>
        )}
      </Panel>
    </>
  );
}

export function Agents({ onlyAgent }: { onlyAgent?: string }) {
  useTopics('lanes', 'runners');
  const lastOutput = useLastOutput();
  const selected = onlyAgent ? topic('lanes').all().find((lane) => lane.agent === onlyAgent) : undefined;
  if (selected) return <AgentDetail lane={selected} lastOutput={lastOutput.get(selected.agent)} />;
  const query = queryParam('q').toLowerCase();
  const lanes = topic('lanes')
    .all()
    .filter((lane) => (onlyAgent ? lane.agent === onlyAgent : `${lane.agent} ${lane.provider} ${lane.at} ${lane.task}`.toLowerCase().includes(query)))
    .sort(byUrgency);
  const runners = topic('runners').all();
  let emptyText = 'No agents yet. Add one with regatta agent add.';
  if (onlyAgent) emptyText = `Agent ${onlyAgent} does not exist. To list all agents, run: regatta agent list`;
  else if (query) emptyText = 'No agent matches.';
  return (
    <>
      <Panel
        title={onlyAgent ? `Agent ${onlyAgent}` : `${lanes.length} agent${lanes.length === 1 ? '' : 's'}`}
        aside={
          <span class="filters">
            {!onlyAgent && <input id="filter" type="search" aria-label="Filter" placeholder="filter  /" value={queryParam('q')} onInput={(event) => setQueryParam('q', event.currentTarget.value)} />}
            <code class="aside">regatta agent list</code>
          </span>
        }
      >
        {lanes.length === 0 ? (
          <Empty known={topic('lanes').known.value}>{emptyText}</Empty>
        ) : (
          <div class="scroll">
            <table class="list tasks">
              <Heads columns={HEADS} />
              <tbody>
                {sortRows(lanes, HEADS, queryParam('sort')).map((lane) => (
                  <LaneRow key={lane.agent} lane={lane} lastOutput={lastOutput.get(lane.agent)} />
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Panel>
      {!onlyAgent && (
        <Panel title="Runners" aside={<code class="aside">regatta runner list</code>}>
          {runners.length === 0 ? (
            <Empty known={topic('runners').known.value}>No other machine has joined, so all work runs on this one.</Empty>
          ) : (
            <Table heads={['Name', 'State', 'Labels', '>Running', 'Version', '>Last seen']}>
              {runners.map((runner) => (
                <tr key={runner.name} data-row tabIndex={0}>
                  <td>{runner.name}</td>
                  <td>
                    <Mark at={runner.at} word={runner.word} />
                  </td>
                  <td>{runner.labels.map((label) => plain(label, 40)).join(' ')}</td>
                  <td class="right">
                    {runner.running}/{runner.max_tasks}
                  </td>
                  <td>{plain(runner.version, 40)}</td>
                  <td class="right">
                    <Age since={runner.seen_wall} />
                  </td>
                </tr>
              ))}
            </Table>
          )}
        </Panel>
      )}
    </>
  );
}
