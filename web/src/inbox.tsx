// What needs a person: one card for each, or one for many that ask the same.

import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { named, plain } from './format';
import { topic } from './live/client';
import { Age, Do, Empty, Panel, TaskLink, press, useTopics } from './ui';
import type { Action, Item } from './views';

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

/** Where the chosen card stood: when it is answered and gone, the next one stands there. */
let stood = 0;

/** Moves between the cards. */
export function move(by: number): boolean {
  const list = all();
  if (list.length === 0) return false;
  const at = list.findIndex((it) => it.key === chosen.peek());
  stood = Math.min(list.length - 1, Math.max(0, at < 0 ? stood : at + by));
  chosen.value = list[stood]?.key ?? null;
  return true;
}

/** What may be said to all of a group at once. */
export function answers(group: Group): Action[] {
  return (group.items[0]?.actions ?? []).map((it) => together(group, it));
}

/** What is done about all that ask the same: they are answered in one go, and put off one after the other. */
export function together({ items }: Group, action: Action): Action {
  const [first, ...others] = items;
  if (!first || others.length === 0) return action;
  const label = `${action.label} × ${items.length}`;
  const cli = `${action.cli}, and for ${others.length} more`;
  if (action.verb === 'inbox.answer') return { ...action, label, cli: first.kind === 'permission' ? `${action.cli} --all` : cli, input: { ...action.input, alike: true } };
  const also = others.flatMap((it) => it.actions.filter((one) => one.verb === action.verb && one.label === action.label));
  return { ...action, label, cli, also };
}

/** Presses an answer of the chosen card. With none chosen the first one is, and nothing is decided yet. */
export function choose(meant: (it: Action, nth: number) => boolean): boolean {
  const group = document.querySelector('.card.active') && all().find((it) => it.key === chosen.peek());
  if (!group) {
    const card = document.querySelector<HTMLElement>('.card');
    card?.focus();
    return card !== null;
  }
  const action = answers(group).find(meant);
  if (action) press(action);
  return action !== undefined;
}

/** Where there is more to see of what it is about. */
function About({ it }: { it: Item }) {
  if (it.task) return <TaskLink id={it.task} />;
  const to = it.kind === 'request' ? '/conversations' : it.kind === 'budget' ? '/cost' : it.id.startsWith('bridge:') ? '/setup' : it.agent ? `/agents/${it.agent}` : '';
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
  const active = chosen.value === group.key;
  useEffect(() => {
    // Somebody may have gone on meanwhile.
    if (chosen.peek() === group.key) card.current?.focus();
  }, [active]);
  useEffect(
    // Whoever was at a card that is gone is still where it stood.
    () => () => {
      if (chosen.peek() === group.key && document.activeElement === document.body) (document.getElementById('inbox') ?? document.getElementById('main'))?.focus({ preventScroll: true });
    },
    [],
  );
  if (!it) return null;
  return (
    <article ref={card} class={`card ${active ? 'active' : open ? '' : 'shut'}`} tabIndex={0} aria-label={`${it.kind} ${it.task ?? it.id}`} onFocus={() => ((chosen.value = group.key), (stood = nth))}>
      <header>
        <span class="kind">{it.kind}</span> <About it={it} /> <span class="agent" title={it.agent ?? ''}>
          {named(it.agent ?? '')}
        </span>
        {group.items.length > 1 && <b class="many">× {group.items.length}</b>}
        {it.escalated && <b class="late">waits long</b>}
        <Age since={it.since_wall} />
      </header>
      <pre class="what" tabIndex={it.subject.length > 300 ? 0 : undefined}>
        {plain(it.subject)}
      </pre>
      {open && it.why && <p class="why">{plain(it.why, 300)}</p>}
      {(open || active) && (
        <div class="row">
          {answers(group).map((action, at) => (
            <Do key={action.label} action={action} nth={at + 1} />
          ))}
        </div>
      )}
      {(active || (chosen.value === null && nth === 0)) && it.actions[0] && (
        <p class="cli">
          same from a shell: <code>{plain(together(group, it.actions[0]).cli, 200)}</code>
        </p>
      )}
    </article>
  );
}

/** `3 permission, 1 review`. */
function kinds(list: Group[]): string {
  const counts = new Map<string, number>();
  for (const { items } of list) for (const it of items) counts.set(it.kind, (counts.get(it.kind) ?? 0) + 1);
  return [...counts].map(([kind, many]) => `${many} ${kind}`).join(', ');
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
          + {list.length - most} more: {kinds(list.slice(most))}. <a href="/inbox">See them all</a>
        </p>
      )}
    </Panel>
  );
}
