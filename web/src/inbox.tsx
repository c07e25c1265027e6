// The inbox: a card for each item that needs a person. Items with the same question share one card.

import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { plain, shortName } from './format';
import { topic } from './live/client';
import { ActionButton, Age, Empty, Panel, TaskLink, press, useTopics } from './ui';
import type { Action } from './action';
import type { InboxItemView } from './api';

/** The key of the group whose card receives the digit keys. */
export const chosenGroup = signal<string | null>(null);

export interface Group {
  key: string;
  items: InboxItemView[];
}

/** Groups items that ask the same, longest waiting first. */
export function groupItems(items: InboxItemView[]): Group[] {
  const found = new Map<string, InboxItemView[]>();
  for (const item of [...items].sort((a, b) => a.since_wall - b.since_wall)) {
    const same = found.get(item.group);
    if (same) same.push(item);
    else found.set(item.group, [item]);
  }
  return [...found].map(([key, items]) => ({ key, items }));
}

function allGroups(): Group[] {
  return groupItems(topic('inbox').all());
}

/** The position of the chosen card. After it is answered and removed, the next card has this position. */
let lastIndex = 0;

/** Chooses the card `by` positions away. Returns false if there is no card. */
export function moveChoice(by: number): boolean {
  const list = allGroups();
  if (list.length === 0) return false;
  const current = list.findIndex((group) => group.key === chosenGroup.peek());
  lastIndex = Math.min(list.length - 1, Math.max(0, current < 0 ? lastIndex : current + by));
  chosenGroup.value = list[lastIndex]?.key ?? null;
  return true;
}

/** Returns the actions for all items of a group at once. */
export function groupActions(group: Group): Action[] {
  return (group.items[0]?.actions ?? []).map((action) => groupAction(group, action));
}

/** Returns an action for all items of a group. One call answers all of them; other verbs are called per item. */
export function groupAction({ items }: Group, action: Action): Action {
  const [first, ...others] = items;
  if (!first || others.length === 0) return action;
  const label = `${action.label} × ${items.length}`;
  const cli = `${action.cli}, and the same for ${others.length} more`;
  if (action.verb === 'inbox.answer') return { ...action, label, cli: first.kind === 'permission' ? `${action.cli} --all` : cli, input: { ...action.input, alike: true } };
  const otherActions = others.flatMap((item) => item.actions.filter((candidate) => candidate.verb === action.verb && candidate.label === action.label));
  return { ...action, label, cli, also: otherActions };
}

/** Presses an action of the chosen card. Without a chosen card, it only chooses the first card. */
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

/** Returns the page of an item without a task, or nothing if there is none. */
function subjectPath(item: InboxItemView): string {
  if (item.kind === 'request') return '/conversations';
  if (item.kind === 'budget') return '/cost';
  if (item.id.startsWith('bridge:')) return '/setup';
  return item.agent ? `/agents/${item.agent}` : '';
}

/** A link to the page of the item's subject. */
function SubjectLink({ item }: { item: InboxItemView }) {
  if (item.task) return <TaskLink id={item.task} />;
  const path = subjectPath(item);
  return path ? (
    <a class="id" href={path}>
      {item.id}
    </a>
  ) : (
    <b class="id">{item.id}</b>
  );
}

export function Card({ group, index, isOpen }: { group: Group; index: number; isOpen: boolean }) {
  const item = group.items[0];
  const card = useRef<HTMLElement>(null);
  const active = chosenGroup.value === group.key;
  useEffect(() => {
    // Another card may have been chosen in the meantime.
    if (chosenGroup.peek() === group.key) card.current?.focus();
  }, [active]);
  useEffect(
    // When the focused card is removed, focus the inbox, so that the keyboard position is kept.
    () => () => {
      if (chosenGroup.peek() === group.key && document.activeElement === document.body) (document.getElementById('inbox') ?? document.getElementById('main'))?.focus({ preventScroll: true });
    },
    [],
  );
  if (!item) return null;
  return (
    <article ref={card} class={`card ${active ? 'active' : isOpen ? '' : 'shut'}`} tabIndex={0} aria-label={`${item.kind} ${item.task ?? item.id}`} onFocus={() => ((chosenGroup.value = group.key), (lastIndex = index))}>
      <header>
        <span class="kind">{item.kind}</span> <SubjectLink item={item} /> <span class="agent" title={item.agent ?? ''}>
          {shortName(item.agent ?? '')}
        </span>
        {group.items.length > 1 && <b class="many">× {group.items.length}</b>}
        {item.escalated && <b class="late">overdue</b>}
        <Age since={item.since_wall} />
      </header>
      <pre class="what" tabIndex={item.subject.length > 300 ? 0 : undefined}>
        {plain(item.subject)}
      </pre>
      {isOpen && item.why && <p class="why">{plain(item.why, 300)}</p>}
      {(isOpen || active) && (
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

/** Returns the number of items per kind: `3 permission, 1 review`. */
function kindCounts(list: Group[]): string {
  const counts = new Map<string, number>();
  for (const { items } of list) for (const item of items) counts.set(item.kind, (counts.get(item.kind) ?? 0) + 1);
  return [...counts].map(([kind, count]) => `${count} ${kind}`).join(', ');
}

export function Inbox({ maxCards = 20, openCards = 6 }: { maxCards?: number; openCards?: number }) {
  useTopics('inbox');
  const list = allGroups();
  const items = topic('inbox').all();
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
        <Empty known={topic('inbox').known.value}>Nothing needs you.</Empty>
      ) : (
        list.slice(0, maxCards).map((group, index) => <Card key={group.key} group={group} index={index} isOpen={index < openCards} />)
      )}
      {list.length > maxCards && (
        <p class="empty">
          + {list.length - maxCards} more: {kindCounts(list.slice(maxCards))}. <a href="/inbox">See them all</a>
        </p>
      )}
    </Panel>
  );
}
