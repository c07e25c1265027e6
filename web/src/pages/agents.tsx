import { effect, useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { named, plain, usd } from '../format';
import { Card, groups } from '../inbox';
import { byName, link, topic } from '../live/client';
import { Lanes, byUrgency } from '../plots/lanes';
import { get, set } from '../route';
import { call } from '../session';
import { type Column, Heads, ordered } from '../table';
import { Age, Do, Empty, Mark, Panel, Table, TaskLink, useTopics } from '../ui';
import { type Head, type Item, type Lane, type Row, type Runner, STATES } from '../views';

function Gauge({ percent, words }: { percent: number; words?: boolean }) {
  const advice = percent >= 80 ? '! nearly full: it sums itself up soon, and forgets; better a new task' : percent >= 60 ? '! filling up: keep what comes next short' : '';
  return (
    <span class={`gauge ${percent >= 80 ? 'bad' : percent >= 60 ? 'late' : ''}`} title={`context ${percent} % ${advice}`}>
      <meter min={0} max={100} value={percent} aria-label={`context ${percent} %`} /> {percent} % {words ? advice : advice && '!'}
    </span>
  );
}

const HEADS: Column<Lane>[] = [
  { name: 'name', head: 'Name', of: (it) => it.agent },
  { name: 'at', head: 'State', of: (it) => STATES[it.at].rank },
  { name: 'doing', head: 'Doing' },
  { name: 'since', head: 'For', of: (it) => -it.since_wall, right: true },
  { name: 'wanted', head: 'Wanted', of: (it) => `${it.provider} ${it.wanted}` },
  { name: 'running', head: 'Running', of: (it) => it.running },
  { name: 'slots', head: 'Slots', of: (it) => it.capacity.current, right: true },
  { name: 'said', head: 'Said last', right: true },
  { name: 'context', head: 'Context', of: (it) => it.context },
  { name: 'today', head: 'Today', of: (it) => it.micro_usd, right: true },
  { name: 'do', head: 'Do' },
];

function Line({ it, heard }: { it: Lane; heard?: number }) {
  const differs = it.running !== '' && it.wanted !== '' && it.running !== it.wanted;
  return (
    <tr data-row tabIndex={0}>
      <td class="name">
        <a href={`/agents/${it.agent}`} title={it.agent}>
          {named(it.agent)}
        </a>
      </td>
      <td class={`mark at-${it.at}`}>
        <i aria-hidden="true">{STATES[it.at].glyph}</i> {STATES[it.at].word}
      </td>
      <td class="dim" title={plain(it.text || it.subject, 400)}>
        {it.task && <TaskLink id={it.task} />} {plain(it.text || it.subject, 120)}
      </td>
      <td class="right">
        <Age since={it.since_wall} />
      </td>
      <td>
        <span class="name">{it.provider}</span> <span class="name">{plain(it.wanted, 60)}</span>
      </td>
      <td class={differs ? 'bad' : ''}>
        <span class="name">{plain(it.running, 60)}</span> {differs && <b>! not what was wanted</b>}
      </td>
      <td class="right">
        {it.capacity.current}/{it.capacity.max}
      </td>
      <td class="right">{heard === undefined ? '' : <Age since={heard} />}</td>
      <td>{it.context !== undefined && <Gauge percent={it.context} />}</td>
      <td class="right">{it.micro_usd === undefined ? '' : usd(it.micro_usd)}</td>
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

/** When each agent's program last said something. Words are no change of the board, so they are asked for. */
function useHeard(): Map<string, number> {
  const heard = useSignal<Map<string, number>>(new Map());
  useEffect(() => {
    const ask = () => {
      if (document.hidden || link.peek().state !== 'live') return;
      call<{ name: string; heard_wall?: number }[]>('agent.list').then(
        (all) => (heard.value = new Map(all.flatMap((it) => (it.heard_wall === undefined ? [] : [[it.name, it.heard_wall]])))),
        () => {}, // the line says it if the daemon is gone
      );
    };
    const timer = setInterval(ask, 5_000);
    const stop = effect(() => {
      if (link.value.state === 'live') ask();
    });
    return () => {
      clearInterval(timer);
      stop();
    };
  }, []);
  return heard.value;
}

/** One agent: what it is at, what it was at, what it is asked and what became of its tasks. */
function One({ it, heard }: { it: Lane; heard?: number }) {
  useTopics('tasks', 'inbox', 'head');
  void topic('head').changed.value;
  const size = topic('head').one<Head>('head')?.size;
  const differs = it.running !== '' && it.wanted !== '' && it.running !== it.wanted;
  const asked = groups(
    topic('inbox')
      .all<Item>()
      .filter((one) => one.agent === it.agent),
  );
  const rows = topic('tasks')
    .all<Row>()
    .filter((one) => one.agent === it.agent)
    .sort((a, b) => STATES[a.at].rank - STATES[b.at].rank || byName(b.id, a.id));
  const facts: [string, ComponentChildren][] = [
    ['State', <Mark at={it.at} />],
    ['For', <Age since={it.since_wall} />],
    [
      'Doing',
      <>
        {it.task && <TaskLink id={it.task} />} {plain(it.text || it.subject || 'nothing', 300)}
      </>,
    ],
    ['Wanted', `${it.provider} ${plain(it.wanted, 80)}`],
    ['Running', it.running ? <span class={differs ? 'bad' : ''}>{plain(it.running, 80)}{differs && ' ! not what was wanted'}</span> : 'no program now'],
    ['Slots', `${it.capacity.current} of ${it.capacity.max}`],
    ['Said last', heard === undefined ? 'nothing yet' : <Age since={heard} />],
    ['Context', it.context === undefined ? 'not reported' : <Gauge percent={it.context} words />],
    ['Today', it.micro_usd === undefined ? 'no price reported' : usd(it.micro_usd)],
  ];
  return (
    <>
      <Panel
        title={`Agent ${it.agent}`}
        aside={
          <span class="aside row">
            {it.actions.map((action) => (
              <Do key={action.label} action={action} />
            ))}
            <code>regatta why {it.agent}</code>
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
      {asked.map((one, nth) => (
        <Card key={one.key} group={one} nth={nth} open />
      ))}
      {size !== 'many' && <Lanes size="few" only={it.agent} />}
      <Panel title={`${rows.length} task${rows.length === 1 ? '' : 's'}`} aside={<a class="aside" href={`/tasks?q=${encodeURIComponent(it.agent)}`}>all that name it</a>}>
        {rows.length === 0 ? (
          <Empty known={topic('tasks').known.value}>It has had no task that is still shown.</Empty>
        ) : (
          <Table heads={['State', 'Task', 'Subject', 'Why', '>Cost', '>For']} class="tasks">
            {rows.slice(0, 50).map((one) => (
              <tr key={one.id} data-row tabIndex={0}>
                <td class={`mark at-${one.at}`}>
                  <i aria-hidden="true">{STATES[one.at].glyph}</i> {one.word}
                </td>
                <td>
                  <TaskLink id={one.id} />
                </td>
                <td class="subject">{plain(one.subject, 200)}</td>
                <td class="dim">{plain(one.text, 140)}</td>
                <td class="right">{one.micro_usd === undefined ? '' : usd(one.micro_usd)}</td>
                <td class="right">
                  <Age since={one.since_wall} />
                </td>
              </tr>
            ))}
          </Table>
        )}
      </Panel>
    </>
  );
}

export function Agents({ only }: { only?: string }) {
  useTopics('lanes', 'runners');
  const heard = useHeard();
  const one = only ? topic('lanes').all<Lane>().find((it) => it.agent === only) : undefined;
  if (one) return <One it={one} heard={heard.get(one.agent)} />;
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
          <Empty known={topic('lanes').known.value}>{only ? `There is no agent ${only}: regatta agent list` : words ? 'No agent matches.' : 'No agent is registered yet: regatta agent add'}</Empty>
        ) : (
          <div class="scroll">
            <table class="list tasks">
              <Heads columns={HEADS} />
              <tbody>
                {ordered(lanes, HEADS, get('sort')).map((it) => (
                  <Line key={it.agent} it={it} heard={heard.get(it.agent)} />
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
            <Table heads={['Name', 'State', 'Labels', '>Running', 'Version', '>Seen']}>
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
            </Table>
          )}
        </Panel>
      )}
    </>
  );
}
