// The inbox: a card for each item that needs a person. Items with the same question share one card.

import './inbox.css';
import { signal, useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { plain, shortName } from './format';
import { byName, topic } from './live/client';
import { Age, Empty, Panel, TaskLink, press, shellHintProps, useTopics } from './ui';
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

/** Returns the page of an item without a task, or nothing if there is none. */
function subjectPath(item: InboxItemView): string {
  if (item.kind === 'request') return '/conversations';
  if (item.kind === 'budget') return '/cost';
  if (item.id.startsWith('bridge:')) return '/setup';
  return item.agent ? `/agents/${item.agent}` : '';
}

/** A link to the page of the item's subject, and its agent unless the subject is the agent. */
function SubjectLink({ item }: { item: InboxItemView }) {
  const path = subjectPath(item);
  const agent = item.agent && (
    <a class="agent" href={`/agents/${item.agent}`} title={item.agent}>
      {shortName(item.agent)}
    </a>
  );
  if (item.id.startsWith('agent:')) return agent ? <b>{agent}</b> : null;
  return (
    <>
      {item.task ? (
        <TaskLink id={item.task} />
      ) : path ? (
        <a class="id" href={path}>
          {item.id}
        </a>
      ) : (
        <b class="id">{item.id}</b>
      )}{' '}
      {agent}
    </>
  );
}

/** Number of members of a group that its card names. */
const MAX_NAMED_MEMBERS = 6;

/** The members of a group, each with a link to its page. */
function Members({ items }: { items: InboxItemView[] }) {
  const isAll = useSignal(false);
  const nameOf = (item: InboxItemView) => item.task ?? item.agent ?? item.id;
  const sorted = [...items].sort((a, b) => byName(nameOf(a), nameOf(b)));
  const shown = isAll.value ? sorted : sorted.slice(0, MAX_NAMED_MEMBERS);
  return (
    <p class="members">
      {shown.map((item) => {
        const path = item.task ? `/t/${item.task}` : subjectPath(item);
        return (
          <a key={item.id} href={path || '/inbox'} title={item.agent ?? ''}>
            {shortName(nameOf(item))}
          </a>
        );
      })}
      {items.length > shown.length && (
        <button type="button" class="plain" onClick={() => (isAll.value = true)}>
          and {items.length - shown.length} more
        </button>
      )}
    </p>
  );
}

/** The size of the change that waits for a review, and the files that only a person may let through. */
function ChangeFacts({ change }: { change: NonNullable<InboxItemView['change']> }) {
  const guarded = change.guarded ?? [];
  return (
    <div class="facts">
      <span>
        {change.added !== undefined && (
          <>
            <b class="good">+{change.added}</b> <b class="bad">−{change.removed ?? 0}</b> in{' '}
          </>
        )}
        {change.files} {change.files === 1 ? 'file' : 'files'}
      </span>
      {guarded.length > 0 && (
        <span class="guarded">
          ! {plain(guarded.slice(0, 2).join(', '), 200)}
          {guarded.length > 2 && ` and ${guarded.length - 2} more`}
        </span>
      )}
    </div>
  );
}

/** What the group asks: the exact request, the change to review, or the cause that its items share. */
function Matter({ group, isOpen }: { group: Group; isOpen: boolean }) {
  const item = group.items[0] as InboxItemView;
  const cause = item.cause;
  const count = group.items.length;
  if (cause && cause.class !== 'request' && (count > 1 || item.id.startsWith('agent:')))
    return (
      <>
        <p class="headline">
          {count > 1 && (
            <b>
              {count} {cause.noun}:{' '}
            </b>
          )}
          {plain(cause.text, 400)}
        </p>
        {isOpen && cause.fix && <p class="why">fix: {plain(cause.fix, 400)}</p>}
        {isOpen && count > 1 && <Members items={group.items} />}
      </>
    );
  if (item.change)
    return (
      <>
        <p class="headline">{plain(item.subject, 300)}</p>
        <ChangeFacts change={item.change} />
        {isOpen && !item.change.guarded?.length && item.why && <p class="why">{plain(item.why, 300)}</p>}
      </>
    );
  const isRequest = item.ask !== undefined;
  return (
    <>
      {isRequest ? (
        <pre class={`what ${item.kind === 'question' ? 'prose' : ''}`} tabIndex={item.subject.length > 300 ? 0 : undefined}>
          {plain(item.subject)}
        </pre>
      ) : (
        <p class="headline">{plain(item.subject, 600)}</p>
      )}
      {isOpen && item.why && <p class="why">{plain(item.why, 400)}</p>}
    </>
  );
}

/** A button of a card. A long choice wraps, because a person must be able to read what they choose. */
function ChoiceButton({ action, index }: { action: Action; index: number }) {
  const isLong = action.label.length > 40;
  return (
    <button type="button" class={`do ${action.first ? 'first' : ''} ${action.grave ? 'grave' : ''} ${isLong ? 'long' : ''}`} {...shellHintProps(action.cli)} onClick={() => press(action)}>
      <span>{plain(action.label, 600)}</span> {index <= 9 && <kbd>{action.key ?? index}</kbd>}
    </button>
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
        <span class="kind">{item.kind.replace('_', ' ')}</span>
        {group.items.length > 1 && item.cause?.class !== 'request' ? null : <SubjectLink item={item} />}
        {group.items.length > 1 && item.cause?.class === 'request' && <b class="many">× {group.items.length}</b>}
        {item.escalated && <b class="late">overdue</b>}
        <Age since={item.since_wall} />
      </header>
      <Matter group={group} isOpen={isOpen || active} />
      {(isOpen || active) && (
        <div class="row">
          {groupActions(group).map((action, at) => (
            <ChoiceButton key={action.label} action={action} index={at + 1} />
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
          {list.length < items.length && <span class="aside"> {list.length === 1 ? 'one cause' : `${list.length} decisions`}</span>}
        </>
      }
      aside={
        <span class="aside keys">
          <kbd>j</kbd> <kbd>k</kbd> <span>move ·</span> <kbd>1</kbd>–<kbd>9</kbd> <span>choose</span>
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
