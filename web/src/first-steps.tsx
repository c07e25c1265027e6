// The first run: pick a repository, add an agent, describe the work. Each step is done by itself when the daemon reports
// it, also when a person takes the step in a terminal.

import './first-steps.css';
import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { Command } from './command';
import { plain } from './format';
import { perform } from './ui';
import { RequestError, call } from './session';
import type { Action } from './action';
import type { AgentAdd, FleetSummaryView, ProviderProgram as FoundProgram } from './api';

type ProviderProgram = FoundProgram & { add?: AgentAdd };

const action = (label: string, verb: string, input: object, cli: string): Action => ({ label, verb, input: input as Record<string, unknown>, cli, first: true, grave: false });

function Step(props: { number: number; title: string; state: 'done' | 'now' | 'later'; summary?: string; children: ComponentChildren }) {
  return (
    <li class={`step ${props.state}`} aria-current={props.state === 'now' ? 'step' : undefined}>
      <span class="number" aria-hidden="true">
        {props.state === 'done' ? '✓' : props.number}
      </span>
      <div>
        <h3>
          {props.title}
          {props.state === 'done' && <span class="sr"> (done)</span>}
        </h3>
        {props.state === 'done' && <p class="dim">{props.summary}</p>}
        {props.state === 'now' && props.children}
      </div>
    </li>
  );
}

/** The form for a repository. The daemon checks the path. */
function RepositoryForm() {
  const path = useSignal('');
  const check = useSignal('');
  const busy = useSignal(false);
  const failure = useSignal('');
  const submit = async (event: Event) => {
    event.preventDefault();
    busy.value = true;
    failure.value = '';
    try {
      await call('project.add', { path: path.peek().trim(), validation: check.peek().trim() ? [check.peek().trim()] : [] });
    } catch (error) {
      failure.value = error instanceof RequestError ? `${error.problem.message}. ${error.problem.hint}` : String(error);
    }
    busy.value = false;
  };
  return (
    <>
      <form class="first-form" onSubmit={(event) => void submit(event)}>
        <label>
          Path of the git repository, on the daemon’s machine
          <input type="text" required placeholder="/home/you/shop" spellcheck={false} autocapitalize="off" value={path.value} onInput={(event) => (path.value = event.currentTarget.value)} />
        </label>
        <label>
          Command that must pass before work lands (may stay empty)
          <input type="text" placeholder="npm test" spellcheck={false} autocapitalize="off" value={check.value} onInput={(event) => (check.value = event.currentTarget.value)} />
        </label>
        <button type="submit" class="do first" disabled={busy.value || !path.value.trim()}>
          Add the repository
        </button>
      </form>
      {failure.value && (
        <p class="error" role="alert">
          {plain(failure.value, 400)}
        </p>
      )}
      <p class="dim">Or in a terminal, where Regatta also finds your test command. This page goes on by itself when you have run it:</p>
      <Command text="cd your-repo && regatta init" />
    </>
  );
}

/** The agent programs on the daemon's machine, each with a button that adds it. */
function AgentChoice() {
  const programs = useSignal<ProviderProgram[] | null>(null);
  const failure = useSignal('');
  const look = () => {
    failure.value = '';
    call('doctor', {}).then(
      (answer) => (programs.value = answer.providers),
      (error: Error) => (failure.value = error.message),
    );
  };
  useEffect(look, []);
  const installed = programs.value?.filter((program) => program.program !== null) ?? [];
  const missing = programs.value?.filter((program) => program.program === null) ?? [];
  const addAgent = (request: AgentAdd) => void perform(action(`Add ${request.name}`, 'agent.add', request, `regatta agent add ${request.name}`));
  if (failure.value)
    return (
      <>
        <p class="error">{plain(failure.value, 300)}</p>
        <Command text="regatta provider" />
      </>
    );
  if (!programs.value) return <p class="empty">Looking for agent programs on the daemon’s machine…</p>;
  return (
    <>
      <p>{installed.length > 0 ? 'Found on the daemon’s machine:' : 'No known agent program is on the daemon’s machine. Install one of these, then look again:'}</p>
      <ul class="programs">
        {installed.map((program) => (
          <li key={program.preset}>
            <span>
              <b>{program.preset}</b> <span class="dim">{plain(program.version ?? '', 40)}</span>
              <small>{plain(program.signed_in, 80)}</small>
            </span>
            {program.add ? (
              <button type="button" class="do first" onClick={() => addAgent(program.add as AgentAdd)}>
                Add {plain(program.add.name, 40)}
              </button>
            ) : (
              <Command text={program.fix ?? `regatta agent add ${program.preset}-1 --preset ${program.preset}`} />
            )}
          </li>
        ))}
        {installed.length === 0 &&
          missing.slice(0, 5).map((program) => (
            <li key={program.preset}>
              <b>{program.preset}</b>
              {program.fix && <Command text={program.fix} />}
            </li>
          ))}
      </ul>
      <p class="row">
        <button type="button" class="do" onClick={look}>
          Look again
        </button>
        <span class="dim">
          {missing.length} more known programs: <code>regatta provider</code>
        </span>
      </p>
    </>
  );
}

export function FirstSteps({ head }: { head: FleetSummaryView }) {
  const hasProject = head.projects.length > 0;
  return (
    <div class="first-run">
      <h2>Start with three steps</h2>
      <p class="dim">Regatta runs coding agents on your git repository: it plans, keeps them apart, checks their work and lands it.</p>
      <ol class="steps">
        <Step number={1} title="Pick a repository" state={hasProject ? 'done' : 'now'} summary={head.projects.map((project) => `${project.name} on ${project.trunk}`).join(', ')}>
          <RepositoryForm />
        </Step>
        <Step number={2} title="Add an agent" state={hasProject ? 'now' : 'later'}>
          <AgentChoice />
        </Step>
        <Step number={3} title="Say what the team should do" state="later">
          {null}
        </Step>
      </ol>
      <aside class="try">
        <h3>Just look first?</h3>
        <p>The demo runs scripted agents in a temporary repository. It needs no account and no key, and nothing leaves the machine.</p>
        <Command text="regatta demo --serve" />
      </aside>
    </div>
  );
}
