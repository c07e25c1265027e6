// Missions side by side: their figures, and how each differs from the first.

import './replay.css';
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { age, plain, usd } from '../format';
import { topic } from '../live/client';
import { MissionSelect } from '../plots/mission-select';
import { route, setQueryParam } from '../route';
import { call } from '../session';
import { Mark, Panel, useTopics } from '../ui';
import type { Activity, MissionFiguresView, WaitKind } from '../api';

/** The maximum number of missions that the daemon compares at once. */
const MAX_COMPARED = 8;

/** What a task waits for, in words. */
const WAITS: Record<WaitKind, string> = {
  dep: 'other tasks',
  claim: 'files of others',
  slot: 'a free agent',
  machine: 'room on the machine',
  gate: 'a start condition',
  wave: 'the wave before',
  lane: 'its lane',
  rate_limit: 'a rate limit',
  budget: 'a budget',
  policy: 'a policy',
  review: 'a review',
  question: 'an answer',
  permission: 'a permission',
  queue: 'its landing',
  conflict: 'a conflict',
  provider: 'its provider',
  runner: 'a runner',
  backoff: 'its next attempt',
  offer: 'an offer',
  lead: 'the lead',
  disk: 'disk space',
  paused: 'a person to resume',
};

/** Returns an activity as text: `working`, `checking`, `waiting for a review`. */
const activityText = (activity: Activity) => (typeof activity === 'string' ? activity : `waiting for ${WAITS[activity.waiting]}`);

export interface FigureRow {
  name: string;
  /** Returns the value of a mission, or null if it is not known. */
  value: (figures: MissionFiguresView) => number | null;
  text: (value: number) => string;
  /** Whether a higher or a lower value is better. A row without it is not judged. */
  better?: 'higher' | 'lower';
  /** Whether the value of a running mission can also become smaller. */
  isRatio?: boolean;
  /** The reason why a value is not known. */
  unknown?: string;
}

const count = (value: number) => String(value);

export const FIGURES: FigureRow[] = [
  { name: 'Duration', value: (figures) => figures.wall_ms, text: age, better: 'lower' },
  { name: 'Tasks', value: (figures) => figures.tasks, text: count },
  { name: 'Landed', value: (figures) => figures.landed, text: count },
  { name: 'Landed share', value: (figures) => (figures.tasks > 0 ? Math.round((figures.landed / figures.tasks) * 100) : null), text: (value) => `${value} %`, better: 'higher', isRatio: true, unknown: 'no task yet' },
  { name: 'Failed', value: (figures) => figures.failed, text: count, better: 'lower' },
  { name: 'Agents', value: (figures) => figures.agents, text: count },
  { name: 'Retries', value: (figures) => figures.retries, text: count, better: 'lower' },
  { name: 'Conflicts', value: (figures) => figures.conflicts, text: count, better: 'lower' },
  { name: 'Fix-ups', value: (figures) => figures.fixups, text: count, better: 'lower' },
  { name: 'Time of all attempts', value: (figures) => figures.work_ms, text: age, better: 'lower' },
  { name: 'Cost', value: (figures) => figures.spent.usage.micro_usd ?? null, text: usd, better: 'lower', unknown: 'no price reported' },
  { name: 'Cost per landed task', value: (figures) => (figures.landed > 0 && figures.spent.usage.micro_usd !== undefined ? figures.spent.usage.micro_usd / figures.landed : null), text: usd, better: 'lower', isRatio: true, unknown: 'not known yet' },
];

/** Returns one row per activity of any mission, longest first. A mission whose activities were measured, but which never
 * did this one, has the value 0. */
export function timeRows(all: Pick<MissionFiguresView, 'time'>[]): FigureRow[] {
  const longest = new Map<string, number>();
  for (const { time } of all) for (const span of time) longest.set(activityText(span.doing), Math.max(longest.get(activityText(span.doing)) ?? 0, span.ms));
  return [...longest]
    .sort((a, b) => b[1] - a[1])
    .map(([name]) => ({
      name: `tasks ${name}`,
      value: ({ time }) => (time.length === 0 ? null : (time.find((span) => activityText(span.doing) === name)?.ms ?? 0)),
      text: (ms: number) => (ms === 0 ? 'none' : age(ms)),
      better: name === 'working' || name === 'checking' ? undefined : 'lower',
      unknown: 'not measured',
    }));
}

/** Returns whether two values can be judged. The figures of a running mission still grow, so a smaller value of it says
 * nothing, but a larger one will stay larger. */
export function canJudge(row: FigureRow, value: { of: number; running: boolean }, base: { of: number; running: boolean }): boolean {
  if (!value.running && !base.running) return true;
  if (row.isRatio || (value.running && base.running)) return false;
  return value.running ? value.of > base.of : base.of > value.of;
}

/** Returns how a value differs from the first mission's, and whether that is better or worse. */
export function difference(row: FigureRow, value: number | null, base: number | null): { text: string; judgement: 'better' | 'worse' | '' } | null {
  if (value === null || base === null || value === base || row.text(value) === row.text(base)) return null;
  const sign = value > base ? '+' : '−';
  const percent = base === 0 || row.text(1).includes('%') ? '' : ` (${sign}${Math.round((Math.abs(value - base) / base) * 100)} %)`;
  return { text: `${sign}${row.text(Math.abs(value - base))}${percent}`, judgement: row.better ? ((value > base) === (row.better === 'higher') ? 'better' : 'worse') : '' };
}

function Cell({ row, all, index }: { row: FigureRow; all: MissionFiguresView[]; index: number }) {
  const [base, figures] = [all[0], all[index]];
  if (!base || !figures) return <td />;
  const value = row.value(figures);
  const values = all.map(row.value).filter((known) => known !== null);
  const width = value === null || values.length === 0 ? 0 : (value / Math.max(1, ...values)) * 100;
  const baseValue = row.value(base);
  const change = index > 0 ? difference(row, value, baseValue) : null;
  const isJudged = value !== null && baseValue !== null && canJudge(row, { of: value, running: figures.running }, { of: baseValue, running: base.running });
  return (
    <td>
      {value === null ? (
        <span class="dim">{figures.running && row.unknown === 'not known yet' ? 'none landed yet' : (row.unknown ?? 'unknown')}</span>
      ) : (
        <>
          <span class="figure-value">{row.text(value)}</span>
          {figures.running && (row.name === 'Duration' || row.name === 'Cost') && <span class="dim"> so far</span>}
          {change && <span class={`change ${isJudged ? change.judgement : ''}`}>{change.text}</span>}
          <i class="figure-bar" aria-hidden="true">
            <i style={{ width: `${width}%` }} />
          </i>
        </>
      )}
    </td>
  );
}

/** The comparison of missions. The first one is the base. The others are in the address. */
export function Compare({ ids }: { ids: string[] }) {
  const shown = [...new Set(ids)].slice(0, MAX_COMPARED);
  const found = useSignal<MissionFiguresView[] | null>(null);
  const problem = useSignal('');
  /** The last request that was answered. A change in the meantime makes another one. */
  const answered = useSignal('');
  useTopics('missions');
  // A running mission has other figures after each of its changes.
  const version = topic('missions')
    .all()
    .filter((mission) => shown.includes(mission.id))
    .map((mission) => `${mission.id} ${mission.text} ${mission.spend}`)
    .join();
  const requested = useRef('');
  useEffect(() => {
    // The figures of a large mission take a while. Until they are there, the page shows the ones before, and asks only
    // once at a time.
    const request = `${shown.join()} ${version}`;
    if (requested.current || answered.peek() === request) return;
    requested.current = request;
    const end = (message: string) => {
      requested.current = '';
      problem.value = message;
      answered.value = request;
    };
    call('mission.compare', { ids: shown }).then(
      (all) => {
        found.value = all;
        end('');
      },
      (error: Error) => end(error.message),
    );
  }, [shown.join(), version, answered.value]);
  const isTab = route.value.path.startsWith('/m/');
  const set = (next: string[]) => (isTab ? setQueryParam('with', next.slice(1).join(','), true) : setQueryParam('compare', next.join(','), true));
  const known = found.value?.filter((figures) => shown.includes(figures.mission)) ?? [];
  const all = known.length > 0 ? known : null;
  return (
    <Panel
      title="Compare"
      class="compare"
      aside={
        <>
          {shown.length < MAX_COMPARED && <MissionSelect label="add a mission" exclude={shown} onPick={(mission) => set([...shown, mission])} />}
          <code class="aside">regatta compare {shown.join(' ')}</code>
        </>
      }
    >
      {problem.value && <p class="error">{problem.value}</p>}
      {!all && !problem.value && <p class="empty">loading…</p>}
      {all && all.length < shown.length && !problem.value && <p class="empty">loading {shown.filter((id) => !all.some((figures) => figures.mission === id)).join(', ')}…</p>}
      {shown.length === 1 && <p class="empty">Add a mission to see how it differs from {shown[0]}.</p>}
      {all && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Figures of the missions">
          <table class="list compared">
            <thead>
              <tr>
                <th>
                  <span class="sr">Figure</span>
                </th>
                {all.map((figures, index) => (
                  <th key={figures.mission} scope="col">
                    <a href={`/m/${figures.mission}`}>
                      <b>{figures.mission}</b> <bdi>{plain(figures.title, 60)}</bdi>
                    </a>
                    <span class="row">
                      <Mark at={figures.running ? 'working' : 'landed'} word={figures.running ? 'running, so far' : 'ended'} />
                      {index === 0 ? (
                        <span class="dim">base</span>
                      ) : (
                        <button type="button" class="plain" onClick={() => set(shown.filter((id) => id !== figures.mission))} aria-label={`Remove ${figures.mission}`}>
                          remove
                        </button>
                      )}
                    </span>
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {[...FIGURES, ...timeRows(all)].map((row) => (
                <tr key={row.name}>
                  <th scope="row">{row.name}</th>
                  {all.map((figures, index) => (
                    <Cell key={figures.mission} row={row} all={all} index={index} />
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
          {all.length > 1 && (
            <p class="dim compare-legend">
              Compared with {all[0]?.mission}: <span class="change better">better</span> <span class="change worse">worse</span> <span class="change">different</span>{all.some((figures) => figures.running) && ' · the figures of a running mission still grow, so smaller ones are not judged' }
            </p>
          )}
        </div>
      )}
    </Panel>
  );
}
