// The merge queue as a train: the trunk in front, who lands next behind it.

import { topic } from '../live/client';
import { plain } from '../format';
import { Age, Do, Empty, Panel, TaskLink, useTopics } from '../ui';
import type { Landing, Train } from '../views';

const CARS = 6;

function Car({ it }: { it: Landing }) {
  const out = it.state === 'out' || it.state === 'held';
  const busy = it.state === 'testing' || it.state.startsWith('moving');
  return (
    <li class={`car ${out ? 'bad' : ''} ${busy ? 'busy' : ''}`}>
      <div>
        <TaskLink id={it.task} /> {it.state}
      </div>
      <small>{plain(it.detail || it.subject, 90)}</small>
      {it.fixups > 0 && <small>fix-up {it.fixups} of 3</small>}
      {busy && <span class="pulse" aria-hidden="true" />}
    </li>
  );
}

/** The trunk, and who lands next behind it. What is tested together on one base stands together. */
export function Track({ of }: { of: Train }) {
  return (
    <ol class="train" tabIndex={0} aria-label={`Merge queue of ${of.project}`}>
      <li class="car trunk">
        <div>{of.trunk}</div>
        <small class="mono">{of.tip ? of.tip.slice(0, 10) : 'nothing landed yet'}</small>
      </li>
      {of.queue.slice(0, CARS).map((it) => (
        <Car key={it.landing} it={it} />
      ))}
      {of.queue.length > CARS && <li class="car">{of.queue.length - CARS} more</li>}
    </ol>
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
          <Track of={it} />
        </Panel>
      ))}
    </>
  );
}
