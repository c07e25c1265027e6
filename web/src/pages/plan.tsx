// A plan before it starts: waves, owners, conflicts, an estimate. It can be changed here; the daemon draws it anew.

import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { plain } from '../format';
import { topic } from '../live/client';
import { go } from '../route';
import { Refused, call } from '../session';
import { Choose, Do, Panel, Table, TaskLink, Text, chosen, hinted, useTopics } from '../ui';
import type { Action, Plan, PlannedTask, TaskPage } from '../views';

/** A plan in another order: whoever is needed is still the same. */
export function moved(tasks: PlannedTask[], from: number, to: number): PlannedTask[] {
  const order = tasks.map((_, nth) => nth);
  const [one] = order.splice(from, 1);
  if (one === undefined) return tasks;
  order.splice(Math.max(0, Math.min(order.length, to)), 0, one);
  return ordered(tasks, order);
}

/** A plan without one of its tasks: whoever needed it needs it no more. */
export function without(tasks: PlannedTask[], at: number): PlannedTask[] {
  return ordered(
    tasks,
    tasks.map((_, nth) => nth).filter((nth) => nth !== at),
  );
}

function ordered(tasks: PlannedTask[], order: number[]): PlannedTask[] {
  const place = new Map(order.map((old, nth) => [old, nth]));
  return order.flatMap((old) => {
    const it = tasks[old];
    return it ? [{ ...it, after: it.after.flatMap((on) => place.get(on) ?? []).sort((a, b) => a - b) }] : [];
  });
}

/** `1, 3` as places in a plan; what is no other task of it is left out. */
export function places(text: string, own: number, many: number): number[] {
  const found = [...text.matchAll(/\d+/g)].map((it) => Number(it[0]) - 1).filter((it) => it >= 0 && it < many && it !== own);
  return [...new Set(found)].sort((a, b) => a - b);
}

const KEPT = 'regatta-plan-';

/** What somebody changed in a plan, kept until it starts. */
function changed(id: string): PlannedTask[] | null {
  try {
    return JSON.parse(localStorage.getItem(KEPT + id) ?? 'null') as PlannedTask[] | null;
  } catch {
    return null;
  }
}

function keep(id: string, tasks: PlannedTask[] | null): void {
  if (tasks) localStorage.setItem(KEPT + id, JSON.stringify(tasks));
  else localStorage.removeItem(KEPT + id);
}

function Line(props: { plan: Plan; at: number; edit: (tasks: PlannedTask[]) => void }) {
  const { plan, at, edit } = props;
  const it = plan.tasks[at];
  if (!it) return null;
  const clash = plan.owned.some((one) => one.others.length > 0 && (one.owner === at || one.others.includes(at)));
  const set = (next: Partial<PlannedTask>) => edit(plan.tasks.map((one, nth) => (nth === at ? { ...one, ...next } : one)));
  const task = (next: Partial<PlannedTask['task']>) => set({ task: { ...it.task, ...next } });
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
        if (Number.isInteger(from)) edit(moved(plan.tasks, from, at));
      }}
    >
      <td class="right">{at + 1}</td>
      <td>
        {plan.waves[at]}
        {clash && <b title="another task of this plan wants the same file"> !</b>}
      </td>
      <td>
        <input aria-label={`Subject of ${name}`} value={it.task.subject} title={plain(it.task.description ?? '', 600)} onChange={(event) => event.currentTarget.value.trim() && task({ subject: event.currentTarget.value.trim() })} />
      </td>
      <td>
        <input class="mono" aria-label={`Files of ${name}`} value={(it.task.files ?? []).join(', ')} onChange={(event) => task({ files: event.currentTarget.value.split(',').map((one) => one.trim()).filter(Boolean) })} />
      </td>
      <td>
        <input class="short" aria-label={`What ${name} needs`} value={it.after.map((on) => on + 1).join(', ')} onChange={(event) => set({ after: places(event.currentTarget.value, at, plan.tasks.length) })} />
      </td>
      <td>
        <select aria-label={`Agent of ${name}`} value={it.task.assign ?? ''} onChange={(event) => task({ assign: event.currentTarget.value || null })}>
          <option value="">whoever is free</option>
          {plan.agents.map((agent) => (
            <option key={agent} value={agent}>
              {agent}
            </option>
          ))}
        </select>
      </td>
      <td>
        <span class="row">
          <button type="button" class="do" disabled={at === 0} aria-label={`Move ${name} up`} onClick={() => edit(moved(plan.tasks, at, at - 1))}>
            ↑
          </button>
          <button type="button" class="do" disabled={at + 1 === plan.tasks.length} aria-label={`Move ${name} down`} onClick={() => edit(moved(plan.tasks, at, at + 1))}>
            ↓
          </button>
          <button type="button" class="do" disabled={plan.tasks.length === 1} aria-label={`Take ${name} out`} onClick={() => edit(without(plan.tasks, at))}>
            ✕
          </button>
        </span>
      </td>
    </tr>
  );
}

/** A button, and before it what can be chosen for it. */
function Chosen({ action }: { action: Action }) {
  const name = useSignal(action.choice?.now ?? '');
  return (
    <>
      {action.choice && <Choose of={action.choice} value={name.value} set={(it) => (name.value = it)} />}
      <Do action={chosen(action, name.value)} />
    </>
  );
}

export function PlanPage({ id }: { id: string }) {
  useTopics(id);
  void topic(id).changed.value;
  const task = topic(id).one<TaskPage>(id);
  const plan = useSignal<Plan | null>(null);
  const problem = useSignal('');
  const edited = useSignal(changed(id) !== null);
  const turn = useRef(0);

  /** Has the daemon draw it; the last one asked for counts. */
  const draw = async (tasks: PlannedTask[] | null) => {
    const nth = (turn.current += 1);
    try {
      const made = plan.peek() ?? (await call<Plan>('plan.show', { task: id }));
      const shown = tasks ? await call<Plan>('plan.draw', { project: made.project, title: made.title, tasks }) : await call<Plan>('plan.show', { task: id });
      if (nth !== turn.current) return;
      plan.value = { ...shown, task: id, goal: made.goal, planner: shown.planner ?? made.planner, actions: [...shown.actions, ...(tasks ? made.actions.filter((it) => it.verb === 'plan.ask') : [])] };
      problem.value = '';
    } catch (error) {
      if (nth === turn.current) problem.value = error instanceof Refused ? `${error.problem.message}. ${error.problem.hint}` : String(error);
    }
  };
  useEffect(() => {
    void draw(edited.peek() ? changed(id) : null);
  }, [id, task?.word]);
  const edit = (tasks: PlannedTask[]) => {
    keep(id, tasks);
    edited.value = true;
    if (plan.peek()) plan.value = { ...(plan.peek() as Plan), tasks };
    void draw(tasks);
  };
  const back = () => {
    keep(id, null);
    edited.value = false;
    void draw(null);
  };
  const after = (action: Action): Action => ({
    ...action,
    after: (said) => {
      keep(id, null);
      if (action.verb === 'plan.ask') go(`/plan/${(said as Plan).task ?? id}`);
      else go(`/tasks?mission=${(said as { id: string }).id}`);
    },
  });

  const it = plan.value;
  const waves = new Set(it?.waves.map((one) => one.split('.')[0])).size;
  const crowd = it?.owned.filter((one) => one.others.length > 0) ?? [];
  return (
    <>
      <p class="crumbs">
        <a href="/">Now</a> / Plan <TaskLink id={id} /> <Text of={it?.title ?? task?.subject ?? ''} max={200} />
      </p>
      {it && it.goal && it.goal !== it.title && <p class="goal">{plain(it.goal, 8_000)}</p>}
      {problem.value && <p class="error">{plain(problem.value, 800)}</p>}
      {!it && !problem.value && <p class="empty">asking the daemon…</p>}
      {it && it.state !== 'ready' && (
        <Panel title={it.state === 'planning' ? 'A plan is made' : 'There is no plan'} aside={<code class="aside">regatta logs {id}</code>}>
          <p class={it.state === 'planning' ? '' : 'error'}>
            {plain(it.text, 1_500)} {it.state === 'planning' && <span class="pulse" aria-hidden="true" />}
          </p>
          {it.state === 'planning' && (
            <p class="dim">
              It looks around in {it.project} and changes nothing. This page shows the plan when it is there; what it says meanwhile: <TaskLink id={id} />
            </p>
          )}
          <div class="row">
            {it.actions.map((one) => (
              <Chosen key={one.label} action={after(one)} />
            ))}
          </div>
        </Panel>
      )}
      {it?.state === 'ready' && (
        <>
          <Panel
            title={`${it.tasks.length} task${it.tasks.length === 1 ? '' : 's'} · ${waves} wave${waves === 1 ? '' : 's'}`}
            aside={
              <span class="aside">
                {it.text} · {it.conflicts === 0 ? 'no conflicts' : `${it.conflicts} file${it.conflicts === 1 ? '' : 's'} wanted by several`} · estimate {it.estimate}
              </span>
            }
          >
            {it.warnings.map((one) => (
              <p key={one} class="late">
                ! {plain(one, 400)}
              </p>
            ))}
            <Table class="plan" heads={['>Nr', 'Wave', 'Subject', 'Files', 'Needs', 'Agent', 'Order']}>
              {it.tasks.map((_, at) => (
                <Line key={at} plan={it} at={at} edit={edit} />
              ))}
            </Table>
          </Panel>
          <Panel title="Who owns which file" aside={<span class="aside">{crowd.length > 0 ? 'what several want comes first' : 'nobody is in another’s way'}</span>}>
            <Table heads={['File', 'Owner', 'Who else wants it']}>
              {it.owned.map((one) => (
                <tr key={`${one.file}${one.owner}`} class={one.others.length > 0 ? 'clash' : ''}>
                  <td class="mono">{plain(one.file, 200)}</td>
                  <td>
                    {one.owner + 1} {plain(it.tasks[one.owner]?.task.subject ?? '', 100)}
                  </td>
                  <td class={one.others.length > 0 ? 'bad' : 'dim'}>
                    {one.others.length > 0 && '! '}
                    {one.text}
                  </td>
                </tr>
              ))}
            </Table>
          </Panel>
          <div class="actions">
            {it.actions.map((one) => (
              <Chosen key={one.label} action={after(one)} />
            ))}
            {edited.value && (
              <button type="button" class="do" onClick={back}>
                Take my changes back
              </button>
            )}
            <a class="do" href="/">
              Leave it
            </a>
            <span class="cli">
              same from a shell: <code>{plain(hinted.value || (it.actions[0]?.cli ?? 'regatta agent add'), 200)}</code>
            </span>
          </div>
        </>
      )}
    </>
  );
}
