// The merge queue: the trunk in front, who lands next behind it. Cars come when there are some.

import { topic } from '../live/client';
import { plain } from '../format';
import { later } from '../lazy';
import { Age, Do, Empty, Panel, useTopics } from '../ui';
import type { Train } from '../views';

const Track = later<{ of: Train }>(() => import('./queue-batches').then((it) => it.Track));

export function Trunk({ of }: { of: Train }) {
  return (
    <li class="car trunk">
      <div>{of.trunk}</div>
      <small class="mono">{of.tip ? of.tip.slice(0, 10) : 'nothing landed yet'}</small>
    </li>
  );
}

export function Trains() {
  useTopics('queue');
  const trains = topic('queue').all<Train>();
  if (trains.length === 0) {
    return (
      <Panel title="Merge queue">
        <Empty known={topic('queue').known.value}>No project yet.</Empty>
      </Panel>
    );
  }
  return (
    <>
      {trains.map((it) => (
        <Panel
          key={it.project}
          title={<a href="/queue">Merge queue</a>}
          aside={
            <span class="aside">
              {trains.length > 1 ? `${it.project} · ` : ''}
              {it.held ? `held by ${it.held.by}: ${plain(it.held.reason, 100)}` : it.text}
              {it.queue.length > 0 && (
                <>
                  {' · oldest '}
                  <Age since={Math.min(...it.queue.map((one) => one.queued_wall))} />
                </>
              )}
              {it.held && it.actions.map((action) => <Do key={action.label} action={action} />)}
            </span>
          }
        >
          {it.queue.length > 0 ? (
            <Track of={it} />
          ) : (
            <ol class="train">
              <Trunk of={it} />
            </ol>
          )}
        </Panel>
      ))}
    </>
  );
}
