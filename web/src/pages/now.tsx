// The first page: the composer, the inbox, the lanes, the merge queues and the cost of today.

import './now.css';
import { useSignal } from '@preact/signals';
import { Inbox } from '../inbox';
import { lazy } from '../lazy';
import { topic } from '../live/client';
import { SpendLine } from '../plots/spend';
import { MergeQueues } from '../plots/queue';
import { navigate } from '../route';
import { ChoiceSelect, perform, shellHintProps, useTopics, withChoice } from '../ui';
import type { Action } from '../action';
import type { FleetSize, PlanView } from '../api';

// The inbox comes first; the lanes follow when their script is there.
const Lanes = lazy<{ size: FleetSize }>(() => import('../plots/lanes').then((module) => module.Lanes));

/** The input for new work. It becomes a plan, a mission or a task, depending on the actions that the daemon offers. */
function Composer({ actions }: { actions: Action[] }) {
  const text = useSignal('');
  const choice = useSignal('');
  const send = async (shown: Action | undefined) => {
    const goal = text.peek().trim();
    const action = shown && withChoice(shown, choice.peek());
    const after = (result: unknown) => action?.verb === 'plan.ask' && navigate(`/plan/${(result as PlanView).task ?? ''}`);
    if (goal && action && (await perform({ ...action, after }, goal))) text.value = '';
  };
  const [first, ...others] = actions;
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        void send(first);
      }}
    >
      <input id="composer" aria-label="What should the team do?" placeholder="What should the team do?" value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} maxLength={2_000} />
      {first?.choice && text.value.trim() && <ChoiceSelect choice={first.choice} value={choice.value} set={(name) => (choice.value = name)} />}
      <button type="submit" class="do first" disabled={!first} {...shellHintProps(first ? withChoice(first, choice.value).cli : '')}>
        {first?.label ?? 'Plan'}
      </button>
      {others.map((action) => (
        <button key={action.label} type="button" class="do" {...shellHintProps(action.cli)} onClick={() => void send(action)}>
          {action.label}
        </button>
      ))}
    </form>
  );
}

export function Now() {
  useTopics('head');
  const head = topic('head').get('head');
  void topic('head').changed.value;
  const size = head?.size ?? 'few';
  return (
    <>
      <Composer actions={head?.composers ?? []} />
      <div class="now">
        <Inbox maxCards={size === 'many' ? 8 : 12} openCards={size === 'few' ? 12 : 3} />
        <div class="wide">
          <Lanes size={size} />
          <MergeQueues />
          <SpendLine />
        </div>
      </div>
    </>
  );
}
