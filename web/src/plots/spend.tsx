// The cost of today. The chart is loaded when an agent has reported a price.

import { forecastText } from '../format';
import { lazy } from '../lazy';
import { topic } from '../live/client';
import { Panel, clock, useTopics } from '../ui';
import type { TodaySpendView } from '../api';

const SpendChart = lazy<{ spending: TodaySpendView; now: number; text: string; height: number }>(() => import('./spend-chart').then((module) => module.SpendChart));

export function SpendLine({ height = 150 }: { height?: number }) {
  useTopics('spend');
  const spending = topic('spend').get('spend');
  void topic('spend').changed.value;
  const text = spending ? `${spending.text}${spending.forecast ? ` · ${forecastText(spending.forecast)}` : ''}` : '';
  return (
    <Panel title={<a href="/cost">Spend today</a>} aside={<span class={`aside ${spending?.forecast?.when === 'reached' ? 'bad' : ''}`}>{text}</span>}>
      {spending?.line.some((point) => point[1] > 0) ? <SpendChart spending={spending} now={clock.value} text={text} height={height} /> : <p class="empty">{spending ? 'No agent has reported a price today.' : 'loading…'}</p>}
    </Panel>
  );
}
