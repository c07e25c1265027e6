// The merge queues of all projects. The batches are loaded when a queue has landings.

import { topic } from '../live/client';
import { plain } from '../format';
import { lazy } from '../lazy';
import { ActionButton, Age, Empty, Panel, useTopics } from '../ui';
import type { QueuePage } from '../api';
import './queue-batches.css';

const QueueBatches = lazy<{ queue: QueuePage }>(() => import('./queue-batches').then((module) => module.QueueBatches));

export function TrunkCell({ queue }: { queue: QueuePage }) {
  return (
    <li class="car trunk">
      <div>{queue.trunk}</div>
      <small class="mono">{queue.tip ? queue.tip.slice(0, 10) : 'nothing landed yet'}</small>
    </li>
  );
}

export function MergeQueues() {
  useTopics('queue');
  const queues = topic('queue').all();
  if (queues.length === 0) {
    return (
      <Panel title="Merge queue">
        <Empty known={topic('queue').known.value}>No projects yet.</Empty>
      </Panel>
    );
  }
  return (
    <>
      {queues.map((queue) => (
        <Panel
          key={queue.project}
          title={<a href="/queue">Merge queue</a>}
          aside={
            <span class="aside">
              {queues.length > 1 ? `${queue.project} · ` : ''}
              {queue.held ? `held by ${queue.held.by}: ${plain(queue.held.reason, 100)}` : queue.text}
              {queue.queue.length > 0 && (
                <>
                  {' · oldest '}
                  <Age since={Math.min(...queue.queue.map((landing) => landing.queued_wall))} />
                </>
              )}
              {queue.held && queue.actions.map((action) => <ActionButton key={action.label} action={action} />)}
            </span>
          }
        >
          {queue.queue.length > 0 ? (
            <QueueBatches queue={queue} />
          ) : (
            <ol class="train">
              <TrunkCell queue={queue} />
            </ol>
          )}
        </Panel>
      ))}
    </>
  );
}
