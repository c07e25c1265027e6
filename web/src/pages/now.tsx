import { useSignal } from '@preact/signals';
import { Inbox } from '../inbox';
import { topic } from '../live/client';
import { Lanes } from '../plots/lanes';
import { SpendLine } from '../plots/spend';
import { Trains } from '../plots/train';
import { perform, useTopics } from '../ui';
import type { Action, Head } from '../views';

/** Words to the whole team; what becomes of them is the daemon's to say. */
function Composer({ action }: { action: Action | undefined }) {
  const words = useSignal('');
  const send = async (event: Event) => {
    event.preventDefault();
    const said = words.peek().trim();
    if (said && action && (await perform(action, said))) words.value = '';
  };
  return (
    <form class="composer" onSubmit={send}>
      <input id="composer" aria-label="What should the team do?" placeholder="What should the team do?" value={words.value} onInput={(it) => (words.value = it.currentTarget.value)} maxLength={500} />
      <button type="submit" class="do first" disabled={!action} title={action?.cli}>
        {action?.label ?? 'Add'}
      </button>
    </form>
  );
}

export function Now() {
  useTopics('head');
  const head = topic('head').one<Head>('head');
  void topic('head').changed.value;
  const size = head?.size ?? 'few';
  return (
    <>
      <Composer action={head?.composer} />
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
