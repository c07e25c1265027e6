// The tabs of a task's page that are lists: the checks of its work, why it waits, and what its agent was told.

import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { age, clockTime, plain } from '../format';
import { RequestError, call, fetchText } from '../session';
import { setHtml } from '../trusted';
import { Glyph, Panel, TaskLink, daemonNow } from '../ui';
import type { AttemptChecksView, AttemptResultView, CheckRunView, LaneBar, TaskPage, WaitKind, WhyView } from '../api';
import { STATES } from '../states';

/** Formats the duration of a check: `320 ms`, `4.2 s`, `2m`. */
export function checkDuration(ms: number): string {
  if (ms < 1_000) return `${ms} ms`;
  return ms < 60_000 ? `${(ms / 1_000).toFixed(1)} s` : age(ms);
}

const problemText = (error: unknown) => (error instanceof RequestError ? `${error.problem.message}. ${error.problem.hint}` : String(error));

/** HTML that the server made of untrusted text. */
function Markup({ html, class: name }: { html: string; class: string }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (box.current) setHtml(box.current, html);
  }, [html]);
  return <div ref={box} class={name} />;
}

/** The names of the checks that Regatta itself makes. */
const CHECK_NAMES: Record<string, string> = { files_exist: 'Required files exist', content_check: 'Required contents are there' };

function CheckRow({ run }: { run: CheckRunView }) {
  const mark = run.passed === null ? '–' : run.passed ? '✓' : '✕';
  const heading = (
    <>
      <i class={run.passed === null ? 'dim' : run.passed ? 'good' : 'bad'} aria-hidden="true">
        {mark}
      </i>
      <span class="sr">{run.passed === null ? 'did not run: ' : run.passed ? 'passed: ' : 'failed: '}</span>
      {CHECK_NAMES[run.check] ?? <code>{plain(run.check, 300)}</code>}
      <span class="check-end dim">
        {plain(run.text, 200)}
        {run.ms > 0 && ` · ${checkDuration(run.ms)}`}
      </span>
    </>
  );
  if (!run.html) return <li class="check plain-check">{heading}</li>;
  return (
    <li class="check">
      <details open={run.passed === false}>
        <summary>{heading}</summary>
        {run.first_error && (
          <p class="first-error">
            <b>First error</b> <code>{plain(run.first_error, 600)}</code>
          </p>
        )}
        <Markup class="output" html={run.html} />
      </details>
    </li>
  );
}

export function Checks({ task }: { task: TaskPage }) {
  const found = useSignal<AttemptChecksView[] | null>(null);
  const problem = useSignal('');
  // The results change when an attempt ends.
  const version = task.tries.map((entry) => `${entry.id}${entry.phase}${entry.ended?.wall ?? ''}`).join();
  useEffect(() => {
    let isCurrent = true;
    fetchText(`/api/v1/page/task/${task.id}/checks`).then(
      (text) => {
        if (isCurrent) found.value = JSON.parse(text) as AttemptChecksView[];
      },
      (error) => {
        if (isCurrent) problem.value = problemText(error);
      },
    );
    return () => {
      isCurrent = false;
    };
  }, [task.id, version]);
  if (problem.value) return <p class="error">{problem.value}</p>;
  if (!found.value) return <p class="empty">loading…</p>;
  const withChecks = found.value.filter((attempt) => attempt.checks.length > 0);
  if (withChecks.length === 0) {
    return (
      <Panel title="Checks">
        <p class="empty">{task.check_count === 0 ? 'Work on this task has to pass no checks. Set them in regatta.toml under [validation].' : `No checks have run yet. ${task.check_count} will run when an attempt has finished its work.`}</p>
      </Panel>
    );
  }
  return (
    <>
      {withChecks.map((attempt, index) => {
        const failed = attempt.checks.filter((run) => run.passed === false).length;
        const passed = attempt.checks.filter((run) => run.passed === true).length;
        const total = attempt.checks.reduce((sum, run) => sum + run.ms, 0);
        return (
          <Panel
            key={attempt.attempt}
            title={
              <>
                <span class={failed > 0 ? 'bad' : 'good'}>{failed > 0 ? `✕ ${failed} failed` : `✓ all ${passed} passed`}</span>
                {failed > 0 && passed > 0 && <span class="dim"> · {passed} passed</span>}
              </>
            }
            aside={
              <span class="aside">
                {attempt.attempt} · {plain(attempt.agent, 40)} · {clockTime(attempt.started_wall, false)} · {checkDuration(total)}
                {index === 0 ? ' · latest' : ''}
              </span>
            }
          >
            <ul class="check-list">
              {attempt.checks.map((run) => (
                <CheckRow key={run.check} run={run} />
              ))}
            </ul>
          </Panel>
        );
      })}
    </>
  );
}

/** What a task waits for, in a word for people. */
const WAIT_WORDS: Record<WaitKind, string> = { dep: 'blocker', claim: 'files', slot: 'agent', machine: 'machine', gate: 'start check', wave: 'wave', lane: 'lane', rate_limit: 'provider limit', budget: 'budget', policy: 'rule', review: 'review', question: 'question', permission: 'permission', queue: 'landing queue', conflict: 'conflict', provider: 'agent', runner: 'agent', backoff: 'delay', offer: 'offer', lead: 'lead', disk: 'disk', paused: 'paused' };

/** One interval of a task's life, the newest first. */
function Interval({ bar }: { bar: LaneBar }) {
  const length = (bar.to ?? daemonNow()) - bar.from;
  return (
    <tr>
      <td class="mono dim">{clockTime(bar.from)}</td>
      <td class="right">
        <b>{length < 1_000 ? '<1s' : age(length)}</b>
      </td>
      <td class="who">
        <Glyph at={bar.at} /> {STATES[bar.at].word}
      </td>
      <td>
        {plain(bar.text ?? '', 400)}
        {!bar.to && <span class="badge">now</span>}
      </td>
    </tr>
  );
}

export function Why({ task }: { task: TaskPage }) {
  const found = useSignal<WhyView | null>(null);
  const problem = useSignal('');
  const version = `${task.at} ${task.waits.map((reason) => reason.text).join()} ${task.time.length}`;
  useEffect(() => {
    let isCurrent = true;
    call('why', { id: task.id }).then(
      (answer) => {
        if (isCurrent && 'past' in answer) found.value = answer;
      },
      (error) => {
        if (isCurrent) problem.value = problemText(error);
      },
    );
    return () => {
      isCurrent = false;
    };
  }, [task.id, version]);
  const [now, ...next] = task.waits;
  const commands = found.value?.commands ?? [];
  const clear = found.value?.clear ?? [];
  const past = found.value?.past ?? [];
  return (
    <>
      <Panel title="Now" id="why" aside={<code class="aside">regatta why {task.id}</code>}>
        <p class="why-now">
          <Glyph at={task.at} /> <b>{task.word}</b>
          {now ? (
            <>
              {' '}
              {WAIT_WORDS[now.kind] !== task.word && <span class="badge">{WAIT_WORDS[now.kind]}</span>} {plain(now.text, 600)}
            </>
          ) : (
            <span> {task.live && task.live !== task.word ? plain(task.live, 300) : task.landed ? 'Its work is on the trunk.' : task.at === 'working' ? '' : 'It does not wait for anything.'}</span>
          )}
        </p>
        {commands.length > 0 && (
          <ul class="spans">
            {commands.map((command) => (
              <li key={command}>
                runs <code>{plain(command, 300)}</code>
              </li>
            ))}
          </ul>
        )}
        {task.reason && !now?.text.startsWith(task.reason) && <p class="dim">{plain(task.reason, 600)}</p>}
        {problem.value && <p class="error">{problem.value}</p>}
      </Panel>
      {(next.length > 0 || clear.length > 0 || task.blocked_by.length > 0) && (
        <Panel title="Next">
          <ul class="why-list">
            {next.map((reason) => (
              <li key={reason.text}>
                <i aria-hidden="true">○</i> <span class="badge">{WAIT_WORDS[reason.kind]}</span> {plain(reason.text, 400)}
              </li>
            ))}
            {clear.map((reason) => (
              <li key={reason.text} class="good">
                <i aria-hidden="true">✓</i> <span class="badge">{WAIT_WORDS[reason.kind]}</span> {plain(reason.text, 400)}
              </li>
            ))}
          </ul>
          {task.blocked_by.length > 0 && (
            <p class="dim">
              It starts after{' '}
              {task.blocked_by.map((blocker) => (
                <TaskLink key={blocker} id={blocker} />
              ))}
            </p>
          )}
        </Panel>
      )}
      {past.length > 0 && (
        <Panel title="Attempts">
          <ul class="why-list">
            {past.map((entry) => (
              <li key={`${entry.attempt}${entry.wall}`}>
                <span class="mono dim">{clockTime(entry.wall)}</span> {!entry.text.startsWith(entry.attempt) && <b>{entry.attempt} </b>}
                {plain(entry.text, 600)} {entry.failed_check && <a href={`/t/${task.id}?tab=checks`}>see its checks</a>}
              </li>
            ))}
          </ul>
        </Panel>
      )}
      <Panel title="History" aside={<span class="aside">newest first; neighbours shorter than a second are joined</span>}>
        <div class="scroll" tabIndex={0} role="region" aria-label="History of the task">
          <table class="list intervals">
            <thead>
              <tr>
                <th>From</th>
                <th class="right">For</th>
                <th>State</th>
                <th>Reason</th>
              </tr>
            </thead>
            <tbody>
              {[...task.time].reverse().slice(0, 200).map((bar) => (
                <Interval key={bar.from} bar={bar} />
              ))}
            </tbody>
          </table>
        </div>
      </Panel>
    </>
  );
}

export function Result({ attempt }: { attempt: string }) {
  const found = useSignal<AttemptResultView | null>(null);
  const problem = useSignal('');
  useEffect(() => {
    let isCurrent = true;
    fetchText(`/api/v1/page/attempt/${attempt}/result`).then(
      (text) => {
        if (isCurrent) found.value = JSON.parse(text) as AttemptResultView;
      },
      (error) => {
        if (isCurrent) problem.value = problemText(error);
      },
    );
    return () => {
      isCurrent = false;
    };
  }, [attempt]);
  if (problem.value) return <p class="error">{problem.value}</p>;
  const result = found.value;
  if (!result) return <p class="empty">loading…</p>;
  return (
    <>
      <Panel title="What it answered" aside={result.status && <span class="aside">status {result.status.replaceAll('_', ' ')}</span>}>
        {result.answer_html.length === 0 && <p class="empty">{attempt} has reported nothing yet.</p>}
        {result.answer_html.map((html, index) => (
          <Markup key={index} class="md" html={html} />
        ))}
        {result.artifacts.length > 0 && (
          <>
            <h3>Files it names</h3>
            <ul class="spans">
              {result.artifacts.map((name) => (
                <li key={name}>
                  <code>{plain(name, 300)}</code>
                </li>
              ))}
            </ul>
          </>
        )}
        {result.learnings.length > 0 && (
          <>
            <h3>What it learned</h3>
            <ul>
              {result.learnings.map((text) => (
                <li key={text}>{plain(text, 1_000)}</li>
              ))}
            </ul>
          </>
        )}
        {result.copy_path && (
          <p class="dim">
            The result is stored in <code>{plain(result.copy_path, 400)}</code>
          </p>
        )}
      </Panel>
      {result.notes_html.length > 0 && (
        <Panel title={`What people added`} aside={<span class="aside">part of the first prompt</span>}>
          {result.notes_html.map((html, index) => (
            <Markup key={index} class="md boxed" html={html} />
          ))}
        </Panel>
      )}
      {result.follow_ups_html.length > 0 && (
        <Panel title="What it was told later">
          {result.follow_ups_html.map((html, index) => (
            <Markup key={index} class="md boxed" html={html} />
          ))}
        </Panel>
      )}
      <Panel title="What it was told" aside={<span class="aside">the first prompt of {attempt}</span>}>
        {result.prompt_html ? <Markup class="md boxed prompt" html={result.prompt_html} /> : <p class="empty">The prompt is not stored on this machine: somebody else runs the agent, it runs on another machine, or its files were removed.</p>}
      </Panel>
    </>
  );
}
