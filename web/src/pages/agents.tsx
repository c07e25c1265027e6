// All agents and runners, or one agent in detail. The server selects, sorts and counts the agents.

import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { lazy } from '../lazy';
import { plain, shortName, usd } from '../format';
import { topic } from '../live/client';
import { queryParam, setQueryParam } from '../route';
import { ActionButton, Age, Empty, Glyph, Mark, Panel, Table, TaskLink, useTopics } from '../ui';
import { type ListColumn, VirtualList, useRows } from '../virtual-list';
import type { AgentListRow, AgentWindow } from '../api';
import { STATES } from '../states';
import './agents.css';

const AgentDetail = lazy<{ row: AgentListRow }>(() => import('./agent').then((module) => module.AgentDetail));

const PATH = '/api/v1/page/agents';

const COLUMNS: ListColumn[] = [
  { name: 'name', head: 'Name', isSortable: true },
  { name: 'at', head: 'State', isSortable: true },
  { name: 'doing', head: 'Doing' },
  { name: 'since', head: 'For', isSortable: true, isRight: true },
  { name: 'provider', head: 'Wanted → running', isSortable: true },
  { name: 'slots', head: 'Slots', isSortable: true, isRight: true },
  { name: 'said', head: 'Output', isRight: true },
  { name: 'context', head: 'Context', isSortable: true },
  { name: 'today', head: 'Today', isSortable: true, isRight: true },
  { name: 'do', head: 'Actions', isHeadHidden: true },
];

/** The used part of a context, with what to do about it. */
export function Gauge({ row, showAdvice }: { row: AgentListRow; showAdvice?: boolean }) {
  if (row.context === undefined) return null;
  const advice = row.advice ?? '';
  return (
    <span class={`context band-${row.band}`} title={advice ? `context ${row.context} %, ${advice}` : `context ${row.context} %`}>
      <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
        <rect class="context-whole" width="100" height="8" />
        <rect class="context-used" width={row.context} height="8" />
      </svg>
      <span>
        {row.context} %{advice && <b aria-hidden="true"> !</b>}
        {advice && (showAdvice ? <span class="context-advice"> {advice}</span> : <span class="sr">, {advice}</span>)}
      </span>
    </span>
  );
}

/** The model that was asked for, and the model that runs if it is another one. */
function Models({ row }: { row: AgentListRow }) {
  const differs = row.running !== '' && row.wanted !== '' && row.running !== row.wanted;
  return (
    <span title={plain(`wanted: ${row.provider} ${row.wanted}\nrunning: ${row.running || 'no program'}`, 300)}>
      <span class="dim">{plain(row.provider, 30)}</span> {plain(row.wanted || row.running, 60)}
      {differs && <b class="bad"> → {plain(row.running, 60)} !</b>}
    </span>
  );
}

/** Returns what an agent does now: the tool or file, or the details of its state. */
export function doingText(row: AgentListRow): string {
  if (row.doing && row.at === 'working') return row.doing;
  return row.text && row.text !== row.word ? row.text : row.subject;
}

/** The agent whose menu of actions is open, and the menu's place on the screen. */
const openMenu = signal<{ agent: string; left: number; top: number } | null>(null);

function MenuButton({ row }: { row: AgentListRow }) {
  const open = (button: HTMLElement) => {
    const place = button.getBoundingClientRect();
    const isOpen = openMenu.peek()?.agent === row.agent;
    openMenu.value = isOpen ? null : { agent: row.agent, left: Math.max(8, place.right - 190), top: Math.min(place.bottom + 4, innerHeight - 40 * row.actions.length - 16) };
  };
  if (row.actions.length === 0) return null;
  return (
    <button type="button" class="key menu-button" aria-haspopup="true" aria-expanded={openMenu.value?.agent === row.agent} aria-label={`Actions for ${row.agent}`} onClick={(event) => open(event.currentTarget)}>
      ⋯
    </button>
  );
}

function Menu({ rows }: { rows: Map<number, AgentListRow> }) {
  const box = useRef<HTMLDivElement>(null);
  const menu = openMenu.value;
  const row = menu && [...rows.values()].find((other) => other.agent === menu.agent);
  useEffect(() => {
    if (!menu) return;
    const button = document.activeElement as HTMLElement | null;
    box.current?.querySelector('button')?.focus();
    const close = (event: Event) => {
      if (event instanceof KeyboardEvent && event.key !== 'Escape') return;
      if (event.type === 'pointerdown' && (event.target as Element).closest('.agent-menu, .menu-button')) return;
      openMenu.value = null;
      if (event instanceof KeyboardEvent) button?.focus();
    };
    addEventListener('keydown', close);
    addEventListener('pointerdown', close);
    addEventListener('resize', close);
    return () => {
      removeEventListener('keydown', close);
      removeEventListener('pointerdown', close);
      removeEventListener('resize', close);
    };
  }, [menu?.agent]);
  useEffect(() => () => void (openMenu.value = null), []);
  if (!menu || !row) return null;
  return (
    <div ref={box} class="agent-menu" role="group" aria-label={`Actions for ${row.agent}`} style={{ left: `${menu.left}px`, top: `${menu.top}px` }} onClick={() => (openMenu.value = null)}>
      {row.actions.map((action) => (
        <ActionButton key={action.label} action={action} />
      ))}
    </div>
  );
}

function cells(row: AgentListRow): ComponentChildren[] {
  const text = doingText(row);
  return [
    <a class="agent-name" href={`/agents/${row.agent}`} title={row.agent}>
      {shortName(row.agent)}
    </a>,
    <Mark at={row.at} word={row.word || STATES[row.at].word} />,
    <span title={plain(`${row.task ?? ''} ${row.subject}\n${text}`, 500)}>
      {row.task && <TaskLink id={row.task} />} {row.doing && row.at === 'working' ? <code>{plain(text, 160)}</code> : <span class="dim">{plain(text, 160)}</span>}
    </span>,
    <Age since={row.since_wall} />,
    <Models row={row} />,
    `${row.capacity.current}/${row.capacity.max}`,
    row.heard_wall === undefined ? null : <Age since={row.heard_wall} />,
    <Gauge row={row} />,
    row.micro_usd === undefined ? null : usd(row.micro_usd),
    <MenuButton row={row} />,
  ];
}

function Filters({ answer }: { answer: AgentWindow | null }) {
  const selected = queryParam('at').split(',').filter(Boolean);
  const toggle = (name: string) => setQueryParam('at', (selected.includes(name) ? selected.filter((other) => other !== name) : [...selected, name]).join(','), true);
  const provider = queryParam('provider');
  return (
    <div class="list-bar">
      <input id="filter" type="search" aria-label="Filter" placeholder="filter: name, model, task  /" value={queryParam('q')} onInput={(event) => setQueryParam('q', event.currentTarget.value)} />
      <label class="choose">
        <span class="dim">provider</span>
        <select aria-label="Provider" value={provider} onChange={(event) => setQueryParam('provider', event.currentTarget.value, true)}>
          <option value="">all</option>
          {[...new Set([...(answer?.providers.map((entry) => entry.provider) ?? []), ...(provider ? [provider] : [])])].map((name) => (
            <option key={name} value={name}>
              {plain(name, 40)} {answer?.providers.find((entry) => entry.provider === name)?.count ?? 0}
            </option>
          ))}
        </select>
      </label>
      <span class="row" role="group" aria-label="States" tabIndex={0}>
        {answer?.counts.map(({ at, count }) => (
          <button key={at} type="button" class="chip" aria-pressed={selected.includes(at)} onClick={() => toggle(at)}>
            <Glyph at={at} /> {STATES[at].word} {count}
          </button>
        ))}
      </span>
    </div>
  );
}

function serverQuery(onlyAgent: string | undefined): string {
  const query = new URLSearchParams();
  if (onlyAgent) query.set('name', onlyAgent);
  else for (const [name, to] of [['q', 'text'], ['at', 'at'], ['provider', 'provider'], ['sort', 'sort']] as const) if (queryParam(name)) query.set(to, queryParam(name));
  return query.toString();
}

function Runners() {
  useTopics('runners');
  const runners = topic('runners').all();
  return (
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
  );
}

export function Agents({ onlyAgent }: { onlyAgent?: string }) {
  const loader = useRows<AgentListRow, AgentWindow>(PATH, serverQuery(onlyAgent));
  const answer = loader.answer.value;
  if (onlyAgent) {
    const row = loader.rows.get(0);
    if (row) return <AgentDetail row={row} />;
    return (
      <Panel title={`Agent ${plain(onlyAgent, 80)}`}>
        {loader.problem.value && <p class="error">{loader.problem.value}</p>}
        <Empty known={answer !== null}>
          Agent {plain(onlyAgent, 80)} does not exist. <a href="/agents">All agents</a>
        </Empty>
      </Panel>
    );
  }
  const isFiltered = ['q', 'at', 'provider'].some((name) => queryParam(name));
  const count = (value: number) => `${value.toLocaleString('en')} agent${value === 1 ? '' : 's'}`;
  let title = 'Agents';
  if (answer) title = answer.total === answer.all ? count(answer.all) : `${answer.total} of ${count(answer.all)}`;
  const empty = isFiltered ? (
    <>
      No agent matches. <a href="/agents">Show all agents</a>
    </>
  ) : (
    <>
      No agents yet. Add one: <code>regatta agent add</code>
    </>
  );
  return (
    <>
      <Panel class="agents-page" title={title} aside={<code class="aside">regatta agent list</code>}>
        <Filters answer={answer} />
        <VirtualList loader={loader} columns={COLUMNS} label="Agents" name={`agent-list ${(answer?.total ?? 99) < 18 ? 'short' : ''}`} rowKey={(row) => row.agent} cells={cells} empty={empty} />
        <Menu rows={loader.rows} />
      </Panel>
      <Runners />
    </>
  );
}
