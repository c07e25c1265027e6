// One task: its change, log, wait reasons, times and actions.

import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { draftsOf, saveDrafts, withDrafts } from '../drafts';
import { age, clockTime, plain, usd } from '../format';
import { Card, groupItems } from '../inbox';
import { taskTopic, topic } from '../live/client';
import { queryParam, setQueryParam } from '../route';
import { fetchText } from '../session';
import { pageKeys } from '../keys';
import { appendHtml, setHtml } from '../trusted';
import { ActionButton, Age, Empty, Glyph, Mark, Panel, TaskLink, daemonNow, reportError, shellHint, shellHintProps, useTopics } from '../ui';
import type { TaskPage, TranscriptPieceView } from '../api';
import { STATES } from '../states';
import { Diff } from './diff';
import { handleTaskKey, takeOver } from './task-keys';

/** Adds the time to log entries. An entry with the same second as the one before gets none. */
function stampTimes(box: Element): void {
  let last = '';
  for (const entry of box.children) {
    const wall = Number((entry as HTMLElement).dataset.wall ?? 0);
    const time = wall > 0 ? clockTime(wall) : '';
    const target = entry.querySelector<HTMLElement>('summary') ?? (entry as HTMLElement);
    if (time && time !== last && !target.dataset.time) target.dataset.time = time;
    last = time || last;
  }
}

/** Replaces the entry of a tool call by its newest state. */
function joinCalls(box: Element, first: Element | null): void {
  const known = new Map<string, Element>();
  let isNew = false;
  for (const row of [...box.children] as HTMLElement[]) {
    isNew ||= row === first;
    // A program may reuse the ids of calls in every turn.
    if (row.dataset.turn !== undefined) known.clear();
    const call = row.dataset.tool;
    if (call === undefined) continue;
    const before = known.get(call) as HTMLElement | undefined;
    if (!before || !isNew) {
      known.set(call, row);
      continue;
    }
    row.dataset.wall = before.dataset.wall;
    if (before instanceof HTMLDetailsElement && row instanceof HTMLDetailsElement && before.dataset.touched) {
      row.open = before.open;
      row.dataset.touched = before.dataset.touched;
    }
    before.replaceWith(row);
    known.set(call, row);
  }
}

/** The output of an attempt's program, fetched in pieces. It scrolls to the end until a person scrolls up. */
function Log({ attempt, live }: { attempt: string; live: boolean }) {
  const logBox = useRef<HTMLDivElement>(null);
  const unseenCount = useSignal(0);
  const isSilent = useSignal(false);
  const raw = queryParam('log') === 'raw';
  useEffect(() => {
    const box = logBox.current;
    if (!box) return;
    setHtml(box, '');
    // An entry that a person opened or closed stays so when its call continues.
    const touch = (event: Event) => {
      const group = (event.target as Element).closest('summary')?.parentElement;
      if (group) group.dataset.touched = 'yes';
    };
    box.addEventListener('click', touch);
    let from = 0;
    let cancelled = false;
    let timer = 0;
    const step = async () => {
      try {
        const text = await fetchText(`/api/v1/page/log/${attempt}?from=${from}${raw ? '&raw=true' : ''}`);
        if (cancelled) return;
        const piece = JSON.parse(text) as TranscriptPieceView;
        const below = box.scrollHeight - box.scrollTop - box.clientHeight;
        if (piece.html) {
          const last = box.lastElementChild;
          appendHtml(box, piece.html);
          joinCalls(box, last ? last.nextElementSibling : box.firstElementChild);
          stampTimes(box);
          // Drop entries far above to limit memory. They can be fetched again.
          while (box.childElementCount > 2_000) box.firstElementChild?.remove();
          if (below < 40) box.scrollTop = box.scrollHeight;
          else unseenCount.value += 1;
        }
        from = piece.next;
        isSilent.value = !piece.more && box.childElementCount === 0;
        if (piece.more) void step();
        else if (live) timer = window.setTimeout(step, 1_000);
      } catch (error) {
        if (!cancelled) appendHtml(box, '<div class="say asks">could not load the log</div>');
        reportError(error);
      }
    };
    void step();
    return () => {
      cancelled = true;
      clearTimeout(timer);
      box.removeEventListener('click', touch);
    };
  }, [attempt, live, raw]);
  const follow = () => logBox.current && (logBox.current.scrollTop = logBox.current.scrollHeight);
  return (
    <Panel
      class="log"
      title="Log"
      aside={
        <span class="aside">
          {attempt} ·{' '}
          <button type="button" class="plain" onClick={follow}>
            follow <kbd>f</kbd>
          </button>{' '}
          <button type="button" class="plain" aria-pressed={raw} onClick={() => setQueryParam('log', raw ? null : 'raw')}>
            raw <kbd>w</kbd>
          </button>
        </span>
      }
    >
      <div class="say-box" ref={logBox} tabIndex={0} role="log" aria-label={`Log of ${attempt}`} onScroll={(event) => event.currentTarget.scrollHeight - event.currentTarget.scrollTop - event.currentTarget.clientHeight < 40 && (unseenCount.value = 0)} />
      {isSilent.value && <p class="empty">{live ? 'No output yet.' : 'No output.'}</p>}
      {unseenCount.value > 0 && (
        <button type="button" class="plain" onClick={follow}>
          {unseenCount.value} new ↓ <kbd>f</kbd>
        </button>
      )}
    </Panel>
  );
}

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
