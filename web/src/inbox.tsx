// The inbox: what needs a person, in groups with the same cause. The cards of the groups are in inbox-card.tsx.

import './inbox.css';
import { signal } from '@preact/signals';
import { lazy } from './lazy';
import { topic } from './live/client';
import { Empty, Panel, press, useTopics } from './ui';
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
  if (!first || others.length === 0 || action.to) return action;
  const [words, ellipsis] = action.label.endsWith('…') ? [action.label.slice(0, -1), '…'] : [action.label, ''];
  const isRequest = !first.cause || first.cause.class === 'request';
  // "Resume all 30", "Choose a model for all 30…", "Wait 15 min, all 19".
  const joint = /\d/.test(words) ? ', all' : words.includes(' ') ? ' for all' : ' all';
  const label = isRequest ? `${words} × ${items.length}${ellipsis}` : `${words}${joint} ${items.length}${ellipsis}`;
  if (action.verb === 'inbox.answer') return { ...action, label, cli: first.kind === 'permission' ? `${action.cli} --all` : sharedCli(action, others.length), input: { ...action.input, alike: true } };
  const otherActions = others.flatMap((item) => item.actions.filter((candidate) => candidate.verb === action.verb && candidate.label === action.label));
  // The command resume takes several names, so one line resumes all agents.
  const names = action.verb === 'resume' ? otherActions.map((other) => ` ${String(other.input.id)}`).join('') : '';
  return { ...action, label, cli: names ? action.cli + names : sharedCli(action, others.length), also: otherActions };
}

const sharedCli = (action: Action, count: number) => `${action.cli}, and the same for ${count} more`;

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

/** The position of a card that has the focus. */
export function chooseCard(key: string, index: number): void {
  chosenGroup.value = key;
  lastIndex = index;
}

/** A card. Its code is loaded when the first item needs a person. */
export const Card = lazy<{ group: Group; index: number; isOpen: boolean }>(() => import('./inbox-card').then((module) => module.Card));

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
          {list.length < items.length && <span class="aside"> {list.length === 1 ? 'one cause' : `${list.length} decisions`}</span>}
        </>
      }
      aside={
        list.length > 0 && (
          <span class="aside keys">
            <kbd>j</kbd> <kbd>k</kbd> <span>move ·</span> <kbd>1</kbd>–<kbd>9</kbd> <span>choose</span>
          </span>
        )
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
