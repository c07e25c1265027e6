// The cars of a merge queue: what is tried together stands on one base; where a train failed, the track is parted.

import { plain } from '../format';
import { TaskLink } from '../ui';
import type { Batch, Landing, Train } from '../views';
import { Trunk } from './queue';

const CARS = 6;
const STACK = 6;

const BUSY = ['testing', 'moving'];

/** Those of the first batches that fit, and how many are left out. */
export function shown(of: Train, most: number): { batches: [Batch, Landing[]][]; more: number } {
  const cars = new Map(of.queue.map((it) => [it.landing, it]));
  const batches: [Batch, Landing[]][] = [];
  let many = 0;
  for (const batch of of.batches ?? []) {
    if (batches.length >= most) break;
    const of = batch.cars.flatMap((id) => cars.get(id) ?? []);
    many += of.length;
    batches.push([batch, of]);
  }
  return { batches, more: of.queue.length - many };
}

function Car({ it }: { it: Landing }) {
  return (
    <li class="carriage">
      <TaskLink id={it.task} /> <span>{plain(it.subject, 60)}</span>
      {it.fixups > 0 && <small>fix-up {it.fixups} of 3</small>}
    </li>
  );
}

function Stack({ of, cars }: { of: Batch; cars: Landing[] }) {
  const busy = BUSY.includes(of.ride);
  const bad = of.ride === 'searching' || of.ride === 'held';
  const on = of.on ? `on top of ${of.on}` : of.ride === 'testing' || of.ride === 'moving' || of.ride === 'passed' ? 'on the trunk' : '';
  const one = cars.length === 1 ? cars[0] : undefined;
  const why = of.failed ? (cars.length > 1 ? 'one of these breaks it: ' : '') + (of.failed.split('\n')[0] ?? '') : one && !busy && of.ride !== 'passed' ? one.detail : '';
  return (
    <li class={`car ${bad ? 'bad' : ''} ${busy ? 'busy' : ''} ${of.failed ? 'parted' : ''} ride-${of.ride}`}>
      <div>
        {of.state} {cars.length > 1 && <small class="many-cars">{cars.length} together</small>}
      </div>
      <ol class="cars-of">
        {cars.slice(0, STACK).map((it) => (
          <Car key={it.landing} it={it} />
        ))}
        {cars.length > STACK && <li class="carriage dim">{cars.length - STACK} more</li>}
      </ol>
      {why && <small>{plain(why, 90)}</small>}
      {on && <small class="base">{on}</small>}
      {busy && <span class="pulse" aria-hidden="true" />}
    </li>
  );
}

/** The trunk, and who lands next behind it. What is tested together on one base stands together. */
export function Track({ of, most = CARS }: { of: Train; most?: number }) {
  const { batches, more } = shown(of, most);
  return (
    <ol class="train" tabIndex={0} aria-label={`Merge queue of ${of.project}`}>
      <Trunk of={of} />
      {batches.map(([batch, cars]) => (
        <Stack key={batch.cars[0]} of={batch} cars={cars} />
      ))}
      {more > 0 && <li class="car">{more} more</li>}
    </ol>
  );
}
