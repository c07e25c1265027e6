// One task: its change, log, wait reasons, times and actions.

import { useEffect } from 'preact/hooks';
import { draftsOf, saveDrafts, withDrafts } from '../drafts';
import { age, plain, usd } from '../format';
import { Card, groupItems } from '../inbox';
import { taskTopic, topic } from '../live/client';
import { queryParam, setQueryParam } from '../route';
import { pageKeys } from '../keys';
import { ActionButton, Age, Empty, Glyph, Mark, Panel, TaskLink, daemonNow, shellHint, shellHintProps, useTopics } from '../ui';
import type { TaskPage } from '../api';
import { STATES } from '../states';
import { Diff } from './diff';
import { Log } from './log';
import { handleTaskKey, takeOver } from './task-keys';

/** Formats a duration. Anything shorter than a second is `<1s`, not `0s`. */
const durationText = (ms: number) => (ms < 1_000 ? '<1s' : age(ms));

function TimePanel({ task }: { task: TaskPage }) {
  const now = daemonNow();
  const first = task.time[0]?.from ?? now;
  const last = task.time.reduce((latest, bar) => Math.max(latest, bar.to ?? now), first + 1);
  const scale = 300 / (last - first);
  return (
    <Panel title="Time spent" aside={<span class="aside">{age(last - first)}</span>}>
      <svg class="time" viewBox="0 0 300 18" preserveAspectRatio="none" height={18} role="img" aria-label={task.time.map((bar) => `${age((bar.to ?? now) - bar.from)} ${STATES[bar.at].word}`).join(', ')}>
        {task.time.map((bar) => (
          <rect key={bar.from} class={`at-${bar.at}`} x={(bar.from - first) * scale} width={Math.max(1, ((bar.to ?? now) - bar.from) * scale - 0.7)} y={0} height={18} rx={1.5}>
            <title>{plain(bar.text ?? '', 200)}</title>
          </rect>
        ))}
      </svg>
      <ul class="spans">
        {task.time.map((bar) => (
          <li key={bar.from}>
            <b>{durationText((bar.to ?? now) - bar.from)}</b> <Glyph at={bar.at} /> {plain(bar.text || STATES[bar.at].word, 160)}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

/** All draft comments, and the comment on the whole change. */
function DraftPanel({ task }: { task: TaskPage }) {
  const drafts = draftsOf(task.id).value;
  return (
    <Panel title="Your comments" aside={<span class="aside">drafts; Revise sends them</span>} class="comment">
      <ul class="spans">
        {drafts.comments.map((comment) => (
          <li key={`${comment.path}:${comment.line}`}>
            <code>
              {plain(comment.path, 120)}:{comment.line}
            </code>{' '}
            {plain(comment.text, 160) || '…'}
          </li>
        ))}
      </ul>
      <textarea id="comment" rows={2} aria-label="Comment on the whole change" placeholder="Comment on the whole change. To comment on a line, click its number or press c." value={drafts.words} onInput={(event) => saveDrafts(task.id, { ...draftsOf(task.id).peek(), words: event.currentTarget.value })} />
    </Panel>
  );
}

/** Returns the model that runs, and the wanted model if it is another one. */
function modelText(task: TaskPage): string {
  if (task.running && task.running !== task.wanted) return `wanted ${task.wanted || 'any'}, got ${task.running}`;
  return task.wanted || task.running;
}

export function Task({ id }: { id: string }) {
  useTopics(id, 'head', 'inbox');
  useEffect(() => {
    pageKeys.keys = (key) => handleTaskKey(key, id);
    return () => (pageKeys.keys = null);
  }, [id]);
  const known = taskTopic(id).known.value;
  void taskTopic(id).changed.value;
  const task = taskTopic(id).get(id);
  const isKnown = task !== undefined;
  useEffect(() => {
    if (isKnown && location.hash === '#why') document.getElementById('why')?.scrollIntoView({ block: 'center' });
  }, [id, isKnown]);
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
  const models = modelText(task);
  const attempt = queryParam('attempt') || task.log;
  const actions = task.actions.map((action) => withDrafts(action, id));
  const requests = groupItems(
    topic('inbox')
      .all()
      .filter((item) => item.task === id && item.kind !== 'review'),
  );
  const log = attempt && <Log key={attempt} attempt={attempt} live={!task.tries.find((entry) => entry.id === attempt)?.ended} />;
  return (
    <>
      <h1 class="crumbs">
        <a href="/">Now</a> / <b>{task.id}</b> <bdi>{plain(task.subject, 200)}</bdi> <Mark at={task.at} />
        <span class="aside">
          {task.agent ? ` · ${task.agent}${models && plain(` (${models})`, 120)}` : ''} · <code>{task.branch}</code>
          {task.spent?.usage.micro_usd === undefined ? '' : ` · ${usd(task.spent.usage.micro_usd)}`}
          {task.live ? ` · ${task.live}` : ''}
        </span>
      </h1>
      {task.warnings && task.warnings.length > 0 && <p class="error">{task.warnings.map((warning) => plain(warning, 300)).join(' · ')}</p>}
      {task.plan && (
        <p>
          This task produced a plan. <a href={`/plan/${task.id}`}>Review, edit and start the plan</a>
        </p>
      )}
      <div class="task">
        <div class="main">
          {requests.map((group, index) => (
            <Card key={group.key} group={group} index={index} isOpen />
          ))}
          <Diff task={task} />
          {!task.submission && log}
        </div>
        <div class="side">
          <Panel title="Ready to land?">
            <ul class="checks">
              {task.checklist.map((check) => (
                <li key={check.text} class={check.good === true ? 'good' : check.good === false ? 'bad' : ''}>
                  {check.good === true ? '✓' : check.good === false ? '✕' : '…'} {plain(check.text, 200)}
                </li>
              ))}
            </ul>
          </Panel>
          <Panel title="Why" id="why" aside={<code class="aside">regatta why {task.id}</code>}>
            {task.waits.length === 0 ? (
              <p class="empty">{requests.length > 0 ? 'Waiting for your answer.' : `${STATES[task.at].word}; not waiting for anything.`}</p>
            ) : (
              <ul class="spans">
                {task.waits.map((reason) => (
                  <li key={reason.text}>
                    <b>{reason.kind}</b> {plain(reason.text, 300)}
                  </li>
                ))}
              </ul>
            )}
            <p>
              {task.blocked_by.length > 0 && (
                <>
                  blockers:{' '}
                  {task.blocked_by.map((blocker) => (
                    <TaskLink key={blocker} id={blocker} />
                  ))}{' '}
                </>
              )}
              <a href={`/tasks?view=graph&around=${task.id}`}>show related tasks</a>
            </p>
          </Panel>
          <TimePanel task={task} />
          {task.submission && log}
          {task.tries.length > 1 && (
            <Panel title={`${task.tries.length} attempts`}>
              <ul class="spans">
                {task.tries.map((entry) => (
                  <li key={entry.id}>
                    <button type="button" class="plain" onClick={() => setQueryParam('attempt', entry.id, true)}>
                      {entry.id}
                    </button>{' '}
                    {entry.agent} {entry.ended ? plain(entry.ended.detail || entry.ended.cause, 160) : 'running'} <Age since={entry.started_wall} />
                  </li>
                ))}
              </ul>
            </Panel>
          )}
          {task.submission && !task.landed && <DraftPanel task={task} />}
        </div>
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
    </>
  );
}
