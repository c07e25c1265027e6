import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { draftsOf, keep, withDrafts } from '../drafts';
import { age, clockTime, plain, usd } from '../format';
import { Card, groups } from '../inbox';
import { topic } from '../live/client';
import { get, set } from '../route';
import { read } from '../session';
import { own } from '../keys';
import { add, put } from '../trusted';
import { Age, Do, Empty, Glyph, Mark, Panel, TaskLink, complain, hinted, moment, says, useTopics } from '../ui';
import { type Item, STATES, type TaskPage } from '../views';
import { Diff } from './diff';
import { onTask, takeOver } from './task-keys';

/** Says when something was said, where that is another second than before it. */
function timed(box: Element): void {
  let last = '';
  for (const it of box.children) {
    const wall = Number((it as HTMLElement).dataset.wall ?? 0);
    const said = wall > 0 ? clockTime(wall) : '';
    const place = it.querySelector<HTMLElement>('summary') ?? (it as HTMLElement);
    if (said && said !== last && !place.dataset.time) place.dataset.time = said;
    last = said || last;
  }
}

/** Puts the newest state of every tool call in the place of the group that the log already has of it. */
function joinCalls(box: Element, first: Element | null): void {
  const known = new Map<string, Element>();
  let isNew = false;
  for (const row of [...box.children] as HTMLElement[]) {
    isNew ||= row === first;
    // A program may count its calls anew in every turn.
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

/** What its program said, a piece at a time. It follows until somebody scrolls up. */
function Log({ attempt, live }: { attempt: string; live: boolean }) {
  const place = useRef<HTMLDivElement>(null);
  const more = useSignal(0);
  const silent = useSignal(false);
  const raw = get('log') === 'raw';
  useEffect(() => {
    const box = place.current;
    if (!box) return;
    put(box, '');
    // A group that somebody opened or closed stays so when its call goes on.
    const touch = (event: Event) => {
      const group = (event.target as Element).closest('summary')?.parentElement;
      if (group) group.dataset.touched = 'yes';
    };
    box.addEventListener('click', touch);
    let from = 0;
    let over = false;
    let timer = 0;
    const step = async () => {
      try {
        const text = await read(`/api/v1/page/log/${attempt}?from=${from}${raw ? '&raw=true' : ''}`);
        if (over) return;
        const piece = JSON.parse(text) as { html: string; next: number; more: boolean };
        const below = box.scrollHeight - box.scrollTop - box.clientHeight;
        if (piece.html) {
          const last = box.lastElementChild;
          add(box, piece.html);
          joinCalls(box, last ? last.nextElementSibling : box.firstElementChild);
          timed(box);
          // What is far above is let go of: it can be fetched again.
          while (box.childElementCount > 2_000) box.firstElementChild?.remove();
          if (below < 40) box.scrollTop = box.scrollHeight;
          else more.value += 1;
        }
        from = piece.next;
        silent.value = !piece.more && box.childElementCount === 0;
        if (piece.more) void step();
        else if (live) timer = window.setTimeout(step, 1_000);
      } catch (error) {
        if (!over) add(box, '<div class="say asks">the log cannot be read</div>');
        complain(error);
      }
    };
    void step();
    return () => {
      over = true;
      clearTimeout(timer);
      box.removeEventListener('click', touch);
    };
  }, [attempt, live, raw]);
  const follow = () => place.current && (place.current.scrollTop = place.current.scrollHeight);
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
          <button type="button" class="plain" aria-pressed={raw} onClick={() => set('log', raw ? null : 'raw')}>
            raw <kbd>w</kbd>
          </button>
        </span>
      }
    >
      <div class="say-box" ref={place} tabIndex={0} role="log" aria-label={`Log of ${attempt}`} onScroll={(event) => event.currentTarget.scrollHeight - event.currentTarget.scrollTop - event.currentTarget.clientHeight < 40 && (more.value = 0)} />
      {silent.value && <p class="empty">{live ? 'It has said nothing yet.' : 'It said nothing.'}</p>}
      {more.value > 0 && (
        <button type="button" class="plain" onClick={follow}>
          {more.value} new ↓ <kbd>f</kbd>
        </button>
      )}
    </Panel>
  );
}

/** What took no time worth naming still took some. */
const took = (ms: number) => (ms < 1_000 ? '<1s' : age(ms));

function Time({ it }: { it: TaskPage }) {
  const now = moment();
  const first = it.time[0]?.from ?? now;
  const last = it.time.reduce((most, bar) => Math.max(most, bar.to ?? now), first + 1);
  const scale = 300 / (last - first);
  return (
    <Panel title="Where the time went" aside={<span class="aside">{age(last - first)}</span>}>
      <svg class="time" viewBox="0 0 300 18" preserveAspectRatio="none" height={18} role="img" aria-label={it.time.map((bar) => `${age((bar.to ?? now) - bar.from)} ${STATES[bar.at].word}`).join(', ')}>
        {it.time.map((bar) => (
          <rect key={bar.from} class={`at-${bar.at}`} x={(bar.from - first) * scale} width={Math.max(1, ((bar.to ?? now) - bar.from) * scale - 0.7)} y={0} height={18} rx={1.5}>
            <title>{plain(bar.text ?? '', 200)}</title>
          </rect>
        ))}
      </svg>
      <ul class="spans">
        {it.time.map((bar) => (
          <li key={bar.from}>
            <b>{took((bar.to ?? now) - bar.from)}</b> <Glyph at={bar.at} /> {plain(bar.text || STATES[bar.at].word, 160)}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

/** What was collected, and words about the whole. */
function Collected({ it }: { it: TaskPage }) {
  const made = draftsOf(it.id).value;
  return (
    <Panel title="Your comments" aside={<span class="aside">drafts until Revise</span>} class="comment">
      <ul class="spans">
        {made.comments.map((one) => (
          <li key={`${one.path}:${one.line}`}>
            <code>
              {plain(one.path, 120)}:{one.line}
            </code>{' '}
            {plain(one.text, 160) || '…'}
          </li>
        ))}
      </ul>
      <textarea id="comment" rows={2} aria-label="Words about the whole change" placeholder="About the whole change. For a line, click its number, or press c." value={made.words} onInput={(event) => keep(it.id, { ...draftsOf(it.id).peek(), words: event.currentTarget.value })} />
    </Panel>
  );
}

export function Task({ id }: { id: string }) {
  useTopics(id, 'head', 'inbox');
  useEffect(() => {
    own.keys = (key) => onTask(key, id);
    return () => (own.keys = null);
  }, [id]);
  const known = topic(id).known.value;
  void topic(id).changed.value;
  const it = topic(id).one<TaskPage>(id);
  const there = it !== undefined;
  useEffect(() => {
    if (there && location.hash === '#why') document.getElementById('why')?.scrollIntoView({ block: 'center' });
  }, [id, there]);
  if (!it) {
    return (
      <>
        <h1>{id}</h1>
        <Empty known={known}>
          There is no task {id}. <a href="/tasks">See all tasks</a>
        </Empty>
      </>
    );
  }
  const models = it.wanted || it.running ? ` (${it.running && it.running !== it.wanted ? `wanted ${it.wanted || 'any'}, got ${it.running}` : it.wanted || it.running})` : '';
  const attempt = get('attempt') || it.log;
  const actions = it.actions.map((one) => withDrafts(one, id));
  const asked = groups(
    topic('inbox')
      .all<Item>()
      .filter((one) => one.task === id && one.kind !== 'review'),
  );
  const log = attempt && <Log key={attempt} attempt={attempt} live={!it.tries.find((one) => one.id === attempt)?.ended} />;
  return (
    <>
      <h1 class="crumbs">
        <a href="/">Now</a> / <b>{it.id}</b> <bdi>{plain(it.subject, 200)}</bdi> <Mark at={it.at} />
        <span class="aside">
          {it.agent ? ` · ${it.agent}${plain(models, 120)}` : ''} · <code>{it.branch}</code>
          {it.spent?.usage.micro_usd === undefined ? '' : ` · ${usd(it.spent.usage.micro_usd)}`}
          {it.live ? ` · ${it.live}` : ''}
        </span>
      </h1>
      {it.warnings && it.warnings.length > 0 && <p class="error">{it.warnings.map((one) => plain(one, 300)).join(' · ')}</p>}
      {it.plan && (
        <p>
          What it reports is a plan: <a href={`/plan/${it.id}`}>see it, change it, start it</a>
        </p>
      )}
      <div class="task">
        <div class="main">
          {asked.map((one, nth) => (
            <Card key={one.key} group={one} nth={nth} open />
          ))}
          <Diff it={it} />
          {!it.submission && log}
        </div>
        <div class="side">
          <Panel title="Ready to land?">
            <ul class="checks">
              {it.checklist.map((one) => (
                <li key={one.text} class={one.good === true ? 'good' : one.good === false ? 'bad' : ''}>
                  {one.good === true ? '✓' : one.good === false ? '✕' : '…'} {plain(one.text, 200)}
                </li>
              ))}
            </ul>
          </Panel>
          <Panel title="Why" id="why" aside={<code class="aside">regatta why {it.id}</code>}>
            {it.waits.length === 0 ? (
              <p class="empty">{asked.length > 0 ? 'It waits for your answer.' : `${STATES[it.at].word}: it waits for nothing.`}</p>
            ) : (
              <ul class="spans">
                {it.waits.map((one) => (
                  <li key={one.text}>
                    <b>{one.kind}</b> {plain(one.text, 300)}
                  </li>
                ))}
              </ul>
            )}
            <p>
              {it.blocked_by.length > 0 && (
                <>
                  comes after{' '}
                  {it.blocked_by.map((one) => (
                    <TaskLink key={one} id={one} />
                  ))}{' '}
                </>
              )}
              <a href={`/tasks?view=graph&around=${it.id}`}>what is around it</a>
            </p>
          </Panel>
          <Time it={it} />
          {it.submission && log}
          {it.tries.length > 1 && (
            <Panel title={`${it.tries.length} attempts`}>
              <ul class="spans">
                {it.tries.map((one) => (
                  <li key={one.id}>
                    <button type="button" class="plain" onClick={() => set('attempt', one.id, true)}>
                      {one.id}
                    </button>{' '}
                    {one.agent} {one.ended ? plain(one.ended.detail || one.ended.cause, 160) : 'at work'} <Age since={one.started_wall} />
                  </li>
                ))}
              </ul>
            </Panel>
          )}
          {it.submission && !it.landed && <Collected it={it} />}
        </div>
      </div>
      <footer class="actions">
        {actions.map((action) => (
          <Do key={action.verb + action.label} action={action} />
        ))}
        {!it.landed && (
          <button type="button" class="do" {...says(`regatta takeover ${it.id}`)} onClick={() => takeOver(it.id)}>
            Take over <kbd>T</kbd>
          </button>
        )}
        {actions[0] && (
          <span class="cli">
            same from a shell: <code>{plain(hinted.value || (actions.find((one) => one.after) ?? actions[0]).cli, 200)}</code>
          </span>
        )}
      </footer>
    </>
  );
}
