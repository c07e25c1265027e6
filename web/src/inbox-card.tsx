// A card of the inbox: what its items ask, the cause that they share, and the buttons that answer all of them.

import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { plain, shortName } from './format';
import { type Group, chooseCard, chosenGroup, groupAction, groupActions } from './inbox';
import { byName } from './live/client';
import { Age, TaskLink, press, shellHintProps } from './ui';
import type { Action } from './action';
import type { InboxItemView } from './api';

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
    <article ref={card} class={`card ${active ? 'active' : isOpen ? '' : 'shut'}`} tabIndex={0} aria-label={`${item.kind} ${item.task ?? item.id}`} onFocus={() => chooseCard(group.key, index)}>
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
