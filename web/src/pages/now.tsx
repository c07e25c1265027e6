import { useSignal } from '@preact/signals';
import { Inbox } from '../inbox';
import { later } from '../lazy';
import { topic } from '../live/client';
import { Lanes } from '../plots/lanes';
import { SpendLine } from '../plots/spend';
import { Trains } from '../plots/queue';
import { go } from '../route';
import { Choose, chosen, perform, says, useTopics } from '../ui';
import type { Action, Head, Plan } from '../views';

/** Words to the whole team: a plan to look at, a mission for a lead, or a task. The daemon says which there are. */
function Composer({ actions }: { actions: Action[] }) {
  const words = useSignal('');
  const choice = useSignal('');
  const send = async (shown: Action | undefined) => {
    const said = words.peek().trim();
    const action = shown && chosen(shown, choice.peek());
    const after = (made: unknown) => action?.verb === 'plan.ask' && go(`/plan/${(made as Plan).task ?? ''}`);
    if (said && action && (await perform({ ...action, after }, said))) words.value = '';
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
      <input id="composer" aria-label="What should the team do?" placeholder="What should the team do?" value={words.value} onInput={(it) => (words.value = it.currentTarget.value)} maxLength={2_000} />
      {first?.choice && words.value.trim() && <Choose of={first.choice} value={choice.value} set={(name) => (choice.value = name)} />}
      <button type="submit" class="do first" disabled={!first} {...says(first ? chosen(first, choice.value).cli : '')}>
        {first?.label ?? 'Plan'}
      </button>
      {others.map((it) => (
        <button key={it.label} type="button" class="do" {...says(it.cli)} onClick={() => void send(it)}>
          {it.label}
        </button>
      ))}
    </form>
  );
}

const First = later(() => import('../first-steps').then((it) => it.First));

export function Now() {
  useTopics('head');
  const head = topic('head').one<Head>('head');
  void topic('head').changed.value;
  const size = head?.size ?? 'few';
  if (head?.projects.length === 0)
    return (
      <>
        <First />
        {head.needs_you > 0 && <Inbox />}
      </>
    );
  return (
    <>
      <Composer actions={head?.composers ?? []} />
      <div class="now">
        <Inbox most={size === 'many' ? 8 : 12} open={size === 'few' ? 12 : 3} />
        <div class="wide">
          <Lanes size={size} />
          <Trains />
          <SpendLine />
        </div>
      </div>
    </>
  );
}
