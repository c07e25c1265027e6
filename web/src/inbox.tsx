// What needs a person: one card for each, or one for many that ask the same.

import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { shortName, plain } from './format';
import { topic } from './live/client';
import { Age, ActionButton, Empty, Panel, TaskLink, press, useTopics } from './ui';
import type { Action, Item } from './views';

/** The card that the digits speak to. */
export const chosenGroup = signal<string | null>(null);

export interface Group {
  key: string;
  items: Item[];
}

/** Items that ask the same, longest waiting first. */
export function groupItems(items: Item[]): Group[] {
  const found = new Map<string, Item[]>();
  for (const item of [...items].sort((a, b) => a.since_wall - b.since_wall)) {
    const same = found.get(item.group);
    if (same) same.push(item);
    else found.set(item.group, [item]);
  }
  return [...found].map(([key, items]) => ({ key, items }));
}

function allGroups(): Group[] {
  return groupItems(topic('inbox').all<Item>());
}

/** Where the chosen card stood: when it is answered and gone, the next one stands there. */
let lastIndex = 0;

/** Moves between the cards. */
export function moveChoice(by: number): boolean {
  const list = allGroups();
  if (list.length === 0) return false;
  const current = list.findIndex((group) => group.key === chosenGroup.peek());
  lastIndex = Math.min(list.length - 1, Math.max(0, current < 0 ? lastIndex : current + by));
  chosenGroup.value = list[lastIndex]?.key ?? null;
  return true;
}

/** What may be said to all of a group at once. */
export function groupActions(group: Group): Action[] {
  return (group.items[0]?.actions ?? []).map((action) => groupAction(group, action));
}

/** What is done about all that ask the same: they are answered in one go, and put off one after the other. */
export function groupAction({ items }: Group, action: Action): Action {
  const [first, ...others] = items;
  if (!first || others.length === 0) return action;
  const label = `${action.label} × ${items.length}`;
  const cli = `${action.cli}, and for ${others.length} more`;
  if (action.verb === 'inbox.answer') return { ...action, label, cli: first.kind === 'permission' ? `${action.cli} --all` : cli, input: { ...action.input, alike: true } };
  const otherActions = others.flatMap((item) => item.actions.filter((candidate) => candidate.verb === action.verb && candidate.label === action.label));
  return { ...action, label, cli, also: otherActions };
}

/** Presses an answer of the chosen card. With none chosen the first one is, and nothing is decided yet. */
export function pressAction(matches: (action: Action, index: number) => boolean): boolean {
  const group = document.querySelector('.card.active') && allGroups().find((group) => group.key === chosenGroup.peek());
  if (!group) {
    const card = document.querySelector<HTMLElement>('.card');
    card?.focus();
    return card !== null;
  }
  const action = groupActions(group).find(matches);
  if (action) press(action);
  return action !== undefined;
}

/** Where there is more to see of what it is about. */
function SubjectLink({ item }: { item: Item }) {
  if (item.task) return <TaskLink id={item.task} />;
  const to = item.kind === 'request' ? '/conversations' : item.kind === 'budget' ? '/cost' : item.id.startsWith('bridge:') ? '/setup' : item.agent ? `/agents/${item.agent}` : '';
  return to ? (
    <a class="id" href={to}>
      {item.id}
    </a>
  ) : (
    <b class="id">{item.id}</b>
  );
}

export function Card({ group, index, openCards }: { group: Group; index: number; openCards: boolean }) {
  const item = group.items[0];
  const card = useRef<HTMLElement>(null);
  const active = chosenGroup.value === group.key;
  useEffect(() => {
    // Somebody may have gone on meanwhile.
    if (chosenGroup.peek() === group.key) card.current?.focus();
  }, [active]);
  useEffect(
    // Whoever was at a card that is gone is still where it stood.
    () => () => {
      if (chosenGroup.peek() === group.key && document.activeElement === document.body) (document.getElementById('inbox') ?? document.getElementById('main'))?.focus({ preventScroll: true });
    },
    [],
  );
  if (!item) return null;
  return (
    <article ref={card} class={`card ${active ? 'active' : openCards ? '' : 'shut'}`} tabIndex={0} aria-label={`${item.kind} ${item.task ?? item.id}`} onFocus={() => ((chosenGroup.value = group.key), (lastIndex = index))}>
      <header>
        <span class="kind">{item.kind}</span> <SubjectLink item={item} /> <span class="agent" title={item.agent ?? ''}>
          {shortName(item.agent ?? '')}
        </span>
        {group.items.length > 1 && <b class="many">× {group.items.length}</b>}
        {item.escalated && <b class="late">waits long</b>}
        <Age since={item.since_wall} />
      </header>
      <pre class="what" tabIndex={item.subject.length > 300 ? 0 : undefined}>
        {plain(item.subject)}
      </pre>
      {openCards && item.why && <p class="why">{plain(item.why, 300)}</p>}
      {(openCards || active) && (
        <div class="row">
          {groupActions(group).map((action, at) => (
            <ActionButton key={action.label} action={action} index={at + 1} />
          ))}
        </div>
      )}
      {(active || (chosenGroup.value === null && index === 0)) && item.actions[0] && (
        <p class="cli">
          same from a shell: <code>{plain(groupAction(group, item.actions[0]).cli, 200)}</code>
        </p>
      )}
    </article>
  );
}

/** `3 permission, 1 review`. */
function kindCounts(list: Group[]): string {
  const counts = new Map<string, number>();
  for (const { items } of list) for (const item of items) counts.set(item.kind, (counts.get(item.kind) ?? 0) + 1);
  return [...counts].map(([kind, count]) => `${count} ${kind}`).join(', ');
}

export function Inbox({ maxCards = 20, openCards = 6 }: { maxCards?: number; openCards?: number }) {
  useTopics('inbox');
  const list = allGroups();
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
        list.slice(0, maxCards).map((group, index) => <Card key={group.key} group={group} index={index} openCards={index < openCards} />)
      )}
      {list.length > maxCards && (
        <p class="empty">
          + {list.length - maxCards} more: {kindCounts(list.slice(maxCards))}. <a href="/inbox">See them all</a>
        </p>
      )}
    </Panel>
  );
}
