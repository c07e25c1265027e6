// A mission as it stood at any moment: a slider over its history, and two missions side by side.

import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { age, clockTime, plain, usd } from '../format';
import { topic } from '../live/client';
import { get, set } from '../route';
import { call } from '../session';
import { Glyph, Panel, Table, TaskLink, useTopics } from '../ui';
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
      <Table heads={['Task', 'Subject', 'Agent', 'State then', 'Why']}>
        {it.tasks.slice(0, 300).map((row) => (
          <tr key={row.id}>
            <td>
              <TaskLink id={row.id} />
            </td>
            <td class="subject">{plain(row.subject, 160)}</td>
            <td>{row.agent ?? ''}</td>
            <td>
              <Glyph at={row.at} /> {STATES[row.at].word}
            </td>
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
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

export function Replay() {
  useTopics('head');
  void topic('head').changed.value;
  const missions = topic('head').one<Head>('head')?.missions ?? [];
  const id = get('mission') || missions[0]?.id || '';
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
            {missions.length > 1 &&
              missions.map((one) => (
                <button key={one.id} type="button" class="chip" aria-pressed={one.id === id} onClick={() => (set('at', null), set('mission', one.id, true))}>
                  {one.id}
                </button>
              ))}
            <code>
              regatta replay {id || 'M1'}
              {asked ? ` --at ${asked}` : ''}
            </code>
          </span>
        }
      >
        {problem.value && <p class="error">{problem.value}</p>}
        {!id && <p class="empty">No mission runs. One that is over is shown by its number: /replay?mission=M1</p>}
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
            <Board it={it} />
          </>
        )}
      </Panel>
      {ids.length > 1 && <Compared ids={ids} />}
    </>
  );
}
