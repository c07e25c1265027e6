// A mission as it stood at any moment: a slider over its history, and two missions side by side.

import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { age, clockTime, plain, usd } from '../format';
import { byName, topic } from '../live/client';
import { queryParam, navigate, setQueryParam } from '../route';
import { call } from '../session';
import { Empty, Panel, Table, TaskLink, useTopics } from '../ui';
import { type Head, type Landing, type Row, STATES, type Spend } from '../views';

interface Replayed {
  mission: string;
  title: string;
  first: number;
  last: number;
  at: number;
  wall: number;
  event: string;
  tasks: Row[];
  queue: Landing[];
  marks: { revision: number; wall: number; text: string }[];
}

interface Figures {
  mission: string;
  title: string;
  running: boolean;
  agents: number;
  tasks: number;
  landed: number;
  failed: number;
  retries: number;
  fixups: number;
  conflicts: number;
  wall_ms: number;
  work_ms: number;
  spent: Spend;
  /** Where the time of its tasks went, longest first. */
  time: { doing: string | { waiting: string }; times: number; ms: number }[];
}

/** `working`, `checking`, `waiting: review`. */
const activityText = (activity: string | { waiting: string }) => (typeof activity === 'string' ? activity : `waiting: ${activity.waiting.replace(/_/g, ' ')}`);

/** The rows that two missions have together, in the order of the longest. */
export function timeRows(all: Pick<Figures, 'time'>[]): [string, (index: number) => string][] {
  const longest = new Map<string, number>();
  for (const { time } of all) for (const span of time) longest.set(activityText(span.doing), Math.max(longest.get(activityText(span.doing)) ?? 0, span.ms));
  const cellOf = (name: string) => (index: number) => {
    const found = all[index]?.time.find((span) => activityText(span.doing) === name);
    return found ? `${age(found.ms)}, ${found.times} time${found.times === 1 ? '' : 's'}` : '–';
  };
  return [...longest].sort((a, b) => b[1] - a[1]).map(([name]) => [name, cellOf(name)]);
}

/** The mark at a revision, or the last one before it. */
export function markAt(marks: { revision: number }[], at: number): number {
  let found = -1;
  marks.forEach((mark, index) => {
    if (mark.revision <= at) found = index;
  });
  return found;
}

function ReplayBoard({ replay }: { replay: Replayed }) {
  const counts = new Map<string, number>();
  for (const row of replay.tasks) counts.set(row.word, (counts.get(row.word) ?? 0) + 1);
  return (
    <>
      <p>{[...counts].map(([word, count]) => `${count} ${word}`).join(' · ') || 'no task yet'}</p>
      <Table heads={['State then', 'Task', 'Subject', 'Agent', 'Why']} class="tasks">
        {replay.tasks.slice(0, 300).map((row) => (
          <tr key={row.id} data-row tabIndex={0}>
            <td class={`mark at-${row.at}`}>
              <i aria-hidden="true">{STATES[row.at].glyph}</i> {STATES[row.at].word}
            </td>
            <td>
              <TaskLink id={row.id} />
            </td>
            <td class="subject">{plain(row.subject, 160)}</td>
            <td>{row.agent ?? ''}</td>
            <td class="dim">{plain(row.text, 140)}</td>
          </tr>
        ))}
      </Table>
      {replay.queue.length > 0 && <p>In line to land then: {replay.queue.map((landing) => `${landing.task} ${landing.state}`).join(' · ')}</p>}
    </>
  );
}

function Comparison({ ids }: { ids: string[] }) {
  const found = useSignal<Figures[] | null>(null);
  const problem = useSignal('');
  useEffect(() => {
    problem.value = '';
    call<Figures[]>('mission.compare', { ids }).then(
      (all) => (found.value = all),
      (error: Error) => (problem.value = error.message),
    );
  }, [ids.join()]);
  const rows: [string, (figures: Figures) => string][] = [
    ['State', (figures) => (figures.running ? '▶ runs' : '✓ over')],
    ['Took', (figures) => age(figures.wall_ms)],
    ['Landed', (figures) => `${figures.landed} of ${figures.tasks}`],
    ['Failed', (figures) => String(figures.failed)],
    ['Agents', (figures) => String(figures.agents)],
    ['Retries', (figures) => String(figures.retries)],
    ['Conflicts', (figures) => String(figures.conflicts)],
    ['Mended', (figures) => String(figures.fixups)],
    ['All attempts together', (figures) => age(figures.work_ms)],
    ['Cost', (figures) => (figures.spent.usage.micro_usd === undefined ? 'no price reported' : usd(figures.spent.usage.micro_usd))],
  ];
  return (
    <Panel title="Side by side" aside={<code class="aside">regatta compare {ids.join(' ')}</code>}>
      {problem.value && <p class="error">{problem.value}</p>}
      {!found.value && !problem.value && <p class="empty">asking the daemon…</p>}
      {found.value && (
        <div class="scroll">
          <table class="list">
            <thead>
              <tr>
                <th>
                  <span class="sr">Figure</span>
                </th>
                {found.value.map((figures) => (
                  <th key={figures.mission}>
                    {figures.mission} {plain(figures.title, 60)}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map(([name, cellOf]) => (
                <tr key={name}>
                  <th scope="row">{name}</th>
                  {found.value?.map((figures) => (
                    <td key={figures.mission}>{cellOf(figures)}</td>
                  ))}
                </tr>
              ))}
              {timeRows(found.value).map(([name, cellOf]) => (
                <tr key={name}>
                  <th scope="row">tasks {name}</th>
                  {found.value?.map((figures, index) => (
                    <td key={figures.mission}>{cellOf(index)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

/** Missions that run, and those of tasks that are still shown. */
function knownMissions(): string[] {
  const running = topic('head').one<Head>('head')?.missions.map((mission) => mission.id) ?? [];
  const listed = topic('tasks').all<Row>().flatMap((row) => row.mission ?? []);
  return [...new Set([...running, ...listed])].sort(byName).reverse();
}

/** Another mission, by its number. */
function MissionSelect({ label, exclude, onPick }: { label: string; exclude: string; onPick: (id: string) => void }) {
  return (
    <select aria-label={label} value="" onChange={(event) => event.currentTarget.value && onPick(event.currentTarget.value)}>
      <option value="">{label}</option>
      {knownMissions()
        .filter((id) => id !== exclude)
        .map((id) => (
          <option key={id} value={id}>
            {id}
          </option>
        ))}
    </select>
  );
}

/** What happened, each a way to that moment. */
function Marks({ replay, index }: { replay: Replayed; index: number }) {
  const list = useRef<HTMLOListElement>(null);
  useEffect(() => {
    const [box, row] = [list.current, list.current?.children[index] as HTMLElement | undefined];
    if (box && row) box.scrollTop = row.offsetTop - box.clientHeight / 2;
  }, [index]);
  return (
    <ol class="marks" ref={list} aria-label="What happened">
      {replay.marks.map((mark, at) => (
        <li key={mark.revision}>
          <button type="button" class="plain" aria-current={at === index ? 'step' : undefined} onClick={() => setQueryParam('at', String(mark.revision))}>
            {clockTime(mark.wall)} {plain(mark.text, 120)}
          </button>
        </li>
      ))}
    </ol>
  );
}

export function Replay() {
  useTopics('head', 'tasks');
  void topic('head').changed.value;
  const id = queryParam('mission') || knownMissions()[0] || '';
  const requested = Number(queryParam('at')) || null;
  const found = useSignal<Replayed | null>(null);
  const problem = useSignal('');
  useEffect(() => {
    if (!id) return;
    let cancelled = false;
    // A slider that is dragged asks for where it rests.
    const timer = setTimeout(() => {
      call<Replayed>('mission.replay', { id, at: requested }).then(
        (replay) => {
          if (!cancelled) [found.value, problem.value] = [replay, ''];
        },
        (error: Error) => !cancelled && (problem.value = error.message),
      );
    }, 80);
    return () => {
      cancelled = true;
      clearTimeout(timer);
    };
  }, [id, requested]);
  const replay = found.value;
  const at = requested ?? replay?.at ?? 0;
  const index = replay ? markAt(replay.marks, at) : -1;
  const step = (by: number) => {
    const next = replay?.marks[Math.max(0, Math.min(replay.marks.length - 1, index + by))];
    if (next) setQueryParam('at', String(next.revision));
  };
  const ids = queryParam('compare').split(',').filter(Boolean);
  return (
    <>
      <Panel
        title={replay ? `${replay.mission} ${plain(replay.title, 120)}` : 'Replay'}
        aside={
          <span class="aside row">
            {knownMissions().length > 1 && (
              <>
                <MissionSelect label="another mission" exclude={id} onPick={(mission) => navigate(`/replay?mission=${mission}`)} />
                <MissionSelect label="compare with" exclude={id} onPick={(mission) => setQueryParam('compare', `${id},${mission}`, true)} />
              </>
            )}
            <code>
              regatta replay {id || 'M1'}
              {requested ? ` --at ${requested}` : ''}
            </code>
          </span>
        }
      >
        {problem.value && <p class="error">{problem.value}</p>}
        {!id && <Empty known={topic('tasks').known.value}>No mission has run of late. An older one is shown by its number: /replay?mission=M1, or regatta replay M1</Empty>}
        {replay && (
          <>
            <div class="row slider">
              <button type="button" class="do" onClick={() => step(-1)} disabled={index <= 0}>
                ← before
              </button>
              <input type="range" aria-label="Moment" aria-valuetext={`revision ${at}, ${clockTime(replay.wall)}`} min={replay.first} max={replay.last} value={at} onInput={(event) => setQueryParam('at', event.currentTarget.value)} />
              <button type="button" class="do" onClick={() => step(1)} disabled={index >= replay.marks.length - 1}>
                after →
              </button>
              <button type="button" class="do" onClick={() => setQueryParam('at', null)} disabled={!requested}>
                now
              </button>
            </div>
            <p>
              <b>{clockTime(replay.wall)}</b> revision {replay.at} of {replay.last}: {plain(replay.marks[index]?.text ?? replay.event, 200)}
            </p>
            <div class="replayed">
              <div>
                <ReplayBoard replay={replay} />
              </div>
              <Marks replay={replay} index={index} />
            </div>
          </>
        )}
      </Panel>
      {ids.length > 1 && <Comparison ids={ids} />}
    </>
  );
}
