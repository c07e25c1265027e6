// A plan before it starts: its waves, tasks, file owners, conflicts and an estimate. People can edit it here, and the
// daemon recomputes it after each edit.

import './plan.css';
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { plain } from '../format';
import { taskTopic } from '../live/client';
import { navigate } from '../route';
import { RequestError, call } from '../session';
import { ActionButton, Age, ChoiceSelect, Panel, Table, TaskLink, Text, shellHint, useTopics, withChoice } from '../ui';
import { addTask, conflictsOf, moveTask, parseBlockers, removeTask, storeEdits, storedEdits, wavesOf } from './plan-edit';
import type { Action } from '../action';
import type { PlanView, PlannedTask, TaskPage } from '../api';

type Edit = (tasks: PlannedTask[]) => void;

/** The waves as columns, from left to right in time. */
function WaveMap({ plan }: { plan: PlanView }) {
  return (
    <ol class="wave-map" aria-label="Waves of the plan">
      {wavesOf(plan).map((wave) => (
        <li key={wave.number}>
          <h3>
            Wave {wave.number} <span class="dim">{wave.tasks.length === 1 ? '1 task' : `${wave.tasks.length} tasks`}</span>
          </h3>
          {wave.tasks.map((at) => {
            const planned = plan.tasks[at];
            const waits = conflictsOf(plan, at).some((conflict) => conflict.waits);
            return (
              <a key={at} href={`#plan-task-${at + 1}`} class={waits ? 'clash' : ''} onClick={(event) => (event.preventDefault(), event.stopPropagation(), document.getElementById(`plan-task-${at + 1}`)?.focus())}>
                <b>{at + 1}</b> {plain(planned?.task.subject ?? '', 120)}
                <small>
                  {planned?.task.assign ?? 'any free agent'}
                  {planned && planned.after.length > 0 && ` · after ${planned.after.map((blocker) => blocker + 1).join(', ')}`}
                  {waits && <span class="bad"> · ! waits for a file</span>}
                </small>
              </a>
            );
          })}
        </li>
      ))}
    </ol>
  );
}

/** One task of the plan with fields to change it. */
function TaskRow({ plan, at, edit }: { plan: PlanView; at: number; edit: Edit }) {
  const planned = plan.tasks[at];
  if (!planned) return null;
  const conflicts = conflictsOf(plan, at);
  const setPlanned = (next: Partial<PlannedTask>) => edit(plan.tasks.map((other, index) => (index === at ? { ...other, ...next } : other)));
  const setTask = (next: Partial<PlannedTask['task']>) => setPlanned({ task: { ...planned.task, ...next } });
  const name = `task ${at + 1}`;
  return (
    <tr
      id={`plan-task-${at + 1}`}
      class={`plan-task ${conflicts.length > 0 ? 'clash' : ''}`}
      data-row
      tabIndex={-1}
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        event.preventDefault();
        const from = Number(event.dataTransfer?.getData('text/plain'));
        if (Number.isInteger(from)) edit(moveTask(plan.tasks, from, at));
      }}
    >
      <td class="grip" draggable onDragStart={(event) => event.dataTransfer?.setData('text/plain', String(at))} title="Drag to reorder">
        <b>{at + 1}</b>
      </td>
      <td class="subject">
        <input aria-label={`Subject of ${name}`} value={planned.task.subject} onChange={(event) => event.currentTarget.value.trim() && setTask({ subject: event.currentTarget.value.trim() })} />
        <details>
          <summary>{planned.task.description ? 'Description' : 'Add a description'}</summary>
          <textarea aria-label={`Description of ${name}`} rows={4} value={planned.task.description ?? ''} onChange={(event) => setTask({ description: event.currentTarget.value })} />
        </details>
        {conflicts.map((conflict) => (
          <p key={conflict.text} class={conflict.waits ? 'bad' : 'dim'}>
            {conflict.waits && '! '}
            {plain(conflict.text, 200)}
          </p>
        ))}
      </td>
      <td data-head="Files">
        <input class="mono" aria-label={`Files of ${name}`} placeholder="src/api/**" value={(planned.task.files ?? []).join(', ')} onChange={(event) => setTask({ files: event.currentTarget.value.split(',').map((file) => file.trim()).filter(Boolean) })} />
      </td>
      <td data-head="After">
        <input class="short" aria-label={`Blockers of ${name}`} placeholder="none" value={planned.after.map((blocker) => blocker + 1).join(', ')} onChange={(event) => setPlanned({ after: parseBlockers(event.currentTarget.value, at, plan.tasks.length) })} />
      </td>
      <td data-head="Agent">
        <select aria-label={`Agent of ${name}`} value={planned.task.assign ?? ''} onChange={(event) => setTask({ assign: event.currentTarget.value || null })}>
          <option value="">any free agent</option>
          {plan.agents.map((agent) => (
            <option key={agent} value={agent}>
              {agent}
            </option>
          ))}
        </select>
      </td>
      <td class="order">
        <span class="row">
          <button type="button" class="do" disabled={at === 0} aria-label={`Move ${name} up`} onClick={() => edit(moveTask(plan.tasks, at, at - 1))}>
            ↑
          </button>
          <button type="button" class="do" disabled={at + 1 === plan.tasks.length} aria-label={`Move ${name} down`} onClick={() => edit(moveTask(plan.tasks, at, at + 1))}>
            ↓
          </button>
          <button type="button" class="do" disabled={plan.tasks.length === 1} aria-label={`Remove ${name}`} onClick={() => edit(removeTask(plan.tasks, at))}>
            ✕
          </button>
        </span>
      </td>
    </tr>
  );
}

/** A button with a select for its options in front of it. */
function ActionWithChoice({ action }: { action: Action }) {
  const name = useSignal(action.choice?.now ?? '');
  return (
    <>
      {action.choice && <ChoiceSelect choice={action.choice} value={name.value} set={(choice) => (name.value = choice)} />}
      <ActionButton action={withChoice(action, name.value)} />
    </>
  );
}

/** The progress of the agent that makes the plan, or the reason why there is none. */
function NoPlanYet({ plan, task, actions }: { plan: PlanView; task: TaskPage | undefined; actions: Action[] }) {
  const isPlanning = plan.state === 'planning';
  // Only an agent that works has a moving bar.
  const isWorking = isPlanning && task?.at === 'working';
  return (
    <Panel class={`no-plan ${isPlanning ? '' : 'failed'}`} title={isPlanning ? (isWorking ? 'The plan is being made' : 'The plan waits') : 'No usable plan'} aside={task && isPlanning && <span class="aside">asked <Age since={task.created_wall} /> ago</span>}>
      {isWorking && <span class="pulse" aria-hidden="true" />}
      <p class={isPlanning ? '' : 'error'}>{plain(plan.text, 1_500)}</p>
      {isPlanning && (
        <p class="dim">
          The planner reads {plan.project} and changes nothing. The plan appears here when it is ready, and nothing starts before you press Start.
        </p>
      )}
      <div class="row">
        {actions.map((action) => (
          <ActionWithChoice key={action.label} action={action} />
        ))}
        {plan.task && (
          <a class="do" href={`/t/${plan.task}`}>
            Open the planner’s log
          </a>
        )}
      </div>
    </Panel>
  );
}

function FileOwners({ plan }: { plan: PlanView }) {
  const shared = plan.owned.filter((file) => file.others.length > 0);
  return (
    <Panel title="File owners" aside={<span class="aside">{shared.length > 0 ? 'files that several tasks want come first' : 'no file is wanted by two tasks of a wave'}</span>}>
      <Table heads={['File', 'Owner', 'Other tasks']}>
        {plan.owned.map((file) => (
          <tr key={`${file.file}${file.owner}`} class={file.others.length > 0 ? 'clash' : ''}>
            <td class="mono">{plain(file.file, 200)}</td>
            <td>
              <b>{file.owner + 1}</b> {plain(plan.tasks[file.owner]?.task.subject ?? '', 100)}
            </td>
            <td class={file.others.length > 0 ? 'bad' : 'dim'}>
              {file.others.length > 0 && '! '}
              {file.text}
            </td>
          </tr>
        ))}
      </Table>
    </Panel>
  );
}

function Figure({ name, children, bad }: { name: string; children: preact.ComponentChildren; bad?: boolean }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd class={bad ? 'bad' : ''}>{children}</dd>
    </div>
  );
}

/** Counts a noun: `1 task`, `2 tasks`. */
const count = (number: number, noun: string) => `${number} ${noun}${number === 1 ? '' : 's'}`;

/** A plan that can start. */
function ReadyPlan(props: { plan: PlanView; edit: Edit; isEdited: boolean; discard: () => void; actions: Action[] }) {
  const { plan, edit } = props;
  const waves = wavesOf(plan);
  return (
    <>
      <section class="plan-head">
        <dl>
          <Figure name="Tasks">{plan.tasks.length}</Figure>
          <Figure name="Waves">{waves.length}</Figure>
          <Figure name="Conflicts" bad={plan.conflicts > 0}>
            {plan.conflicts}
            {plan.conflicts > 0 && <small> solved by their order</small>}
          </Figure>
          <Figure name="Estimate">{plain(plan.estimate || 'unknown', 80)}</Figure>
        </dl>
        <div class="row">
          {props.actions.map((action) => (
            <ActionWithChoice key={action.label} action={action} />
          ))}
          {props.isEdited && (
            <button type="button" class="do" onClick={props.discard}>
              Discard my edits
            </button>
          )}
        </div>
        <p class="cli">
          same from a shell: <code>{plain(shellHint.value || (plan.actions[0]?.cli ?? 'regatta agent add'), 200)}</code>
        </p>
      </section>
      {plan.warnings.map((warning) => (
        <p key={warning} class="plan-warning">
          ! {plain(warning, 400)}
        </p>
      ))}
      <Panel title={`${count(plan.tasks.length, 'task')} · ${count(waves.length, 'wave')}`} aside={<span class="aside">{plain(plan.text, 200)}</span>}>
        <WaveMap plan={plan} />
      </Panel>
      <Panel title="Tasks" aside={<span class="aside">every field can be changed; the waves and conflicts follow</span>}>
        <Table class="plan" heads={['No.', 'Subject', 'Files that it may change', 'After', 'Agent', 'Order']}>
          {plan.tasks.map((_, at) => (
            <TaskRow key={at} plan={plan} at={at} edit={edit} />
          ))}
        </Table>
        <p class="row">
          <button type="button" class="do" onClick={() => edit(addTask(plan.tasks))}>
            Add a task
          </button>
        </p>
      </Panel>
      <FileOwners plan={plan} />
    </>
  );
}

export function PlanPage({ id }: { id: string }) {
  useTopics(id);
  void taskTopic(id).changed.value;
  const task = taskTopic(id).get(id);
  const plan = useSignal<PlanView | null>(null);
  const problem = useSignal('');
  const edited = useSignal(storedEdits(id) !== null);
  const latestDraw = useRef(0);

  /** Lets the daemon compute the plan. If calls overlap, only the result of the last one is shown. */
  const draw = async (tasks: PlannedTask[] | null) => {
    const index = (latestDraw.current += 1);
    try {
      const base = plan.peek() ?? (await call('plan.show', { task: id }));
      const shown = tasks ? await call('plan.draw', { project: base.project, title: base.title, tasks }) : await call('plan.show', { task: id });
      if (index !== latestDraw.current) return;
      plan.value = { ...shown, task: id, goal: base.goal, planner: shown.planner ?? base.planner, actions: [...shown.actions, ...(tasks ? base.actions.filter((action) => action.verb === 'plan.ask') : [])] };
      problem.value = '';
    } catch (error) {
      if (index === latestDraw.current) problem.value = error instanceof RequestError ? `${error.problem.message}. ${error.problem.hint}` : String(error);
    }
  };
  useEffect(() => {
    void draw(edited.peek() ? storedEdits(id) : null);
  }, [id, task?.word, task?.progress]);
  const edit = (tasks: PlannedTask[]) => {
    storeEdits(id, tasks);
    edited.value = true;
    void draw(tasks);
  };
  const discardEdits = () => {
    storeEdits(id, null);
    edited.value = false;
    void draw(null);
  };
  const withFollowUp = (action: Action): Action => ({
    ...action,
    after: (result) => {
      storeEdits(id, null);
      if (action.verb === 'plan.ask') navigate(`/plan/${(result as PlanView).task ?? id}`);
      else navigate(`/tasks?mission=${(result as { id: string }).id}`);
    },
  });

  const current = plan.value;
  const actions = (current?.actions ?? []).map(withFollowUp);
  return (
    <div class="plan-page">
      <p class="crumbs">
        <a href="/">Now</a> / Plan <TaskLink id={id} /> {current?.planner && <span class="dim">by {current.planner}</span>}
      </p>
      <h2 class="plan-title">
        <Text text={current?.title ?? task?.subject ?? ''} max={200} />
      </h2>
      {current && current.goal && current.goal !== current.title && <p class="goal">{plain(current.goal, 8_000)}</p>}
      {problem.value && <p class="error">{plain(problem.value, 800)}</p>}
      {!current && !problem.value && <p class="empty">loading…</p>}
      {current && current.state !== 'ready' && <NoPlanYet plan={current} task={task} actions={actions} />}
      {current?.state === 'ready' && <ReadyPlan plan={current} edit={edit} isEdited={edited.value} discard={discardEdits} actions={actions} />}
    </div>
  );
}
