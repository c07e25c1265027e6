// A mission as it stood at any moment: a slider over its history, and two missions side by side.

import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { age, clockTime, plain, usd } from '../format';
import { byName, topic } from '../live/client';
import { get, go, set } from '../route';
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
const doing = (it: string | { waiting: string }) => (typeof it === 'string' ? it : `waiting: ${it.waiting.replace(/_/g, ' ')}`);

/** The rows that two missions have together, in the order of the longest. */
export function timeRows(all: Pick<Figures, 'time'>[]): [string, (nth: number) => string][] {
  const most = new Map<string, number>();
  for (const { time } of all) for (const it of time) most.set(doing(it.doing), Math.max(most.get(doing(it.doing)) ?? 0, it.ms));
  const of = (name: string) => (nth: number) => {
    const found = all[nth]?.time.find((it) => doing(it.doing) === name);
    return found ? `${age(found.ms)}, ${found.times} time${found.times === 1 ? '' : 's'}` : '–';
  };
  return [...most].sort((a, b) => b[1] - a[1]).map(([name]) => [name, of(name)]);
}

/** The mark at a revision, or the last one before it. */
export function markAt(marks: { revision: number }[], at: number): number {
  let found = -1;
  marks.forEach((it, nth) => {
    if (it.revision <= at) found = nth;
  });
  return found;
}

function Board({ it }: { it: Replayed }) {
  const counts = new Map<string, number>();
  for (const row of it.tasks) counts.set(row.word, (counts.get(row.word) ?? 0) + 1);
  return (
    <>
      <p>{[...counts].map(([word, many]) => `${many} ${word}`).join(' · ') || 'no task yet'}</p>
      <Table heads={['State then', 'Task', 'Subject', 'Agent', 'Why']} class="tasks">
        {it.tasks.slice(0, 300).map((row) => (
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
      {it.queue.length > 0 && <p>In line to land then: {it.queue.map((one) => `${one.task} ${one.state}`).join(' · ')}</p>}
    </>
  );
}

function Compared({ ids }: { ids: string[] }) {
  const found = useSignal<Figures[] | null>(null);
  const problem = useSignal('');
  useEffect(() => {
    problem.value = '';
    call<Figures[]>('mission.compare', { ids }).then(
      (it) => (found.value = it),
      (error: Error) => (problem.value = error.message),
    );
  }, [ids.join()]);
  const rows: [string, (it: Figures) => string][] = [
    ['State', (it) => (it.running ? '▶ runs' : '✓ over')],
    ['Took', (it) => age(it.wall_ms)],
    ['Landed', (it) => `${it.landed} of ${it.tasks}`],
    ['Failed', (it) => String(it.failed)],
    ['Agents', (it) => String(it.agents)],
    ['Retries', (it) => String(it.retries)],
    ['Conflicts', (it) => String(it.conflicts)],
    ['Mended', (it) => String(it.fixups)],
    ['All attempts together', (it) => age(it.work_ms)],
    ['Cost', (it) => (it.spent.usage.micro_usd === undefined ? 'no price reported' : usd(it.spent.usage.micro_usd))],
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
                {found.value.map((it) => (
                  <th key={it.mission}>
                    {it.mission} {plain(it.title, 60)}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map(([name, of]) => (
                <tr key={name}>
                  <th scope="row">{name}</th>
                  {found.value?.map((it) => (
                    <td key={it.mission}>{of(it)}</td>
                  ))}
                </tr>
              ))}
              {timeRows(found.value).map(([name, of]) => (
                <tr key={name}>
                  <th scope="row">tasks {name}</th>
                  {found.value?.map((it, nth) => (
                    <td key={it.mission}>{of(nth)}</td>
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
function known(): string[] {
  const running = topic('head').one<Head>('head')?.missions.map((it) => it.id) ?? [];
  const of = topic('tasks').all<Row>().flatMap((it) => it.mission ?? []);
  return [...new Set([...running, ...of])].sort(byName).reverse();
}

/** Another mission, by its number. */
function Pick({ words, taken, onPick }: { words: string; taken: string; onPick: (id: string) => void }) {
  return (
    <select aria-label={words} value="" onChange={(it) => it.currentTarget.value && onPick(it.currentTarget.value)}>
      <option value="">{words}</option>
      {known()
        .filter((it) => it !== taken)
        .map((it) => (
          <option key={it} value={it}>
            {it}
          </option>
        ))}
    </select>
  );
}

/** What happened, each a way to that moment. */
function Marks({ it, nth }: { it: Replayed; nth: number }) {
  const place = useRef<HTMLOListElement>(null);
  useEffect(() => {
    const [box, row] = [place.current, place.current?.children[nth] as HTMLElement | undefined];
    if (box && row) box.scrollTop = row.offsetTop - box.clientHeight / 2;
  }, [nth]);
  return (
    <ol class="marks" ref={place} aria-label="What happened">
      {it.marks.map((one, at) => (
        <li key={one.revision}>
          <button type="button" class="plain" aria-current={at === nth ? 'step' : undefined} onClick={() => set('at', String(one.revision))}>
            {clockTime(one.wall)} {plain(one.text, 120)}
          </button>
        </li>
      ))}
    </ol>
  );
}

export function Replay() {
  useTopics('head', 'tasks');
  void topic('head').changed.value;
  const id = get('mission') || known()[0] || '';
  const asked = Number(get('at')) || null;
  const found = useSignal<Replayed | null>(null);
  const problem = useSignal('');
  useEffect(() => {
    if (!id) return;
    let over = false;
    // A slider that is dragged asks for where it rests.
    const timer = setTimeout(() => {
      call<Replayed>('mission.replay', { id, at: asked }).then(
        (it) => {
          if (!over) [found.value, problem.value] = [it, ''];
        },
        (error: Error) => !over && (problem.value = error.message),
      );
    }, 80);
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [id, asked]);
  const it = found.value;
  const at = asked ?? it?.at ?? 0;
  const nth = it ? markAt(it.marks, at) : -1;
  const step = (by: number) => {
    const next = it?.marks[Math.max(0, Math.min(it.marks.length - 1, nth + by))];
    if (next) set('at', String(next.revision));
  };
  const ids = get('compare').split(',').filter(Boolean);
  return (
    <>
      <Panel
        title={it ? `${it.mission} ${plain(it.title, 120)}` : 'Replay'}
        aside={
          <span class="aside row">
            {known().length > 1 && (
              <>
                <Pick words="another mission" taken={id} onPick={(it) => go(`/replay?mission=${it}`)} />
                <Pick words="compare with" taken={id} onPick={(it) => set('compare', `${id},${it}`, true)} />
              </>
            )}
            <code>
              regatta replay {id || 'M1'}
              {asked ? ` --at ${asked}` : ''}
            </code>
          </span>
        }
      >
        {problem.value && <p class="error">{problem.value}</p>}
        {!id && <Empty known={topic('tasks').known.value}>No mission has run of late. An older one is shown by its number: /replay?mission=M1, or regatta replay M1</Empty>}
        {it && (
          <>
            <div class="row slider">
              <button type="button" class="do" onClick={() => step(-1)} disabled={nth <= 0}>
                ← before
              </button>
              <input type="range" aria-label="Moment" aria-valuetext={`revision ${at}, ${clockTime(it.wall)}`} min={it.first} max={it.last} value={at} onInput={(event) => set('at', event.currentTarget.value)} />
              <button type="button" class="do" onClick={() => step(1)} disabled={nth >= it.marks.length - 1}>
                after →
              </button>
              <button type="button" class="do" onClick={() => set('at', null)} disabled={!asked}>
                now
              </button>
            </div>
            <p>
              <b>{clockTime(it.wall)}</b> revision {it.at} of {it.last}: {plain(it.marks[nth]?.text ?? it.event, 200)}
            </p>
            <div class="replayed">
              <div>
                <Board it={it} />
              </div>
              <Marks it={it} nth={nth} />
            </div>
          </>
        )}
      </Panel>
      {ids.length > 1 && <Compared ids={ids} />}
    </>
  );
}
