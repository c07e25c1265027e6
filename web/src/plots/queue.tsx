// The merge queues of all projects on the first page. The panel of a queue is loaded when the queue has landings or is
// held.

import { topic } from '../live/client';
import { lazy } from '../lazy';
import { Empty, Panel, useTopics } from '../ui';
import type { QueuePage } from '../api';

const QueuePanel = lazy<{ queue: QueuePage; withName: boolean }>(() => import('./queue-batches').then((module) => module.QueuePanel));

export function MergeQueues() {
  useTopics('queue');
  const queues = topic('queue').all();
  const busy = queues.filter((queue) => queue.queue.length > 0 || queue.held);
  if (busy.length > 0) {
    return (
      <>
        {busy.map((queue) => (
          <QueuePanel key={queue.project} queue={queue} withName={queues.length > 1} />
        ))}
      </>
    );
  }
  return (
    <Panel title={<a href="/queue">Merge queue</a>}>
      <Empty known={topic('queue').known.value}>{queues.length === 0 ? 'No projects yet.' : 'Nothing waits to land.'}</Empty>
    </Panel>
  );
}
