// A closer look at a task beside the list.

import { useRef } from 'preact/hooks';
import { plain, usd } from '../format';
import { taskTopic } from '../live/client';
import { ActionButton, Age, Mark, TaskLink, useTopics } from '../ui';
import type { TaskListRow } from '../api';
import { Lines } from './tasks';

export function TaskPeek({ row, close }: { row: TaskListRow; close: () => void }) {
  useTopics(row.id);
  const task = taskTopic(row.id).get(row.id);
  const panel = useRef<HTMLElement>(null);
  return (
    <aside class="peek" ref={panel} aria-label={`Task ${row.id}`}>
      <header>
        <Mark at={row.at} word={row.word} />
        <span class="dim">
          since <Age since={row.since_wall} />
        </span>
        <button type="button" class="key" aria-label="Close" title="Close: Space or Esc" onClick={close}>
          ✕
        </button>
      </header>
      <h3>
        <TaskLink id={row.id} /> {plain(row.subject, 300)}
      </h3>
      {row.text && <p class="dim">{plain(row.text, 400)}</p>}
      <dl class="peek-facts">
        {row.agent && <Fact name="Agent">{row.agent}</Fact>}
        {row.mission && <Fact name="Mission">{row.mission}</Fact>}
        {row.blocked_by.length > 0 && (
          <Fact name="After">
            {row.blocked_by.slice(0, 12).map((id) => (
              <TaskLink key={id} id={id} />
            ))}
            {row.blocked_by.length > 12 && `and ${row.blocked_by.length - 12} more`}
          </Fact>
        )}
        {row.commit && (
          <Fact name="Landed">
            <code>{row.commit}</code> <Lines row={row} />
          </Fact>
        )}
        {row.micro_usd !== undefined && <Fact name="Cost">{usd(row.micro_usd)}</Fact>}
        {task && task.tries.length > 0 && <Fact name="Attempts">{task.tries.length}</Fact>}
      </dl>
      {task?.description && <p class="peek-text">{plain(task.description, 700)}</p>}
      {task && task.checklist.length > 0 && (
        <ul class="checks">
          {task.checklist.map((condition) => (
            <li key={condition.text} class={condition.good === true ? 'good' : condition.good === false ? 'bad' : ''}>
              {condition.good === true ? '✓' : condition.good === false ? '✕' : '·'} {plain(condition.text, 200)}
            </li>
          ))}
        </ul>
      )}
      {!task && <p class="dim">loading…</p>}
      <footer class="row">
        <a class="do" href={`/t/${row.id}`}>
          Open <kbd>Enter</kbd>
        </a>
        {task?.actions
          .filter((action) => !action.first || row.at !== 'review')
          .slice(0, 4)
          .map((action) => <ActionButton key={action.label} action={{ ...action, key: undefined }} />)}
      </footer>
    </aside>
  );
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
