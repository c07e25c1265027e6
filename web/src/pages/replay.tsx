// The state of a mission at any point of its history, with a slider. Also a comparison of two missions.

import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { age, clockTime, plain, usd } from '../format';
import { byName, topic } from '../live/client';
import { navigate, queryParam, setQueryParam } from '../route';
import { call } from '../session';
import { Empty, Panel, Table, TaskLink, useTopics } from '../ui';
import type { Activity, MissionFiguresView, ReplayView } from '../api';
import { STATES } from '../states';

/** Returns an activity as text: `working`, `checking`, `waiting: review`. */
const activityText = (activity: Activity) => (typeof activity === 'string' ? activity : `waiting: ${activity.waiting.replace(/_/g, ' ')}`);

/** Returns one row per activity of any mission, longest first, with a function for the cell of each mission. */
export function timeRows(all: Pick<MissionFiguresView, 'time'>[]): [string, (index: number) => string][] {
  const longest = new Map<string, number>();
  for (const { time } of all) for (const span of time) longest.set(activityText(span.doing), Math.max(longest.get(activityText(span.doing)) ?? 0, span.ms));
  const cellOf = (name: string) => (index: number) => {
    const found = all[index]?.time.find((span) => activityText(span.doing) === name);
    return found ? `${age(found.ms)}, ${found.times} time${found.times === 1 ? '' : 's'}` : '–';
  };
  return [...longest].sort((a, b) => b[1] - a[1]).map(([name]) => [name, cellOf(name)]);
}

/** Returns the index of the mark at a revision, or of the last mark before it. */
export function markAt(marks: { revision: number }[], at: number): number {
  let found = -1;
  marks.forEach((mark, index) => {
    if (mark.revision <= at) found = index;
  });
  return found;
}

function ReplayBoard({ replay }: { replay: ReplayView }) {
  const counts = new Map<string, number>();
  for (const row of replay.tasks) counts.set(row.word, (counts.get(row.word) ?? 0) + 1);
  return (
    <>
      <p>{[...counts].map(([state, count]) => `${count} ${state}`).join(' · ') || 'no tasks yet'}</p>
      <Table heads={['State', 'Task', 'Subject', 'Agent', 'Why']} class="tasks">
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
      {replay.queue.length > 0 && <p>Merge queue: {replay.queue.map((landing) => `${landing.task} ${landing.state}`).join(' · ')}</p>}
    </>
  );
}

function Comparison({ ids }: { ids: string[] }) {
  const found = useSignal<MissionFiguresView[] | null>(null);
  const problem = useSignal('');
  useEffect(() => {
    problem.value = '';
    call('mission.compare', { ids }).then(
      (all) => (found.value = all),
      (error: Error) => (problem.value = error.message),
    );
  }, [ids.join()]);
  const rows: [string, (figures: MissionFiguresView) => string][] = [
    ['State', (figures) => (figures.running ? '▶ running' : '✓ finished')],
    ['Duration', (figures) => age(figures.wall_ms)],
    ['Landed', (figures) => `${figures.landed} of ${figures.tasks}`],
    ['Failed', (figures) => String(figures.failed)],
    ['Agents', (figures) => String(figures.agents)],
    ['Retries', (figures) => String(figures.retries)],
    ['Conflicts', (figures) => String(figures.conflicts)],
    ['Fix-ups', (figures) => String(figures.fixups)],
    ['Total attempt time', (figures) => age(figures.work_ms)],
    ['Cost', (figures) => (figures.spent.usage.micro_usd === undefined ? 'no price reported' : usd(figures.spent.usage.micro_usd))],
  ];
  return (
    <Panel title="Comparison" aside={<code class="aside">regatta compare {ids.join(' ')}</code>}>
      {problem.value && <p class="error">{problem.value}</p>}
      {!found.value && !problem.value && <p class="empty">loading…</p>}
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

/** Returns the running missions and the missions of all listed tasks, newest first. */
function knownMissions(): string[] {
  const running = topic('head').get('head')?.missions.map((mission) => mission.id) ?? [];
  const listed = topic('tasks').all().flatMap((row) => row.mission ?? []);
  return [...new Set([...running, ...listed])].sort(byName).reverse();
}

/** A select for another mission. */
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

/** The events of a mission. A click shows the mission at that event. */
function Marks({ replay, index }: { replay: ReplayView; index: number }) {
  const list = useRef<HTMLOListElement>(null);
  useEffect(() => {
    const [box, row] = [list.current, list.current?.children[index] as HTMLElement | undefined];
    if (box && row) box.scrollTop = row.offsetTop - box.clientHeight / 2;
  }, [index]);
  return (
    <ol class="marks" ref={list} aria-label="Events">
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
  const found = useSignal<ReplayView | null>(null);
  const problem = useSignal('');
  useEffect(() => {
    if (!id) return;
    let cancelled = false;
    // Wait until the slider rests before sending a request.
    const timer = setTimeout(() => {
      call('mission.replay', { id, at: requested }).then(
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
        {!id && <Empty known={topic('tasks').known.value}>No recent missions. To replay an older one, open /replay?mission=M1 or run: regatta replay M1</Empty>}
        {replay && (
          <>
            <div class="row slider">
              <button type="button" class="do" onClick={() => step(-1)} disabled={index <= 0}>
                ← previous
              </button>
              <input type="range" aria-label="Revision" aria-valuetext={`revision ${at}, ${clockTime(replay.wall)}`} min={replay.first} max={replay.last} value={at} onInput={(event) => setQueryParam('at', event.currentTarget.value)} />
              <button type="button" class="do" onClick={() => step(1)} disabled={index >= replay.marks.length - 1}>
                next →
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
