// One agent: what it does now, its requests, its time and its tasks.

import type { ComponentChildren } from 'preact';
import { plain, usd } from '../format';
import { Card, groupItems } from '../inbox';
import { topic } from '../live/client';
import { Lanes } from '../plots/lanes';
import { ActionButton, Age, Mark, Panel, TaskLink, useTopics } from '../ui';
import { type ListColumn, VirtualList, useRows } from '../virtual-list';
import type { AgentListRow, TaskListRow, TaskWindow } from '../api';
import { Gauge, doingText } from './agents';
import { Lines } from './tasks';

const COLUMNS: ListColumn[] = [
  { name: 'state', head: 'State' },
  { name: 'id', head: 'Task' },
  { name: 'subject', head: 'Subject' },
  { name: 'lines', head: 'Lines', isRight: true },
  { name: 'commit', head: 'Commit' },
  { name: 'cost', head: 'Cost', isRight: true },
  { name: 'since', head: 'Age', isRight: true },
];

function cells(row: TaskListRow): ComponentChildren[] {
  const why = plain(row.text.split('\n')[0] ?? '', 160);
  return [
    <Mark at={row.at} word={row.word} />,
    <TaskLink id={row.id} />,
    <span title={plain(row.subject, 300)}>
      {plain(row.subject, 200)} {why && <span class="dim task-why">{why}</span>}
    </span>,
    <Lines row={row} />,
    row.commit && <code>{row.commit.slice(0, 8)}</code>,
    row.micro_usd === undefined ? null : usd(row.micro_usd),
    <Age since={row.since_wall} />,
  ];
}

function Figure({ name, children, more }: { name: string; children: ComponentChildren; more?: ComponentChildren }) {
  return (
    <div class="figure">
      <dt>{name}</dt>
      <dd>
        {children} {more && <div class="more">{more}</div>}
      </dd>
    </div>
  );
}

/** How the agent's tasks ended. The server counts them. */
function Results({ answer, row }: { answer: TaskWindow | null; row: AgentListRow }) {
  const count = (at: string) => answer?.counts.find((entry) => entry.at === at)?.count ?? 0;
  const [landed, failed] = [count('landed'), count('failed')];
  const ended = landed + failed;
  return (
    <dl class="figures agent-figures">
      <Figure name="Landed" more={ended > 0 ? `${Math.round((100 * landed) / ended)} % of ${ended} ended tasks` : 'no task has ended'}>
        {answer ? landed.toLocaleString('en') : '–'}
      </Figure>
      <Figure name="Failed or cancelled">{answer ? failed.toLocaleString('en') : '–'}</Figure>
      <Figure name="Cost of all tasks" more={answer && ended > 0 && landed > 0 && answer.micro_usd !== undefined ? `${usd(answer.micro_usd / landed)} for each landed task` : undefined}>
        {answer?.micro_usd === undefined ? 'no price reported' : usd(answer.micro_usd)}
      </Figure>
      <Figure name="Today">{row.micro_usd === undefined ? 'no price reported' : usd(row.micro_usd)}</Figure>
      <Figure name="Context">{row.context === undefined ? <span class="dim">not reported</span> : <Gauge row={row} showAdvice />}</Figure>
    </dl>
  );
}

export function AgentDetail({ row }: { row: AgentListRow }) {
  useTopics('inbox', 'head');
  const size = topic('head').get('head')?.size;
  const loader = useRows<TaskListRow, TaskWindow>('/api/v1/page/tasks', `agent=${encodeURIComponent(row.agent)}`, (answer) => answer.is_counting);
  const answer = loader.answer.value;
  const differs = row.running !== '' && row.wanted !== '' && row.running !== row.wanted;
  const requests = groupItems(
    topic('inbox')
      .all()
      .filter((item) => item.agent === row.agent),
  );
  const doing = doingText(row);
  return (
    <>
      <p class="crumbs dim">
        <a href="/agents">Agents</a> /
      </p>
      <Panel
        class="agent-page"
        title={row.agent}
        aside={
          <span class="aside row agent-actions">
            {row.actions.map((action) => (
              <ActionButton key={action.label} action={action} />
            ))}
          </span>
        }
      >
        <p class="agent-now">
          <Mark at={row.at} word={row.word} />{' '}
          <span class="dim">
            for <Age since={row.since_wall} />
          </span>
          {row.task && (
            <>
              {' · '}
              <TaskLink id={row.task} />
              {plain(row.subject, 200)}
            </>
          )}
        </p>
        {doing && doing !== row.subject && <p class="agent-doing">{row.doing && row.at === 'working' ? <code>{plain(doing, 300)}</code> : plain(doing, 300)}</p>}
        {row.heard_wall !== undefined && (
          <p class="dim">
            last output <Age since={row.heard_wall} /> ago
          </p>
        )}
        <p class="row agent-links">
          {row.task && (
            <a class="do first" href={`/t/${row.task}?tab=log`}>
              Open the log
            </a>
          )}
          <span class="dim">
            {plain(row.provider, 40)} {plain(row.wanted, 80)}
            {differs && <b class="bad"> · runs {plain(row.running, 80)} !</b>}
            {!row.running && ' · no program is running'} · {row.capacity.current} of {row.capacity.max} slots
          </span>
          <code class="aside">regatta why {row.agent}</code>
        </p>
        <Results answer={answer} row={row} />
      </Panel>
      {requests.map((group, index) => (
        <Card key={group.key} group={group} index={index} isOpen />
      ))}
      {size !== 'many' && <Lanes size="few" onlyAgent={row.agent} />}
      <Panel title={answer ? `${answer.total.toLocaleString('en')} task${answer.total === 1 ? '' : 's'}` : 'Tasks'} aside={<a class="aside" href={`/tasks?agent=${encodeURIComponent(row.agent)}`}>filter these tasks</a>}>
        <VirtualList loader={loader} columns={COLUMNS} label={`Tasks of ${row.agent}`} name={`task-list of-agent ${(answer?.total ?? 99) < 14 ? 'short' : ''}`} rowKey={(task) => task.id} cells={cells} empty="This agent has had no task." />
      </Panel>
    </>
  );
}
