// One task: its change, log, checks, wait reasons, result and actions.

import './task.css';
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { commentCountText, discardDrafts, draftsOf, followUpAction, saveDrafts, unsentComments, withDrafts } from '../drafts';
import { age, plain, usd } from '../format';
import { Card, groupItems } from '../inbox';
import { taskTopic, topic } from '../live/client';
import { queryParam, setQueryParam } from '../route';
import { pageKeys } from '../keys';
import { neighbours, taskList } from '../task-list';
import { ActionButton, Age, Empty, Mark, Panel, TaskLink, clock, daemonNow, shellHint, shellHintProps, toast, useTopics } from '../ui';
import type { Attempt, TaskPage } from '../api';
import { STATES } from '../states';
import { Diff, openComment } from './diff';
import { DraftList } from './diff-comments';
import { Log } from './log';
import { TABS, type Tab, handleTaskKey, takeOver } from './task-keys';
import { Checks, Result, Why } from './task-tabs';

const TAB_TITLES: Record<Tab, string> = { change: 'Change', log: 'Log', checks: 'Checks', why: 'Why', result: 'Result' };

/** Returns the tab that says most about a task in its present state. */
export function defaultTab(task: TaskPage): Tab {
  if (task.at === 'waiting' || task.at === 'backlog') return 'why';
  if (task.submission && task.at !== 'working') return 'change';
  const end = task.tries.at(-1)?.ended?.cause;
  if (task.at !== 'working' && (end === 'invalid' || end === 'rejected')) return 'checks';
  return task.tries.length > 0 ? 'log' : 'why';
}

/** Formats a duration. Anything shorter than a second is `<1s`, not `0s`. */
const durationText = (ms: number) => (ms < 1_000 ? '<1s' : age(ms));

async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    toast(true, `Copied ${text}`);
  } catch {
    toast(true, 'The browser does not allow copying. Select the text yourself:', text);
  }
}

/** A short fact that can be copied. */
function CopyChip({ label, text, shown }: { label: string; text: string; shown?: string }) {
  return (
    <button type="button" class="fact copies" title={`Copy ${plain(text, 300)}`} onClick={() => void copy(text)}>
      <span class="dim">{label}</span> <code>{plain(shown ?? text, 60)}</code> <CopyIcon />
      <span class="sr">copy</span>
    </button>
  );
}

/** The names of lists in the breadcrumb, by the first part of their address. */
const LIST_NAMES: Record<string, string> = { '': 'Now', inbox: 'Inbox', tasks: 'Tasks', queue: 'Queue', files: 'Files', agents: 'Agents', cost: 'Cost', events: 'Events', replay: 'Replay', m: 'Mission' };

function Breadcrumb({ task }: { task: TaskPage }) {
  const list = taskList();
  const place = neighbours(task.id, list);
  const address = place && list ? list.address : '/tasks';
  const name = LIST_NAMES[address.split(/[/?]/)[1] ?? ''] ?? 'Tasks';
  return (
    <nav class="task-crumbs" aria-label="Breadcrumb">
      <a href={address}>{name}</a>
      <span aria-hidden="true">/</span>
      {task.mission && !address.startsWith(`/m/${task.mission}`) && (
        <>
          <a href={`/m/${task.mission}`}>
            {task.mission} <bdi>{plain(task.mission_title ?? '', 60)}</bdi>
          </a>
          <span aria-hidden="true">/</span>
        </>
      )}
      <b aria-current="page">{task.id}</b>
      {place && (
        <span class="neighbours">
          {place.previous ? (
            <a href={`/t/${place.previous}`} title={`Previous task of the list: ${place.previous}`}>
              ‹ <span class="sr">previous task</span>
              <kbd>[</kbd>
            </a>
          ) : (
            <span class="dim">‹</span>
          )}
          <span class="dim">
            {place.at} of {place.of}
          </span>
          {place.next ? (
            <a href={`/t/${place.next}`} title={`Next task of the list: ${place.next}`}>
              <kbd>]</kbd>
              <span class="sr">next task</span> ›
            </a>
          ) : (
            <span class="dim">›</span>
          )}
        </span>
      )}
    </nav>
  );
}

function AgentFact({ task }: { task: TaskPage }) {
  if (!task.agent) return null;
  const differs = task.running && task.wanted && task.running !== task.wanted;
  const model = task.running || task.wanted;
  return (
    <a class="fact" href={`/agents/${task.agent}`}>
      <b>{plain(task.agent, 40)}</b>
      {model && (
        <span class={differs ? 'late' : 'dim'} title={differs ? `wanted ${plain(task.wanted, 80)}` : undefined}>
          {plain(model, 60)}
          {differs && ` (wanted ${plain(task.wanted, 60)})`}
        </span>
      )}
    </a>
  );
}

function Facts({ task }: { task: TaskPage }) {
  const micro = task.spent?.usage.micro_usd;
  return (
    <div class="facts-row">
      <span class={`fact state at-${task.at}`}>
        <Mark at={task.at} word={task.word} />
      </span>
      <AgentFact task={task} />
      {task.live && task.live !== task.word && <span class="fact">{plain(task.live, 80)}</span>}
      {task.landed ? <CopyChip label="landed as" text={task.landed} shown={task.landed.slice(0, 10)} /> : <CopyChip label="branch" text={task.branch} />}
      <span class="fact">
        <span class="dim">cost</span> {micro === undefined ? <span title="No program reported a cost.">not reported</span> : usd(micro)}
      </span>
      <span class="fact">
        <span class="dim">created</span>
        <span>
          <Age since={task.created_wall} /> ago
        </span>
      </span>
      {task.tries.length > 1 && <span class="fact">{task.tries.length} attempts</span>}
    </div>
  );
}

function TabBar({ task, tab, hasCards }: { task: TaskPage; tab: Tab; hasCards: boolean }) {
  const counts: Partial<Record<Tab, number>> = { change: task.submission?.changed.length, log: task.tries.length, checks: task.check_count, why: task.waits.length };
  return (
    <nav class="task-tabs" aria-label="Views of the task">
      {TABS.map((name, index) => (
        <button key={name} type="button" aria-current={tab === name ? 'page' : undefined} onClick={() => setQueryParam('tab', name, true)}>
          {TAB_TITLES[name]}
          {(counts[name] ?? 0) > 0 && <span class="count">{counts[name]}</span>}
          {!hasCards && <kbd>{index + 1}</kbd>}
        </button>
      ))}
    </nav>
  );
}

/** Chooses one of several attempts, for the views that show one. */
function AttemptPicker({ tries, attempt }: { tries: Attempt[]; attempt: string }) {
  if (tries.length < 2) return null;
  return (
    <div class="attempts" role="group" aria-label="Attempts">
      {tries.map((entry) => (
        <button key={entry.id} type="button" class="chip" aria-pressed={entry.id === attempt} title={plain(entry.ended?.detail ?? '', 300)} onClick={() => setQueryParam('attempt', entry.id, true)}>
          <b>{entry.id}</b> {plain(entry.agent, 30)} · {plain(entry.ended ? entry.ended.cause.replaceAll('_', ' ') : 'running', 40)} · {age((entry.ended?.wall ?? daemonNow()) - entry.started_wall)}
        </button>
      ))}
    </div>
  );
}

function ReadyPanel({ task }: { task: TaskPage }) {
  const open = task.checklist.filter((condition) => condition.good !== true).length;
  return (
    <Panel title="Ready to land?" aside={<span class="aside">{open === 0 ? 'all conditions are met' : `${task.checklist.length - open} of ${task.checklist.length}`}</span>}>
      <ul class="checks">
        {task.checklist.map((condition) => (
          <li key={condition.text} class={condition.good === true ? 'good' : condition.good === false ? 'bad' : ''}>
            <i aria-hidden="true">{condition.good === true ? '✓' : condition.good === false ? '✕' : '○'}</i>
            <span>
              <span class="sr">{condition.good === true ? 'met: ' : condition.good === false ? 'not met: ' : 'open: '}</span>
              {plain(condition.text, 200)}
            </span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function TimePanel({ task }: { task: TaskPage }) {
  void clock.value;
  const now = daemonNow();
  const first = task.time[0]?.from ?? now;
  const last = task.time.reduce((latest, bar) => Math.max(latest, bar.to ?? now), first + 1);
  const scale = 300 / (last - first);
  const sums = new Map<string, number>();
  for (const bar of task.time) sums.set(bar.at, (sums.get(bar.at) ?? 0) + (bar.to ?? now) - bar.from);
  return (
    <Panel title="Time spent" aside={<span class="aside">{age(last - first)}</span>}>
      <svg class="time" viewBox="0 0 300 14" preserveAspectRatio="none" height={14} role="img" aria-label={[...sums].map(([at, ms]) => `${durationText(ms)} ${STATES[at as keyof typeof STATES].word}`).join(', ')}>
        {task.time.map((bar) => (
          <rect key={bar.from} class={`at-${bar.at}`} x={(bar.from - first) * scale} width={Math.max(1, ((bar.to ?? now) - bar.from) * scale - 0.7)} y={0} height={14} rx={1.5}>
            <title>{plain(bar.text ?? '', 200)}</title>
          </rect>
        ))}
      </svg>
      <ul class="time-sums">
        {[...sums].map(([at, ms]) => (
          <li key={at}>
            <i class={`swatch at-${at}`} aria-hidden="true" /> {STATES[at as keyof typeof STATES].word} <b>{durationText(ms)}</b>
          </li>
        ))}
      </ul>
      <a class="aside" href={`/t/${task.id}?tab=why`}>
        {task.time.length === 1 ? 'its only interval' : `all ${task.time.length} intervals`}
      </a>
    </Panel>
  );
}

/** Length of a description, in characters, above which only its beginning is shown at first. */
const LONG_DESCRIPTION = 420;

function Description({ text }: { text: string }) {
  const isWhole = useSignal(text.length <= LONG_DESCRIPTION);
  return (
    <>
      <p class="described">{isWhole.value ? plain(text, 20_000) : `${plain(text.slice(0, LONG_DESCRIPTION - 60).trimEnd(), 1_000)}…`}</p>
      {text.length > LONG_DESCRIPTION && (
        <button type="button" class="plain" onClick={() => (isWhole.value = !isWhole.value)}>
          {isWhole.value ? 'show less' : 'show all'}
        </button>
      )}
    </>
  );
}

/** Two sheets of paper, the sign for copying. */
function CopyIcon() {
  return (
    <svg class="copy-icon" viewBox="0 0 16 16" width="13" height="13" aria-hidden="true">
      <rect x="5.5" y="5.5" width="8" height="8" rx="1.5" fill="none" stroke="currentColor" stroke-width="1.4" />
      <path d="M10.5 3.5v-.5a1 1 0 0 0-1-1h-6.500a1 1 0 0 0-1 1v6.500a1 1 0 0 0 1 1h.5" fill="none" stroke="currentColor" stroke-width="1.4" />
    </svg>
  );
}

function TaskPanel({ task }: { task: TaskPage }) {
  return (
    <Panel title="Task">
      {task.description ? (
        <Description text={task.description} />
      ) : (
        <p class="empty">It has no description.</p>
      )}
      {task.blocked_by.length > 0 && (
        <p>
          <span class="dim">after</span>{' '}
          {task.blocked_by.map((blocker) => (
            <TaskLink key={blocker} id={blocker} />
          ))}
        </p>
      )}
      <a class="aside" href={`/tasks?view=graph&around=${task.id}`}>
        related tasks in the graph
      </a>
    </Panel>
  );
}

/** The drafts of a person, and the comment on the whole change. */
function ReviewPanel({ task }: { task: TaskPage }) {
  const drafts = draftsOf(task.id).value;
  const count = unsentComments(task.id);
  const open = (comment: Parameters<typeof openComment>[0]) => {
    if (queryParam('tab') !== 'change') setQueryParam('tab', 'change', true);
    requestAnimationFrame(() => openComment(comment));
  };
  return (
    <Panel title="Your review" aside={count > 0 ? <span class="aside late">{commentCountText(count)} not sent</span> : <span class="aside">Revise sends it</span>} class="comment">
      <DraftList task={task.id} onOpen={open} />
      <textarea id="comment" rows={2} aria-label="Comment on the whole change" placeholder="Comment on the whole change. For a line, click its number, or press c." value={drafts.words} onInput={(event) => saveDrafts(task.id, { ...draftsOf(task.id).peek(), words: event.currentTarget.value })} />
      {count > 0 && <Discard task={task.id} count={count} />}
    </Panel>
  );
}

/** Discards all drafts after a second press. */
function Discard({ task, count }: { task: string; count: number }) {
  const isSure = useSignal(false);
  return (
    <button type="button" class="do grave" onBlur={() => (isSure.value = false)} onClick={() => (isSure.value ? discardDrafts(task) : (isSure.value = true))}>
      {isSure.value ? `Really discard ${commentCountText(count)}?` : 'Discard'}
    </button>
  );
}

/** Drafts that no action can send any more, because the task has ended. */
function UnsentBanner({ task }: { task: TaskPage }) {
  const count = unsentComments(task.id);
  if (count === 0 || task.actions.some((action) => action.verb === 'revise' || action.verb === 'tell')) return null;
  return (
    <div class="unsent" role="status">
      <b>{commentCountText(count)} not sent.</b>
      <span>
        {task.id} is {task.word} and takes no comments now.
      </span>
      <ActionButton action={followUpAction(task.id, task.subject, task.project)} />
      <Discard task={task.id} count={count} />
      <DraftList task={task.id} onOpen={openComment} />
    </div>
  );
}

/** Keeps the height of the page's header in `--top-height`, for elements that stick below it. */
function useTopHeight(): void {
  useEffect(() => {
    const header = document.querySelector('.top');
    if (!header) return;
    const isSticky = () => getComputedStyle(header).position === 'sticky';
    const observer = new ResizeObserver(() => document.documentElement.style.setProperty('--top-height', isSticky() ? `${Math.round(header.getBoundingClientRect().height)}px` : '0px'));
    observer.observe(header);
    return () => observer.disconnect();
  }, []);
}

function TabContent({ task, tab, attempt }: { task: TaskPage; tab: Tab; attempt: string }) {
  switch (tab) {
    case 'change':
      return <Diff task={task} />;
    case 'log':
      return (
        <>
          <AttemptPicker tries={task.tries} attempt={attempt} />
          {attempt ? <Log key={attempt} attempt={attempt} live={!task.tries.find((entry) => entry.id === attempt)?.ended} /> : <p class="empty">No agent has worked on this task yet.</p>}
        </>
      );
    case 'checks':
      return <Checks task={task} />;
    case 'why':
      return <Why task={task} />;
    case 'result':
      return (
        <>
          <AttemptPicker tries={task.tries} attempt={attempt} />
          {attempt ? <Result key={attempt} attempt={attempt} /> : <p class="empty">No agent has worked on this task yet.</p>}
        </>
      );
  }
}

export function Task({ id }: { id: string }) {
  useTopics(id, 'head', 'inbox');
  useTopHeight();
  useEffect(() => {
    pageKeys.keys = (key) => handleTaskKey(key, id);
    return () => (pageKeys.keys = null);
  }, [id]);
  // The tab without one in the address is chosen once, so that it does not change while a person reads.
  const firstTab = useRef<Tab | null>(null);
  const isSideHidden = useSignal((localStorage.getItem('regatta-task-side') ?? (innerWidth < 1_100 ? 'hidden' : 'shown')) === 'hidden');
  const known = taskTopic(id).known.value;
  void taskTopic(id).changed.value;
  const task = taskTopic(id).get(id);
  if (!task) {
    return (
      <>
        <h1>{id}</h1>
        <Empty known={known}>
          Task {id} does not exist. <a href="/tasks">See all tasks</a>
        </Empty>
      </>
    );
  }
  firstTab.current ??= location.hash === '#why' ? 'why' : defaultTab(task);
  const tab = TABS.find((name) => name === queryParam('tab')) ?? firstTab.current;
  const attempt = queryParam('attempt') || (task.log ?? '');
  const actions = task.actions.map((action) => withDrafts(action, id));
  const requests = groupItems(
    topic('inbox')
      .all()
      .filter((item) => item.task === id && item.kind !== 'review'),
  );
  const toggleSide = () => {
    isSideHidden.value = !isSideHidden.peek();
    localStorage.setItem('regatta-task-side', isSideHidden.peek() ? 'hidden' : 'shown');
  };
  const canSend = task.actions.some((action) => action.verb === 'revise' || action.verb === 'tell');
  const showsReview = canSend && (task.actions.some((action) => action.verb === 'revise') || unsentComments(id) > 0);
  return (
    <div class="task-page">
      <Breadcrumb task={task} />
      <h1 class="task-title">
        <span class="dim">{task.id}</span> <bdi>{plain(task.subject, 300)}</bdi>
      </h1>
      <Facts task={task} />
      {task.warnings && task.warnings.length > 0 && <p class="error">{task.warnings.map((warning) => plain(warning, 300)).join(' · ')}</p>}
      {task.plan && (
        <p>
          This task produced a plan. <a href={`/plan/${task.id}`}>Review, edit and start the plan</a>
        </p>
      )}
      <UnsentBanner task={task} />
      <div class="task-tab-bar">
        <TabBar task={task} tab={tab} hasCards={requests.length > 0} />
        <button type="button" class="plain side-toggle" aria-expanded={!isSideHidden.value} onClick={toggleSide}>
          {isSideHidden.value ? 'Details ▸' : 'Details ▾'}
        </button>
      </div>
      <div class={`task-body ${isSideHidden.value ? 'no-side' : ''}`}>
        <div class="task-main">
          {requests.map((group, index) => (
            <Card key={group.key} group={group} index={index} isOpen />
          ))}
          <TabContent task={task} tab={tab} attempt={attempt} />
        </div>
        {!isSideHidden.value && (
          <div class="task-side">
            {showsReview && <ReviewPanel task={task} />}
            <ReadyPanel task={task} />
            <TaskPanel task={task} />
            <TimePanel task={task} />
          </div>
        )}
      </div>
      <footer class="actions">
        {actions.map((action) => (
          <ActionButton key={action.verb + action.label} action={action} />
        ))}
        {!task.landed && (
          <button type="button" class="do" {...shellHintProps(`regatta takeover ${task.id}`)} onClick={() => takeOver(task.id)}>
            Take over <kbd>T</kbd>
          </button>
        )}
        {actions[0] && (
          <span class="cli">
            same from a shell: <code>{plain(shellHint.value || (actions.find((action) => action.after) ?? actions[0]).cli, 200)}</code>
          </span>
        )}
      </footer>
    </div>
  );
}
