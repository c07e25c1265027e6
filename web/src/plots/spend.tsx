// What today cost: a line, as soon as somebody reported a price.

import { forecast } from '../format';
import { later } from '../lazy';
import { topic } from '../live/client';
import { Panel, clock, useTopics } from '../ui';
import type { Spending } from '../views';

const Drawn = later<{ of: Spending; now: number; at: (micro: number) => number; text: string; most: number; height: number }>(() => import('./spend-chart').then((it) => it.Drawn));

export function SpendLine({ height = 90 }: { height?: number }) {
  useTopics('spend');
  const it = topic('spend').one<Spending>('spend');
  void topic('spend').changed.value;
  const now = clock.value;
  const most = it ? Math.max(it.cap ?? 0, ...it.line.map((one) => one[1])) : 0;
  const at = (micro: number) => height - 4 - (micro / Math.max(1, most)) * (height - 12);
  const text = it ? `${it.text}${it.forecast ? ` · ${forecast(it.forecast)}` : ''}` : '';
  return (
    <Panel title={<a href="/cost">Spend today</a>} aside={<span class={`aside ${it?.forecast?.when === 'reached' ? 'bad' : ''}`}>{text}</span>}>
      {it?.line.some((one) => one[1] > 0) ? <Drawn of={it} now={now} at={at} text={text} most={most} height={height} /> : <p class="empty">{it ? 'No agent reported a price today.' : 'asking the daemon…'}</p>}
    </Panel>
  );
}
