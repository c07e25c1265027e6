// The parts of the setup page about agents: the registered agents, a form to add or change one, and the known programs.

import { useState } from 'preact/hooks';
import { EmptyState, Field, ShellLine, VerbForm } from '../components';
import { plain } from '../format';
import { byName } from '../live/client';
import { quoteWord, shellCommand } from '../shell-words';
import { ActionButton, Mark, Panel, Table } from '../ui';
import type { AgentView, DoctorView, ProviderProgram } from '../api';
import type { Fetched } from './setup-call';

const MAX_AGENT_ROWS = 300;

/** Returns the first free name for an agent of a preset: `claude-3` if `claude-1` and `claude-2` exist. */
export function freeName(preset: string, agents: AgentView[]): string {
  const short = preset.split('-')[0] || 'agent';
  const taken = new Set(agents.map((agent) => agent.name));
  for (let number = 1; ; number += 1) if (!taken.has(`${short}-${number}`)) return `${short}-${number}`;
}

/** Returns the arguments of `regatta agent add` that describe how an agent's program runs. */
function runtimeOptions(agent: AgentView): [string, string][] {
  if (agent.profile?.preset) return [['--preset', agent.profile.preset]];
  const argv = 'argv' in agent.runtime ? agent.runtime.argv : [];
  return [
    ['--runtime', agent.runtime.runtime],
    ['--command', argv.map(quoteWord).join(' ')],
  ];
}

/** A form that adds an agent with an installed program, or a scripted agent for rehearsals. */
function AddAgent({ agents, programs, done }: { agents: AgentView[]; programs: ProviderProgram[]; done: () => void }) {
  const ready = programs.filter((program) => program.add);
  const [preset, setPreset] = useState(ready.find((program) => !program.fix)?.preset ?? ready[0]?.preset ?? 'scripted');
  const [typedName, setName] = useState('');
  const [slots, setSlots] = useState('1');
  const [model, setModel] = useState('');
  const program = ready.find((candidate) => candidate.preset === preset);
  const name = typedName || freeName(preset, agents);
  const base = program?.add ?? { runtime: 'scripted', profile: {} };
  const input = { ...base, name, max_tasks: Number(slots) || 1, profile: { ...base.profile, ...(model ? { model } : {}) } };
  const cli = shellCommand(
    ['agent', 'add', name],
    [[program ? '--preset' : '--runtime', preset], ['--max-tasks', slots === '1' ? '' : slots], ['--model', model]],
  );
  const onDone = () => {
    setName('');
    done();
  };
  return (
    <VerbForm label="Add agent" verb="agent.add" input={input} cli={cli} onDone={onDone}>
      <Field
        label="Program"
        value={preset}
        set={setPreset}
        options={[...ready.map(({ preset, signed_in }): [string, string] => [preset, `${preset}, signed in: ${signed_in}`]), ['scripted', 'scripted, for rehearsals without a model']]}
        help={program?.fix ? plain(program.fix, 200) : 'Programs that are installed on this machine'}
      />
      <Field label="Name" value={typedName} set={setName} placeholder={name} pattern="[a-z0-9][a-z0-9._\-]*" help="Small letters, digits and hyphens" />
      <Field label="Slots" type="number" min={1} value={slots} set={setSlots} required help="Tasks at the same time, 1 to 20" />
      <Field label="Model" value={model} set={setModel} placeholder="the program's default" help="Optional: the name that the provider gives it" />
    </VerbForm>
  );
}

/** Returns the action that removes an agent without work. */
function removeAction(agent: AgentView, done: () => void) {
  return { label: `Remove ${agent.name}`, verb: 'agent.rm', input: { name: agent.name }, cli: shellCommand(['agent', 'rm', agent.name]), first: false, grave: true, after: done };
}

/** A form that changes the slots and the model of an agent, and keeps its other settings. */
function ChangeAgent({ agent, done }: { agent: AgentView; done: () => void }) {
  const [slots, setSlots] = useState(String(agent.max_tasks));
  const [model, setModel] = useState(agent.profile?.model ?? '');
  const { model: _old, ...profile } = agent.profile ?? {};
  const isCodexServer = agent.runtime.runtime === 'codex' && agent.runtime.app_server;
  const input = {
    name: agent.name,
    runtime: isCodexServer ? 'codex_server' : agent.runtime.runtime,
    command: 'argv' in agent.runtime ? agent.runtime.argv : [],
    role: agent.role,
    provider: agent.provider,
    description: agent.description,
    max_tasks: Number(slots) || 1,
    profile: { ...profile, ...(model ? { model } : {}) },
  };
  const cli = shellCommand(['agent', 'add', agent.name], [...runtimeOptions(agent), ['--provider', agent.profile?.preset ? '' : (agent.provider ?? '')], ['--max-tasks', slots], ['--model', model]]);
  return (
    <>
      <VerbForm label={`Change ${agent.name}`} verb="agent.add" input={input} cli={cli} onDone={done}>
        <Field label="Slots" type="number" min={1} value={slots} set={setSlots} required help="Tasks at the same time, 1 to 20" />
        <Field label="Model" value={model} set={setModel} placeholder="the program's default" help="Counts from the next task" />
      </VerbForm>
      <p class="row">
        <ActionButton action={removeAction(agent, done)} /> <span class="aside">An agent can be removed when it has no work.</span>
      </p>
    </>
  );
}

function AgentRow({ agent, signedIn, isChanged, change, done }: { agent: AgentView; signedIn: string; isChanged: boolean; change: () => void; done: () => void }) {
  const team = agent.name.includes('/') ? agent.name.split('/')[0] : undefined;
  const problems = agent.problems ?? [];
  const keys = agent.profile?.keys ?? [];
  return (
    <>
      <tr data-row tabIndex={0}>
        <td class="name">
          <a href={`/agents/${agent.name}`}>{agent.name}</a> {agent.role === 'lead' && <span class="dim">lead</span>}
        </td>
        <td>
          <Mark at={agent.at} word={agent.word} />
        </td>
        <td>{agent.profile?.preset ?? agent.runtime.runtime}</td>
        <td>{plain(agent.profile?.model ?? '', 60) || <span class="aside">program's default</span>}</td>
        <td data-label="Signed in">
          {signedIn || <span class="aside">{agent.runtime.runtime === 'scripted' ? 'not needed' : 'not checked'}</span>}
          {keys.length > 0 && <div class="aside">keys: {keys.map((key) => plain(key.name, 60)).join(', ')}</div>}
        </td>
        <td class="right" data-label="Slots in use">
          {agent.capacity.current} of {agent.max_tasks}
        </td>
        <td>
          {team ? (
            <a href="/team">team {team}</a>
          ) : (
            <button type="button" class="do" aria-expanded={isChanged} onClick={change}>
              Change…
            </button>
          )}
        </td>
      </tr>
      {problems.map((problem) => (
        <tr key={problem.what}>
          <td />
          <td colSpan={6} class="wide">
            <span class="bad">✕ {plain(problem.what, 300)}</span> <ShellLine line={problem.hint} />
          </td>
        </tr>
      ))}
      {isChanged && (
        <tr>
          <td colSpan={7} class="wide">
            <ChangeAgent agent={agent} done={done} />
          </td>
        </tr>
      )}
    </>
  );
}

export function AgentsSection({ agents, doctor }: { agents: Fetched<AgentView[]>; doctor: Fetched<DoctorView> }) {
  const [changed, setChanged] = useState('');
  const all = [...(agents.data ?? [])].sort((a, b) => byName(a.name, b.name));
  const programs = doctor.data?.providers ?? [];
  const done = () => {
    setChanged('');
    agents.reload();
    doctor.reload();
  };
  return (
    <>
      <Panel title="Add an agent" aside={<span class="aside">an agent is an installed program that works on tasks under a name</span>}>
        {doctor.data ? <AddAgent agents={all} programs={programs} done={done} /> : <p class="empty">{doctor.problem || 'loading…'}</p>}
      </Panel>
      <Panel title={`${all.length} agent${all.length === 1 ? '' : 's'}`} aside={<ShellLine line="regatta agent list" />}>
        {agents.problem && <p class="error">{agents.problem}</p>}
        {agents.data?.length === 0 && <EmptyState title="No agents yet" text="Add one with the form above. Without an installed program, a scripted agent rehearses a plan without a model." />}
        {all.length > 0 && (
          <Table class="stack" heads={['Agent', 'State', 'Program', 'Model', 'Signed in', '>Slots in use', 'Change']}>
            {all.slice(0, MAX_AGENT_ROWS).map((agent) => (
              <AgentRow
                key={agent.name}
                agent={agent}
                signedIn={programs.find((program) => program.preset === agent.profile?.preset)?.signed_in ?? ''}
                isChanged={changed === agent.name}
                change={() => setChanged(changed === agent.name ? '' : agent.name)}
                done={done}
              />
            ))}
          </Table>
        )}
        {all.length > MAX_AGENT_ROWS && <p class="empty">{MAX_AGENT_ROWS} of {all.length} agents are shown.</p>}
      </Panel>
    </>
  );
}

/** The programs that Regatta knows: the installed ones with their sign-in, and how to install the others. */
export function ProgramsSection({ doctor }: { doctor: Fetched<DoctorView> }) {
  const all = doctor.data?.providers ?? [];
  const installed = all.filter((program) => program.program !== null);
  const missing = all.filter((program) => program.program === null);
  return (
    <>
      <Panel title="Installed programs" aside={<span class="aside">{doctor.data && `${installed.length} of ${all.length} known programs`}</span>}>
        {!doctor.data && <p class="empty">{doctor.problem || 'loading…'}</p>}
        {doctor.data && installed.length === 0 && (
          <EmptyState title="No known program is installed" text="Install one from the list below, or rehearse a plan with scripted agents, which need no model.">
            <ShellLine line="regatta demo --serve" />
          </EmptyState>
        )}
        {installed.length > 0 && (
          <Table class="stack" heads={['Preset', 'Provider', 'Version', 'Signed in', 'Next step']}>
            {installed.map((program) => (
              <tr key={program.preset} data-row tabIndex={0}>
                <td class="name">{program.preset}</td>
                <td>{program.provider}</td>
                <td>{plain(program.version ?? 'not reported', 60)}</td>
                <td class={program.signed_in === 'not found' ? 'late' : ''}>
                  {program.signed_in === 'not found' ? '! ' : '✓ '}
                  {program.signed_in}
                </td>
                <td>
                  {program.fix ? plain(program.fix, 200) : <a href="/setup?section=agents">Add an agent</a>}
                </td>
              </tr>
            ))}
          </Table>
        )}
      </Panel>
      {missing.length > 0 && (
        <Panel title="Not installed" aside={<span class="aside">install a program, sign in to it, then add an agent</span>}>
          <Table class="stack" heads={['Preset', 'Provider', 'How to install it']}>
            {missing.map((program) => (
              <tr key={program.preset} data-row tabIndex={0}>
                <td class="name">{program.preset}</td>
                <td>{program.provider}</td>
                <td>{program.fix && <ShellLine line={program.fix} />}</td>
              </tr>
            ))}
          </Table>
        </Panel>
      )}
    </>
  );
}
