// The batches of a merge queue. Landings that are tested together share one cell; a failed batch is set apart.

import { plain } from '../format';
import { ActionButton, Age, Mark, Panel, TaskLink } from '../ui';
import './queue-batches.css';
import type { BatchView, LandingView, QueuePage } from '../api';

const MAX_BATCHES = 6;
const MAX_BATCH_MEMBERS = 6;

const BUSY_RIDES = ['testing', 'moving'];

/** Returns the first `maxBatches` batches with their landings, and the number of landings in the other batches. */
export function visibleBatches(queue: QueuePage, maxBatches: number): { batches: [BatchView, LandingView[]][]; more: number } {
  const landings = new Map(queue.queue.map((landing) => [landing.landing, landing]));
  const batches: [BatchView, LandingView[]][] = [];
  let shownCount = 0;
  for (const batch of queue.batches ?? []) {
    if (batches.length >= maxBatches) break;
    const members = batch.cars.flatMap((id) => landings.get(id) ?? []);
    shownCount += members.length;
    batches.push([batch, members]);
  }
  return { batches, more: queue.queue.length - shownCount };
}

function BatchMember({ landing }: { landing: LandingView }) {
  return (
    <li class="carriage">
      <TaskLink id={landing.task} /> <span>{plain(landing.subject, 60)}</span>
      {landing.fixups > 0 && <small>fix-up {landing.fixups} of 3</small>}
    </li>
  );
}

/** Returns the base on which a batch is tested, as text. */
export function baseText(batch: BatchView, trunk: string): string {
  if (batch.on) return `on top of ${batch.on}`;
  return ['testing', 'moving', 'passed'].includes(batch.ride) ? `on ${trunk}` : '';
}

/** Returns why a batch failed, or why its only landing waits. */
function reasonText(batch: BatchView, members: LandingView[]): string {
  if (batch.failed) {
    const firstLine = batch.failed.split('\n')[0] ?? '';
    return members.length > 1 ? `one of these fails: ${firstLine}` : firstLine;
  }
  const isRunning = BUSY_RIDES.includes(batch.ride) || batch.ride === 'passed';
  return members.length === 1 && !isRunning ? (members[0]?.detail ?? '') : '';
}

function BatchCell({ batch, members, trunk }: { batch: BatchView; members: LandingView[]; trunk: string }) {
  const isBusy = BUSY_RIDES.includes(batch.ride);
  const isBad = batch.failed !== undefined || batch.at === 'needs';
  const base = baseText(batch, trunk);
  const why = reasonText(batch, members);
  return (
    <li class={`car ${isBad ? 'bad' : ''} ${isBusy ? 'busy' : ''} ${batch.failed ? 'parted' : ''}`}>
      <div class="car-head">
        <Mark at={batch.failed ? 'failed' : batch.at} word={batch.failed ? 'failed' : batch.state} />
        {members.length > 1 && <small>{members.length} together</small>}
      </div>
      <ol class="cars-of">
        {members.slice(0, MAX_BATCH_MEMBERS).map((landing) => (
          <BatchMember key={landing.landing} landing={landing} />
        ))}
        {members.length > MAX_BATCH_MEMBERS && <li class="carriage dim">{members.length - MAX_BATCH_MEMBERS} more</li>}
      </ol>
      {why && <small class={batch.failed ? 'failure' : ''}>{plain(why, 90)}</small>}
      {base && <small class="base">{base}</small>}
      {isBusy && !batch.failed && <span class="pulse" aria-hidden="true" />}
    </li>
  );
}

function TrunkCell({ queue }: { queue: QueuePage }) {
  return (
    <li class="car trunk">
      <div>{queue.trunk}</div>
      <small class="mono">{queue.tip ? queue.tip.slice(0, 10) : 'nothing landed yet'}</small>
    </li>
  );
}

/** The trunk, followed by the batches in merge order. */
export function QueueBatches({ queue, maxBatches = MAX_BATCHES }: { queue: QueuePage; maxBatches?: number }) {
  const { batches, more } = visibleBatches(queue, maxBatches);
  return (
    <ol class="train" tabIndex={0} aria-label={`Merge queue of ${queue.project}`}>
      <TrunkCell queue={queue} />
      {batches.map(([batch, members]) => (
        <BatchCell key={batch.cars[0]} batch={batch} members={members} trunk={queue.trunk} />
      ))}
      {more > 0 && <li class="car">{more} more</li>}
    </ol>
  );
}

/** A queue as a panel of the first page. */
export function QueuePanel({ queue, withName }: { queue: QueuePage; withName: boolean }) {
  return (
    <Panel
      title={<a href="/queue">Merge queue</a>}
      aside={
        <span class="aside">
          {withName ? `${queue.project} · ` : ''}
          {queue.held ? `held by ${queue.held.by}: ${plain(queue.held.reason, 100)}` : queue.text}
          {queue.queue.length > 0 && (
            <>
              {' · oldest '}
              <Age since={Math.min(...queue.queue.map((landing) => landing.queued_wall))} />
            </>
          )}{' '}
          {queue.held && queue.actions.map((action) => <ActionButton key={action.label} action={action} />)}
        </span>
      }
    >
      <QueueBatches queue={queue} />
    </Panel>
  );
}
