import { useSignal } from '@preact/signals';
import { Inbox } from '../inbox';
import { topic } from '../live/client';
import { Lanes } from '../plots/lanes';
import { SpendLine } from '../plots/spend';
import { Trains } from '../plots/train';
import { call } from '../session';
import { complain, toast, useTopics } from '../ui';
import type { Head } from '../views';

/** What should be done, in words: it becomes a task that a person or a plan takes up. */
function Composer() {
  const words = useSignal('');
  const busy = useSignal(false);
  const send = async (event: Event) => {
    event.preventDefault();
    const subject = words.peek().trim();
    if (!subject || busy.peek()) return;
    busy.value = true;
    try {
      const task = await call<{ id: string }>('task.add', { subject, backlog: true });
      words.value = '';
      toast(true, `${task.id} is in the backlog`, `regatta edit ${task.id} --ready`);
    } catch (error) {
      complain(error);
    } finally {
      busy.value = false;
    }
  };
  return (
    <form class="composer" onSubmit={send}>
      <input id="composer" aria-label="What should the team do?" placeholder="What should the team do?" value={words.value} onInput={(it) => (words.value = it.currentTarget.value)} maxLength={500} />
      <button type="submit" class="do first" disabled={busy.value} title={'regatta add "…" --backlog'}>
        Add
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
      <Composer />
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
