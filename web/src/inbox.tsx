// What needs a person: one card for each, or one for many that ask the same.

import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { plain } from './format';
import { topic } from './live/client';
import { Age, Do, Empty, Panel, TaskLink, perform, press, says, toast, useTopics } from './ui';
import type { Item } from './views';

/** The card that the digits speak to. */
export const chosen = signal<string | null>(null);

export interface Group {
  key: string;
  items: Item[];
}

/** Items that ask the same, longest waiting first. */
export function groups(items: Item[]): Group[] {
  const found = new Map<string, Item[]>();
  for (const it of [...items].sort((a, b) => a.since_wall - b.since_wall)) {
    const same = found.get(it.group);
    if (same) same.push(it);
    else found.set(it.group, [it]);
  }
  return [...found].map(([key, of]) => ({ key, items: of }));
}

function all(): Group[] {
  return groups(topic('inbox').all<Item>());
}

/** Moves between the cards. */
export function move(by: number): boolean {
  const list = all();
  if (list.length === 0) return false;
  const at = list.findIndex((it) => it.key === chosen.peek());
  const next = list[Math.min(list.length - 1, Math.max(0, at < 0 ? 0 : at + by))];
  if (next) chosen.value = next.key;
  return true;
}

/** Chooses the nth answer of the chosen card. */
export function choose(nth: number): boolean {
  const list = all();
  const group = list.find((it) => it.key === chosen.peek()) ?? (list.length === 1 ? list[0] : undefined);
  const action = group?.items[0]?.actions[nth - 1];
  if (!group || !action) return false;
  if (group.items.length > 1 && action.words === undefined && !action.grave) void together(group, nth - 1);
  else press(action);
  return true;
}

/** Answers all that ask the same. Whoever was answered meanwhile is left as it is. */
async function together(group: Group, nth: number): Promise<void> {
  let done = 0;
  for (const it of group.items) {
    const action = it.actions[nth];
    if (action && (await perform(action))) done += 1;
  }
  toast(true, `${done} of ${group.items.length} answered`);
}

/** Where there is more to see of what it is about. */
function About({ it }: { it: Item }) {
  if (it.task) return <TaskLink id={it.task} />;
  const to = it.kind === 'request' ? '/conversations' : it.kind === 'budget' ? '/cost' : it.agent ? `/agents/${it.agent}` : '';
  return to ? (
    <a class="id" href={to}>
      {it.id}
    </a>
  ) : (
    <b class="id">{it.id}</b>
  );
}

export function Card({ group, nth, open }: { group: Group; nth: number; open: boolean }) {
  const it = group.items[0];
  const card = useRef<HTMLElement>(null);
  const active = chosen.value === group.key || (chosen.value === null && nth === 0);
  useEffect(() => {
    if (chosen.value === group.key) card.current?.focus();
  }, [active]);
  if (!it) return null;
  return (
    <article ref={card} class={`card ${active ? 'active' : ''}`} tabIndex={0} aria-label={`${it.kind} ${it.task ?? it.id}`} onFocus={() => (chosen.value = group.key)}>
      <header>
        <span class="kind">{it.kind}</span> <About it={it} /> <span class="agent">{it.agent ?? ''}</span>
        {group.items.length > 1 && <b class="many">× {group.items.length}</b>}
        {it.escalated && <b class="late">waits long</b>}
        <Age since={it.since_wall} />
      </header>
      <pre class="what">{plain(it.subject)}</pre>
      {open && it.why && <p class="why">{plain(it.why, 300)}</p>}
      {(open || active) && (
        <div class="row">
          {it.actions.map((action, at) =>
            group.items.length > 1 && action.words === undefined && !action.grave ? (
              <button key={action.label} type="button" class={`do ${action.first ? 'first' : ''}`} {...says(`${action.cli} … and ${group.items.length - 1} more`)} onClick={() => void together(group, at)}>
                {plain(action.label, 80)} all {group.items.length} <kbd>{at + 1}</kbd>
              </button>
            ) : (
              <Do key={action.label} action={action} nth={at + 1} />
            ),
          )}
        </div>
      )}
      {active && it.actions[0] && (
        <p class="cli">
          same from a shell: <code>{plain(it.actions[0].cli, 200)}</code>
        </p>
      )}
    </article>
  );
}

export function Inbox({ most = 20, open = 6 }: { most?: number; open?: number }) {
  useTopics('inbox');
  const list = all();
  const items = topic('inbox').all<Item>();
  return (
    <Panel
      id="inbox"
      class="inbox"
      title={
        <>
          Needs you <b class={`badge ${items.length > 0 ? 'hot' : ''}`}>{items.length}</b>
        </>
      }
      aside={
        <span class="aside keys">
          <kbd>j</kbd> <kbd>k</kbd> move · <kbd>1</kbd>–<kbd>9</kbd> choose
        </span>
      }
    >
      {list.length === 0 ? (
        <Empty known={topic('inbox').known.value}>Nobody waits for you.</Empty>
      ) : (
        list.slice(0, most).map((it, nth) => <Card key={it.key} group={it} nth={nth} open={nth < open} />)
      )}
      {list.length > most && (
        <p class="empty">
          + {list.length - most} more. <a href="/inbox">See them all</a>
        </p>
      )}
    </Panel>
  );
}
