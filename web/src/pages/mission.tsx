// One mission: its progress, cost, landings, decisions and agents, and its tasks, graph, replay and comparison as tabs.

import './mission.css';
import type { ComponentChildren } from 'preact';
import { age, clockTime, plain, shortName, tokens, usd } from '../format';
import { topic } from '../live/client';
import { MissionLanes } from '../plots/mission-lanes';
import { Graph } from '../plots/graph';
import { queryParam } from '../route';
import { ActionButton, Age, Empty, Mark, Panel, TaskLink, clock, useTopics } from '../ui';
import type { MissionPage as MissionData, MissionRowView, StateCount } from '../api';
import { STATES } from '../states';
import { Compare } from './compare';
import { TaskTable } from './mission-tasks';
import { MissionReplay } from './replay';

// One part of the script for all pages of missions keeps the initial script small.
export { Missions } from './missions';
export { Replay } from './replay';

const TABS = ['overview', 'tasks', 'graph', 'replay', 'compare'] as const;
type Tab = (typeof TABS)[number];

/** Waves that are shown before a button shows the others. */
const MAX_WAVES = 10;

/** A bar with a segment for each state, as wide as its share of the tasks. */
export function StateBar({ counts, label }: { counts: StateCount[]; label: string }) {
  return (
    <span class="state-bar" role="img" aria-label={`${label}: ${countsText(counts)}`} title={countsText(counts)}>
      {[...counts].reverse().map(({ at, count }) => (
        <i key={at} class={`swatch at-${at}`} style={{ flexGrow: count }} />
      ))}
    </span>
  );
}

/** Returns counts as text: `2 working, 5 landed`. */
export function countsText(counts: StateCount[]): string {
  return counts.map(({ at, count }) => `${count} ${STATES[at].word}`).join(', ') || 'no tasks';
}

/** Returns how long a mission has run or ran. */
export function missionTime(mission: MissionRowView, now: number): string {
  return age((mission.ended_wall ?? now) - mission.created_wall);
}

function Figure({ name, children, more }: { name: string; children: ComponentChildren; more?: ComponentChildren }) {
  return (
    <div class="figure">
      <dt>{name}</dt>
      <dd>
        {children}
        {more && <div class="more">{more}</div>}
      </dd>
    </div>
  );
}

/** The cost and its limit. An unknown cost is never shown as zero. */
function Spent({ page }: { page: MissionData }) {
  const { usage, attempts } = page.spent;
  const used = usage.input + usage.cached_input + usage.cache_write + usage.output;
  const limit = page.budget?.micro_usd;
  const share = limit && usage.micro_usd !== undefined ? Math.min(1, usage.micro_usd / limit) : null;
  const isAmount = usage.micro_usd !== undefined;
  const amount = usage.micro_usd !== undefined ? usd(usage.micro_usd) : used > 0 ? 'price unknown' : attempts > 0 ? 'not reported' : '–';
  return (
    <Figure
      name="Spent"
      more={
        <>
          {share !== null && <meter class="spent" min={0} max={1} high={0.8} optimum={0} value={share} aria-label={`${Math.round(share * 100)} % of the budget`} />}
          {[share !== null && `${Math.round(share * 100)} % of the budget`, used > 0 && `${tokens(used)} tokens`, page.budget ? budgetText(page.budget) : 'no budget'].filter(Boolean).join(' · ')}
        </>
      }
    >
      <span class={isAmount ? '' : 'word'}>{amount}</span>
      {limit !== undefined && <small> of {usd(limit)}</small>}
    </Figure>
  );
}

function budgetText(budget: NonNullable<MissionData['budget']>): string {
  const limits = [budget.tokens !== undefined && `${tokens(budget.tokens)} tokens`, budget.attempts !== undefined && `${budget.attempts} attempts`, budget.turns !== undefined && `${budget.turns} turns`, budget.wall_ms !== undefined && `${age(budget.wall_ms)} of work`].filter(Boolean);
  return limits.length > 0 ? `limit ${limits.join(', ')}` : '';
}

function Figures({ page }: { page: MissionData }) {
  const { mission } = page;
  const count = (...states: string[]) => mission.counts.filter(({ at }) => states.includes(at)).reduce((sum, { count }) => sum + count, 0);
  const needs = count('needs', 'review');
  const busy = page.lanes.filter((lane) => lane.at !== 'idle').length;
  const lines = page.landings.reduce((sum, { lines }) => ({ added: sum.added + (lines?.added ?? 0), removed: sum.removed + (lines?.removed ?? 0) }), { added: 0, removed: 0 });
  return (
    <dl class="figures mission-figures">
      <div class="figure wide">
        <dt>Landed</dt>
        <dd>
          {mission.landed} <small>of {mission.tasks}</small>
          <StateBar counts={mission.counts} label="All tasks" />
          <div class="more">{countsText(mission.counts)}</div>
        </dd>
      </div>
      <Figure name="Needs you" more={needs > 0 ? 'answer below' : 'nothing waits for you'}>
        <span class={needs > 0 ? 'late' : ''}>{needs}</span>
      </Figure>
      <Spent page={page} />
      <Figure name={mission.running ? 'Running for' : 'Took'} more={`${clockTime(mission.created_wall, false)} – ${mission.ended_wall === undefined ? 'now' : clockTime(mission.ended_wall, false)}`}>
        {missionTime(mission, clock.value)}
      </Figure>
      <Figure name="Agents" more={page.spent.attempts > 0 ? `${page.spent.attempts} attempt${page.spent.attempts === 1 ? '' : 's'}` : 'no attempt yet'}>
        {mission.running ? (
          <>
            {busy} <small>of {page.lanes_total} at work</small>
          </>
        ) : (
          page.lanes_total
        )}
      </Figure>
      {page.landings.some((landing) => landing.lines) && (
        <Figure name={page.landings.length < page.landings_total ? `Latest ${page.landings.length} changes` : 'Changed lines'} more={`${page.landings_total} commit${page.landings_total === 1 ? '' : 's'}`}>
          <span class="plus">+{lines.added}</span> <span class="minus">−{lines.removed}</span>
        </Figure>
      )}
    </dl>
  );
}

function Waves({ page }: { page: MissionData }) {
  const showAll = queryParam('waves') === 'all';
  const { waves } = page;
  // Waves that are over come first, so a long list begins with the first wave that is not over.
  const current = Math.max(0, waves.findIndex((wave) => wave.landed < wave.tasks));
  const from = showAll || waves.length <= MAX_WAVES ? 0 : Math.min(current, waves.length - MAX_WAVES);
  const shown = waves.slice(from, showAll ? undefined : from + MAX_WAVES);
  return (
    <Panel title="Progress by wave" aside={<span class="aside">a wave starts when what it depends on has landed</span>}>
      {waves.length === 0 && <p class="empty">No task yet.{page.mission.lead ? ` ${page.mission.lead} is planning them.` : ''}</p>}
      {from > 0 && (
        <p class="dim">
          {from} earlier {from === 1 ? 'wave' : 'waves'} landed · <a href={`/m/${page.mission.id}?waves=all`}>show all {waves.length}</a>
        </p>
      )}
      <ol class="waves">
        {shown.map((wave) => (
          <li key={wave.wave}>
            <span class="wave-name">Wave {wave.wave}</span>
            <StateBar counts={wave.counts} label={`Wave ${wave.wave}`} />
            <span class="wave-count">
              {wave.landed} / {wave.tasks}
            </span>
            <span class="wave-text">{wave.landed === wave.tasks ? '✓ landed' : countsText(wave.counts.filter(({ at }) => at !== 'landed'))}</span>
          </li>
        ))}
      </ol>
      {from + shown.length < waves.length && (
        <p class="dim">
          {waves.length - from - shown.length} later waves · <a href={`/m/${page.mission.id}?waves=all`}>show all {waves.length}</a>
        </p>
      )}
    </Panel>
  );
}

/** Open tasks that are listed at least. More are listed only if they are in progress or need a person. */
const MIN_OPEN_TASKS = 5;
/** The rank of a waiting task. Tasks with a lower rank are in progress or need a person. */
const WAITING_RANK = STATES.waiting.rank;

function OpenTasks({ page }: { page: MissionData }) {
  const { id } = page.mission;
  const active = page.open.filter((row) => row.rank < WAITING_RANK).length;
  const open = page.open.slice(0, Math.max(active, MIN_OPEN_TASKS));
  return (
    <Panel
      title={
        <>
          Open tasks <b class="badge">{page.open_total}</b>
        </>
      }
      aside={page.open_total > open.length ? <a href={`/m/${id}?tab=tasks`}>show all</a> : undefined}
    >
      {open.length === 0 ? (
        <p class="empty">{page.mission.running ? 'No open task.' : 'The mission is over.'}</p>
      ) : (
        <ul class="mission-rows">
          {open.map((row) => (
            <li key={row.id} data-row tabIndex={0} class={row.at === 'needs' || row.at === 'review' || row.at === 'failed' ? 'hot' : ''}>
              <Mark at={row.at} word={row.word} />
              <a class="subject" href={`/t/${row.id}`} title={plain(row.subject, 300)}>
                <b>{row.id}</b> <bdi>{plain(row.subject, 200)}</bdi>
              </a>
              <span class="who" title={row.agent ?? ''}>
                {shortName(row.agent ?? '', 18)}
              </span>
              <Age since={row.since_wall} />
              {row.text && (
                <span class="why" title={plain(row.text, 400)}>
                  {plain(row.text, 160)}
                </span>
              )}
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

function Landings({ page }: { page: MissionData }) {
  return (
    <Panel
      title={
        <>
          Landed <b class="badge">{page.landings_total}</b>
        </>
      }
      aside={page.landings_total > page.landings.length ? <a href={`/m/${page.mission.id}?tab=tasks&at=landed`}>show all</a> : undefined}
    >
      {page.landings.length === 0 ? (
        <p class="empty">Nothing has landed yet.</p>
      ) : (
        <ul class="mission-rows landings">
          {page.landings.map((landing) => (
            <li key={landing.task} data-row tabIndex={0}>
              <code title={landing.commit}>{landing.commit.slice(0, 8)}</code>
              <a class="subject" href={`/t/${landing.task}`} title={plain(landing.subject, 300)}>
                <b>{landing.task}</b> <bdi>{plain(landing.subject, 200)}</bdi>
              </a>
              <span class="lines">
                {landing.lines ? (
                  <>
                    <span class="plus">+{landing.lines.added}</span> <span class="minus">−{landing.lines.removed}</span>
                  </>
                ) : (
                  <span class="dim">size unknown</span>
                )}
              </span>
              <time title={new Date(landing.wall).toLocaleString()}>{clockTime(landing.wall, false)}</time>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

function Decisions({ page }: { page: MissionData }) {
  return (
    <Panel
      title={
        <>
          Decisions <b class="badge">{page.decisions_total}</b>
        </>
      }
    >
      {page.decisions.length === 0 ? (
        <p class="empty">No agent has asked anything.</p>
      ) : (
        <ul class="decisions">
          {page.decisions.map((decision) => (
            <li key={decision.id} class={decision.at === 'needs' ? 'hot' : ''}>
              <div class="row">
                <span class="kind">{decision.kind}</span> <TaskLink id={decision.task} />
                <span class="dim" title={decision.agent}>
                  {shortName(decision.agent, 18)}
                </span>
                <time title={new Date(decision.asked_wall).toLocaleString()}>{clockTime(decision.answered_wall ?? decision.asked_wall, false)}</time>
              </div>
              <p class="asked">
                <bdi>{plain(decision.subject, 200)}</bdi>
              </p>
              <p class="answer">
                <Mark at={decision.at} word={plain(decision.answer, 60)} />
                {decision.by && (
                  <span class="dim">
                    {' '}
                    by {plain(decision.by, 60)}, after {age((decision.answered_wall ?? decision.asked_wall) - decision.asked_wall)}
                  </span>
                )}
                {decision.at === 'needs' && (
                  <>
                    {' '}
                    <a href={`/t/${decision.task}`}>answer</a>
                  </>
                )}
              </p>
            </li>
          ))}
        </ul>
      )}
      {page.decisions_total > page.decisions.length && <p class="dim">{page.decisions_total - page.decisions.length} older decisions are not listed.</p>}
    </Panel>
  );
}

function Overview({ page }: { page: MissionData }) {
  return (
    <>
      <Figures page={page} />
      <div class="mission-columns">
        <div>
          <OpenTasks page={page} />
          <Waves page={page} />
          <MissionLanes page={page} />
        </div>
        <div>
          {page.report && (
            <Panel title={page.mission.at === 'failed' ? 'Why it was cancelled' : 'Report'}>
              <p class="goal">
                <bdi>{plain(page.report, 4_000)}</bdi>
              </p>
            </Panel>
          )}
          <Landings page={page} />
          <Decisions page={page} />
        </div>
      </div>
    </>
  );
}

function MissionHead({ page }: { page: MissionData }) {
  const { mission } = page;
  return (
    <header class="mission-head">
      <p class="crumbs">
        <a href="/missions">Missions</a> / <b>{mission.id}</b>
      </p>
      <div class="mission-title">
        <h1>
          <bdi>{plain(mission.title, 300)}</bdi>
        </h1>
        <span class="row">
          {page.actions.map((action) => (
            <ActionButton key={action.label} action={action} />
          ))}
        </span>
      </div>
      <p class="mission-meta">
        <span class="chip-state">
          <Mark at={mission.at} word={mission.word} />
        </span>
        <span>{plain(mission.text, 120)}</span>
        <span>{mission.project}</span>
        {page.asked_by && (
          <span>
            asked by <bdi>{plain(page.asked_by, 60)}</bdi>
          </span>
        )}
        {mission.lead && (
          <span>
            led by <a href={`/agents/${mission.lead}`}>{plain(mission.lead, 60)}</a>
          </span>
        )}
        <span>
          started <time title={new Date(mission.created_wall).toLocaleString()}>{clockTime(mission.created_wall, false)}</time>
        </span>
        <code>regatta mission show {mission.id}</code>
      </p>
      {page.goal && page.goal.trim() !== mission.title.trim() && (
        <details class="mission-goal" open={page.goal.length < 400}>
          <summary>Goal</summary>
          <p class="goal">
            <bdi>{plain(page.goal, 4_000)}</bdi>
          </p>
        </details>
      )}
      {page.notes?.map((note) => (
        <p key={note} class="error">
          {plain(note, 400)}
        </p>
      ))}
    </header>
  );
}

function TabBar({ page, tab }: { page: MissionData; tab: Tab }) {
  const { id, tasks } = page.mission;
  return (
    <nav class="mission-tabs" aria-label="Parts of the mission">
      {TABS.map((name) => (
        <a key={name} href={name === 'overview' ? `/m/${id}` : `/m/${id}?tab=${name}`} aria-current={name === tab ? 'page' : undefined}>
          {name[0]?.toUpperCase() + name.slice(1)}
          {name === 'tasks' && <b class="badge">{tasks}</b>}
        </a>
      ))}
    </nav>
  );
}

export function MissionPage({ id }: { id: string }) {
  const name = `mission.${id}` as const;
  useTopics(name);
  const page = topic(name).get(id);
  const isValid = /^M[1-9]\d{0,14}$/.test(id);
  if (!page) {
    return (
      <Empty known={!isValid || topic(name).known.value}>
        There is no mission {plain(id, 40)}. <a href="/missions">See all missions</a>
      </Empty>
    );
  }
  const requested = queryParam('tab') as Tab;
  const tab = TABS.includes(requested) ? requested : 'overview';
  return (
    <div class="mission">
      <MissionHead page={page} />
      <TabBar page={page} tab={tab} />
      {tab === 'overview' && <Overview page={page} />}
      {tab === 'tasks' && <MissionTasks page={page} />}
      {tab === 'graph' && (
        <section class="panel" aria-label="Graph">
          <Graph scope={id} matchesFilter={null} />
        </section>
      )}
      {tab === 'replay' && <MissionReplay id={id} />}
      {tab === 'compare' && <Compare ids={[id, ...queryParam('with').split(',').filter(Boolean)]} />}
    </div>
  );
}

function MissionTasks({ page }: { page: MissionData }) {
  const { id, counts } = page.mission;
  const name = `tasks.${id}` as const;
  useTopics(name);
  return (
    <Panel title="Tasks">
      {topic(name).known.value ? <TaskTable rows={topic(name).all()} counts={counts} total={page.mission.tasks} /> : <p class="empty">loading…</p>}
    </Panel>
  );
}
