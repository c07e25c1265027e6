import { type Signal, signal, useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { age, plain, usd } from '../format';
import { Card, groups } from '../inbox';
import { topic } from '../live/client';
import { get, set } from '../route';
import { Refused, call, read } from '../session';
import { add, put } from '../trusted';
import { Age, Do, Empty, Mark, Panel, TaskLink, clock, complain, toast, useTopics } from '../ui';
import { type Item, STATES, type TaskPage } from '../views';

interface FileLine {
  path: string;
  was: string | null;
  note: string;
  added: number;
  removed: number;
  outside: boolean;
  closed: boolean;
}

interface Listed {
  base: string;
  commit: string;
  files: FileLine[];
}

// Comments are drafts until Revise, and outlive the tab.
const drafts = new Map<string, Signal<string>>();

function draftOf(task: string): Signal<string> {
  let it = drafts.get(task);
  if (!it) drafts.set(task, (it = signal(localStorage.getItem(`regatta-draft-${task}`) ?? '')));
  return it;
}

function keepDraft(task: string, text: string): void {
  draftOf(task).value = text;
  if (text) localStorage.setItem(`regatta-draft-${task}`, text);
  else localStorage.removeItem(`regatta-draft-${task}`);
}

/** Which line a click on a line's number means: the new one, or the old one where it is gone. */
export function lineOf(target: Element): string | null {
  const cell = target.closest('.diff td');
  const row = cell?.parentElement;
  if (!cell || !row || row.classList.contains('hunk')) return null;
  const number = cell.textContent?.trim() ?? '';
  if (!/^\d+$/.test(number) || cell === row.lastElementChild) return null;
  const cells = [...row.children].map((it) => it.textContent?.trim() ?? '');
  const split = row.closest('.split') !== null;
  return (split ? cells[2] || cells[0] : cells[1] || cells[0]) || null;
}

/** One file of the change, drawn by the daemon when somebody looks at it. */
function FileDiff({ task, nth, file, split }: { task: string; nth: number; file: FileLine; split: boolean }) {
  const place = useRef<HTMLDivElement>(null);
  const box = useRef<HTMLDetailsElement>(null);
  const failed = useSignal('');
  const comment = (event: MouseEvent) => {
    const line = lineOf(event.target as Element);
    if (!line) return;
    const before = draftOf(task).peek();
    keepDraft(task, `${before}${before ? '\n' : ''}${file.path}:${line}: `);
    document.getElementById('comment')?.focus();
  };
  useEffect(() => {
    const details = box.current;
    if (!details) return;
    let loaded = false;
    const load = async () => {
      if (loaded || !details.open) return;
      loaded = true;
      try {
        const html = await read(`/api/v1/page/diff/${task}/${nth}${split ? '?split=true' : ''}`);
        if (place.current) {
          put(place.current, html);
          place.current.style.minHeight = '';
        }
      } catch (error) {
        loaded = false;
        failed.value = error instanceof Refused ? error.problem.message : String(error);
      }
    };
    // Only what is looked at is fetched.
    const seen = new IntersectionObserver((entries) => entries.some((it) => it.isIntersecting) && void load(), { rootMargin: '300px' });
    seen.observe(details);
    details.addEventListener('toggle', load);
    return () => {
      seen.disconnect();
      details.removeEventListener('toggle', load);
    };
  }, [task, nth, split]);
  return (
    <details ref={box} class="file" open={!file.closed} data-file={nth}>
      <summary>
        <b class="mono">{plain(file.path, 300)}</b> {file.was && <span>from {plain(file.was, 300)}</span>} <span class="plus">+{file.added}</span> <span class="minus">−{file.removed}</span> {file.note}
        {file.outside && <b class="bad"> outside its manifest</b>}
        {file.closed && <span class="aside"> large or made by a program: closed</span>}
      </summary>
      <div ref={place} class="lines" onClick={comment} style={{ minHeight: `${Math.min(20_000, file.added + file.removed + 3) * 19}px` }} tabIndex={0} role="region" aria-label={`Changes in ${file.path}`}>
        {failed.value}
      </div>
    </details>
  );
}

function Diff({ it }: { it: TaskPage }) {
  const listed = useSignal<Listed | null>(null);
  const problem = useSignal('');
  const split = get('diff') === 'split';
  const commit = it.submission?.commit ?? '';
  useEffect(() => {
    listed.value = null;
    problem.value = '';
    if (!commit) return;
    read(`/api/v1/page/diff/${it.id}`).then(
      (text) => (listed.value = JSON.parse(text) as Listed),
      (error) => (problem.value = error instanceof Refused ? `${error.problem.message}. ${error.problem.hint}` : String(error)),
    );
  }, [it.id, commit]);
  const files = listed.value?.files ?? [];
  const sum = (of: (file: FileLine) => number) => files.reduce((all, file) => all + of(file), 0);
  const outside = files.filter((file) => file.outside).length;
  const aside = commit ? (
    <span class="aside">
      +{sum((file) => file.added)} −{sum((file) => file.removed)} · against {listed.value?.base.slice(0, 7) ?? ''} · {outside === 0 ? `scope clean: ${files.length} of ${files.length} are in the manifest` : `${outside} outside the manifest`} ·{' '}
      <button type="button" class="plain" aria-pressed={split} onClick={() => set('diff', split ? null : 'split')}>
        {split ? 'unified' : 'split'} <kbd>u</kbd>
      </button>{' '}
      <kbd>n</kbd> <kbd>p</kbd> file
    </span>
  ) : undefined;
  return (
    <Panel class="diffs" title={commit ? `${files.length} file${files.length === 1 ? '' : 's'}` : 'Change'} aside={aside}>
      {problem.value && <p class="error">{problem.value}</p>}
      {!commit && (
        <div class="brief">
          <p class="empty">Nothing is finished yet. {plain(it.progress, 300)}</p>
          {it.description && <pre class="what">{plain(it.description, 4_000)}</pre>}
          {it.files.length > 0 && (
            <p>
              It may touch: <code>{it.files.map((one) => plain(one, 200)).join(' ')}</code>
            </p>
          )}
        </div>
      )}
      {files.map((file, nth) => (
        <FileDiff key={`${file.path}${split}`} task={it.id} nth={nth} file={file} split={split} />
      ))}
    </Panel>
  );
}

/** What its program said, a piece at a time. It follows until somebody scrolls up. */
function Log({ attempt, live }: { attempt: string; live: boolean }) {
  const place = useRef<HTMLDivElement>(null);
  const more = useSignal(0);
  const raw = get('log') === 'raw';
  useEffect(() => {
    const box = place.current;
    if (!box) return;
    put(box, '');
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
          add(box, piece.html);
          // What is far above is let go of: it can be fetched again.
          while (box.childElementCount > 2_000) box.firstElementChild?.remove();
          if (below < 40) box.scrollTop = box.scrollHeight;
          else more.value += 1;
        }
        from = piece.next;
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
    };
  }, [attempt, live, raw]);
  return (
    <Panel
      class="log"
      title="Log"
      aside={
        <span class="aside">
          {attempt} ·{' '}
          <button type="button" class="plain" aria-pressed={raw} onClick={() => set('log', raw ? null : 'raw')}>
            raw <kbd>w</kbd>
          </button>
        </span>
      }
    >
      <div class="say-box" ref={place} tabIndex={0} role="log" aria-label={`Log of ${attempt}`} onScroll={(event) => event.currentTarget.scrollHeight - event.currentTarget.scrollTop - event.currentTarget.clientHeight < 40 && (more.value = 0)} />
      {more.value > 0 && (
        <button type="button" class="plain" onClick={() => place.current && (place.current.scrollTop = place.current.scrollHeight)}>
          {more.value} new ↓ <kbd>f</kbd>
        </button>
      )}
    </Panel>
  );
}

function Time({ it }: { it: TaskPage }) {
  const now = clock.value;
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
            <b>{age((bar.to ?? now) - bar.from)}</b> {STATES[bar.at].glyph} {plain(bar.text || STATES[bar.at].word, 160)}
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Comment({ it }: { it: TaskPage }) {
  const draft = draftOf(it.id);
  const keep = (text: string) => keepDraft(it.id, text);
  const send = async () => {
    try {
      await call('revise', { id: it.id, text: draft.peek().trim() });
      keep('');
      toast(true, `${it.id} goes back to be worked on`, `regatta revise ${it.id} …`);
    } catch (error) {
      complain(error);
    }
  };
  return (
    <div class="comment">
      <textarea id="comment" rows={3} aria-label="Comments for Revise" placeholder="Click a line’s number, or write: src/api/limit.rs:41: use a token bucket. A draft until you press Revise." value={draft.value} onInput={(event) => keep(event.currentTarget.value)} />
      <button type="button" class="do" disabled={!draft.value.trim()} onClick={send} title={`regatta revise ${it.id} …`}>
        Revise with {draft.value.trim() ? `${draft.value.trim().split('\n').length} line${draft.value.trim().includes('\n') ? 's' : ''}` : 'a comment'}
      </button>
    </div>
  );
}

export function Task({ id }: { id: string }) {
  useTopics(id, 'head', 'inbox');
  const known = topic(id).known.value;
  void topic(id).changed.value;
  const it = topic(id).one<TaskPage>(id);
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
          {it.agent ? ` · ${it.agent}${plain(models, 120)}` : ''} · <code>{it.branch}</code> · {usd(it.spent?.usage.micro_usd)}
          {it.live ? ` · ${it.live}` : ''}
        </span>
      </h1>
      {it.warnings && it.warnings.length > 0 && <p class="error">{it.warnings.map((one) => plain(one, 300)).join(' · ')}</p>}
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
          <Panel title="Why" aside={<code class="aside">regatta why {it.id}</code>}>
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
            {it.blocked_by.length > 0 && (
              <p>
                needs{' '}
                {it.blocked_by.map((one) => (
                  <TaskLink key={one} id={one} />
                ))}
              </p>
            )}
          </Panel>
          <Time it={it} />
          {it.submission && log}
          {it.tries.length > 1 && (
            <Panel title={`${it.tries.length} attempts`}>
              <ul class="spans">
                {it.tries.map((one) => (
                  <li key={one.id}>
                    <button type="button" class="plain" onClick={() => set('attempt', one.id)}>
                      {one.id}
                    </button>{' '}
                    {one.agent} {one.ended ? plain(one.ended.detail || one.ended.cause, 160) : 'at work'} <Age since={one.started_wall} />
                  </li>
                ))}
              </ul>
            </Panel>
          )}
          {it.submission && !it.landed && <Comment it={it} />}
        </div>
      </div>
      <footer class="actions">
        {it.actions.map((action) => (
          <Do key={action.label} action={action} />
        ))}
        <span class="cli">
          take over in a terminal: <code>regatta takeover {it.id}</code>
          {it.actions[0] && (
            <>
              {' '}
              · same from a shell: <code>{plain(it.actions[0].cli, 120)}</code>
            </>
          )}
        </span>
      </footer>
    </>
  );
}
