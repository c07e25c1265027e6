// The cost of today. The chart is loaded when an agent has reported a price.

import { forecastText } from '../format';
import { lazy } from '../lazy';
import { topic } from '../live/client';
import { Panel, clock, useTopics } from '../ui';
import type { TodaySpendView } from '../api';

const SpendChart = lazy<{ spending: TodaySpendView; now: number; yAt: (micro: number) => number; text: string; top: number; height: number }>(() => import('./spend-chart').then((module) => module.SpendChart));

export function SpendLine({ height = 90 }: { height?: number }) {
  useTopics('spend');
  const spending = topic('spend').get('spend');
  void topic('spend').changed.value;
  const now = clock.value;
  const top = spending ? Math.max(spending.cap ?? 0, ...spending.line.map((point) => point[1])) : 0;
  const yAt = (micro: number) => height - 4 - (micro / Math.max(1, top)) * (height - 12);
  const text = spending ? `${spending.text}${spending.forecast ? ` · ${forecastText(spending.forecast)}` : ''}` : '';
  return (
    <Panel title={<a href="/cost">Spend today</a>} aside={<span class={`aside ${spending?.forecast?.when === 'reached' ? 'bad' : ''}`}>{text}</span>}>
      {spending?.line.some((point) => point[1] > 0) ? <SpendChart spending={spending} now={now} yAt={yAt} text={text} top={top} height={height} /> : <p class="empty">{spending ? 'No agent has reported a price today.' : 'loading…'}</p>}
    </Panel>
  );
}
