// A plan before it starts: tasks, waves, file owners, conflicts and an estimate. People can edit it here, and the daemon
// recomputes it after each edit.

import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { plain } from '../format';
import { taskTopic } from '../live/client';
import { navigate } from '../route';
import { RequestError, call } from '../session';
import { ActionButton, ChoiceSelect, Panel, Table, TaskLink, Text, shellHint, useTopics, withChoice } from '../ui';
import type { Action } from '../action';
import type { PlanView, PlannedTask } from '../api';

/** Returns the plan with one task moved. The blockers of each task stay the same tasks. */
export function moveTask(tasks: PlannedTask[], from: number, to: number): PlannedTask[] {
  const order = tasks.map((_, index) => index);
  const [task] = order.splice(from, 1);
  if (task === undefined) return tasks;
  order.splice(Math.max(0, Math.min(order.length, to)), 0, task);
  return reorder(tasks, order);
}

/** Returns the plan without one task. Tasks that were blocked by it no longer are. */
export function removeTask(tasks: PlannedTask[], at: number): PlannedTask[] {
  return reorder(
    tasks,
    tasks.map((_, index) => index).filter((index) => index !== at),
  );
}

function reorder(tasks: PlannedTask[], order: number[]): PlannedTask[] {
  const newIndex = new Map(order.map((old, index) => [old, index]));
  return order.flatMap((old) => {
    const task = tasks[old];
    return task ? [{ ...task, after: task.after.flatMap((blocker) => newIndex.get(blocker) ?? []).sort((a, b) => a - b) }] : [];
  });
}

/** Parses `1, 3` as indexes of a plan's tasks. Numbers that are not another task of the plan are ignored. */
export function parseBlockers(text: string, ownIndex: number, taskCount: number): number[] {
  const found = [...text.matchAll(/\d+/g)].map((match) => Number(match[0]) - 1).filter((index) => index >= 0 && index < taskCount && index !== ownIndex);
  return [...new Set(found)].sort((a, b) => a - b);
}

const STORAGE_PREFIX = 'regatta-plan-';

/** Returns a person's edits of a plan. The browser stores them until the plan starts. */
function storedEdits(id: string): PlannedTask[] | null {
  try {
    return JSON.parse(localStorage.getItem(STORAGE_PREFIX + id) ?? 'null') as PlannedTask[] | null;
  } catch {
    return null;
  }
}

function storeEdits(id: string, tasks: PlannedTask[] | null): void {
  if (tasks) localStorage.setItem(STORAGE_PREFIX + id, JSON.stringify(tasks));
  else localStorage.removeItem(STORAGE_PREFIX + id);
}

function PlanRow(props: { plan: PlanView; at: number; edit: (tasks: PlannedTask[]) => void }) {
  const { plan, at, edit } = props;
  const planned = plan.tasks[at];
  if (!planned) return null;
  const clash = plan.owned.some((file) => file.others.length > 0 && (file.owner === at || file.others.includes(at)));
  const setPlanned = (next: Partial<PlannedTask>) => edit(plan.tasks.map((other, index) => (index === at ? { ...other, ...next } : other)));
  const setTask = (next: Partial<PlannedTask['task']>) => setPlanned({ task: { ...planned.task, ...next } });
  const name = `task ${at + 1}`;
  return (
    <tr
      class={clash ? 'clash' : ''}
      data-row
      draggable
      onDragStart={(event) => event.dataTransfer?.setData('text/plain', String(at))}
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        event.preventDefault();
        const from = Number(event.dataTransfer?.getData('text/plain'));
        if (Number.isInteger(from)) edit(moveTask(plan.tasks, from, at));
      }}
    >
      <td class="right">{at + 1}</td>
      <td>
        {plan.waves[at]}
        {clash && <b title="another task of this plan changes the same file"> !</b>}
      </td>
      <td>
        <input aria-label={`Subject of ${name}`} value={planned.task.subject} title={plain(planned.task.description ?? '', 600)} onChange={(event) => event.currentTarget.value.trim() && setTask({ subject: event.currentTarget.value.trim() })} />
      </td>
      <td>
        <input class="mono" aria-label={`Files of ${name}`} value={(planned.task.files ?? []).join(', ')} onChange={(event) => setTask({ files: event.currentTarget.value.split(',').map((file) => file.trim()).filter(Boolean) })} />
      </td>
      <td>
        <input class="short" aria-label={`Blockers of ${name}`} value={planned.after.map((blocker) => blocker + 1).join(', ')} onChange={(event) => setPlanned({ after: parseBlockers(event.currentTarget.value, at, plan.tasks.length) })} />
      </td>
      <td>
        <select aria-label={`Agent of ${name}`} value={planned.task.assign ?? ''} onChange={(event) => setTask({ assign: event.currentTarget.value || null })}>
          <option value="">any free agent</option>
          {plan.agents.map((agent) => (
            <option key={agent} value={agent}>
              {agent}
            </option>
          ))}
        </select>
      </td>
      <td>
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
  }, [id, task?.word]);
  const edit = (tasks: PlannedTask[]) => {
    storeEdits(id, tasks);
    edited.value = true;
    if (plan.peek()) plan.value = { ...(plan.peek() as PlanView), tasks };
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
  const waves = new Set(current?.waves.map((wave) => wave.split('.')[0])).size;
  const shared = current?.owned.filter((file) => file.others.length > 0) ?? [];
  return (
    <>
      <p class="crumbs">
        <a href="/">Now</a> / Plan <TaskLink id={id} /> <Text text={current?.title ?? task?.subject ?? ''} max={200} />
      </p>
      {current && current.goal && current.goal !== current.title && <p class="goal">{plain(current.goal, 8_000)}</p>}
      {problem.value && <p class="error">{plain(problem.value, 800)}</p>}
      {!current && !problem.value && <p class="empty">loading…</p>}
      {current && current.state !== 'ready' && (
        <Panel title={current.state === 'planning' ? 'Planning' : 'No usable plan'} aside={<code class="aside">regatta logs {id}</code>}>
          <p class={current.state === 'planning' ? '' : 'error'}>
            {plain(current.text, 1_500)} {current.state === 'planning' && <span class="pulse" aria-hidden="true" />}
          </p>
          {current.state === 'planning' && (
            <p class="dim">
              The planner reads {current.project} and changes nothing. The plan appears here when it is ready. Follow the planner’s log: <TaskLink id={id} />
            </p>
          )}
          <div class="row">
            {current.actions.map((action) => (
              <ActionWithChoice key={action.label} action={withFollowUp(action)} />
            ))}
          </div>
        </Panel>
      )}
      {current?.state === 'ready' && (
        <>
          <Panel
            title={`${current.tasks.length} task${current.tasks.length === 1 ? '' : 's'} · ${waves} wave${waves === 1 ? '' : 's'}`}
            aside={
              <span class="aside">
                {current.text} · {current.conflicts === 0 ? 'no conflicts' : `${current.conflicts} file${current.conflicts === 1 ? '' : 's'} wanted by several tasks`} · estimate {current.estimate}
              </span>
            }
          >
            {current.warnings.map((warning) => (
              <p key={warning} class="late">
                ! {plain(warning, 400)}
              </p>
            ))}
            <Table class="plan" heads={['>No.', 'Wave', 'Subject', 'Files', 'Blockers', 'Agent', 'Order']}>
              {current.tasks.map((_, at) => (
                <PlanRow key={at} plan={current} at={at} edit={edit} />
              ))}
            </Table>
          </Panel>
          <Panel title="File owners" aside={<span class="aside">{shared.length > 0 ? 'conflicts first' : 'no conflicts'}</span>}>
            <Table heads={['File', 'Owner', 'Other tasks']}>
              {current.owned.map((file) => (
                <tr key={`${file.file}${file.owner}`} class={file.others.length > 0 ? 'clash' : ''}>
                  <td class="mono">{plain(file.file, 200)}</td>
                  <td>
                    {file.owner + 1} {plain(current.tasks[file.owner]?.task.subject ?? '', 100)}
                  </td>
                  <td class={file.others.length > 0 ? 'bad' : 'dim'}>
                    {file.others.length > 0 && '! '}
                    {file.text}
                  </td>
                </tr>
              ))}
            </Table>
          </Panel>
          <div class="actions">
            {current.actions.map((action) => (
              <ActionWithChoice key={action.label} action={withFollowUp(action)} />
            ))}
            {edited.value && (
              <button type="button" class="do" onClick={discardEdits}>
                Discard my edits
              </button>
            )}
            <a class="do" href="/">
              Cancel
            </a>
            <span class="cli">
              same from a shell: <code>{plain(shellHint.value || (current.actions[0]?.cli ?? 'regatta agent add'), 200)}</code>
            </span>
          </div>
        </>
      )}
    </>
  );
}
