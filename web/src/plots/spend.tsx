// The cost of today. The panel with the chart is loaded when an agent has reported a price.

import { lazy } from '../lazy';
import { topic } from '../live/client';
import { Panel, useTopics } from '../ui';
import type { TodaySpendView } from '../api';

const SpendPanel = lazy<{ spending: TodaySpendView; height: number }>(() => import('./spend-chart').then((module) => module.SpendPanel));

export function SpendLine({ height = 150 }: { height?: number }) {
  useTopics('spend');
  const spending = topic('spend').get('spend');
  void topic('spend').changed.value;
  if (spending?.line.some((point) => point[1] > 0)) return <SpendPanel spending={spending} height={height} />;
  return (
    <Panel title={<a href="/cost">Spend today</a>} aside={<span class="aside">{spending?.text}</span>}>
      <p class="empty">{spending ? 'No agent has reported a price today.' : 'loading…'}</p>
    </Panel>
  );
}
