// The merge queue of each project: the landings in it, the work that left it, and what has landed.

import { Callout, EmptyState, ShellLine } from '../components';
import { age, clockTime, plain } from '../format';
import { topic } from '../live/client';
import { QueueBatches, baseText } from '../plots/queue-batches';
import { ActionButton, Age, Mark, Panel, Table, TaskLink, clock, useTopics } from '../ui';
import type { LandingView, OutOfQueueView, QueuePage } from '../api';
import './queue.css';

const MAX_FIXUPS = 3;
const MAX_ROWS = 300;

function Subject({ landing }: { landing: LandingView }) {
  return (
    <td class="subject">
      <TaskLink id={landing.task} /> {plain(landing.subject, 160)}
    </td>
  );
}

/** Returns what is directly ahead of a landing: the base of its batch, or the landing before it. */
export function aheadText(landing: LandingView, queue: QueuePage): string {
  const batch = queue.batches.find((candidate) => candidate.cars.includes(landing.landing));
  const base = batch ? baseText(batch, queue.trunk) : '';
  if (base) return base;
  const before = queue.queue.find((other) => other.position !== null && landing.position !== null && other.position === landing.position - 1);
  return before ? `after ${before.task}` : '';
}

/** Returns when a landing is expected, as text. */
export function expectedText(expected: number | undefined, now: number): string {
  if (expected === undefined) return 'not known';
  return expected > now ? `about ${clockTime(expected, false)}, in ${age(expected - now)}` : 'later than usual';
}

function QueueRow({ landing, queue }: { landing: LandingView; queue: QueuePage }) {
  const actions = queue.each.find((entry) => entry[0] === landing.landing)?.[1] ?? [];
  const expected = queue.expected.find((entry) => entry[0] === landing.landing)?.[1];
  const ahead = aheadText(landing, queue);
  const notes = [landing.detail !== ahead && plain(landing.detail, 200), landing.conflicts > 0 && `conflicts in ${landing.conflicts} files`, landing.fixups > 0 && `fix-up ${landing.fixups} of ${MAX_FIXUPS}`].filter(Boolean);
  return (
    <tr data-row tabIndex={0}>
      <td class="right" data-label="Position">{landing.position ?? ''}</td>
      <Subject landing={landing} />
      <td class="name">{landing.agent}</td>
      <td>
        <Mark at={landing.at} word={landing.state} />
        {landing.at === 'working' && <span class="pulse" aria-hidden="true" />}
      </td>
      <td class="ahead">{ahead}</td>
      <td class="why">{notes.join(' · ')}</td>
      <td class="right" data-label="Queued for">
        <Age since={landing.queued_wall} />
      </td>
      <td class="right" data-label="Expected">{expectedText(expected, clock.value)}</td>
      <td>
        <span class="row">
          {actions.map((action) => (
            <ActionButton key={action.label} action={{ ...action, key: undefined }} />
          ))}
        </span>
      </td>
    </tr>
  );
}

function OutRow({ entry }: { entry: OutOfQueueView }) {
  const landing = entry.landing;
  return (
    <tr data-row tabIndex={0}>
      <Subject landing={landing} />
      <td class="why wide">
        {plain(landing.detail, 240)} {landing.fixups > 0 && `(fix-up ${landing.fixups} of ${MAX_FIXUPS})`}
      </td>
      <td>
        <Mark at={entry.at} word={entry.word} />
      </td>
      <td class="why wide">{plain(entry.next, 200)}</td>
      <td class="right" data-label="Out for">{landing.ended_wall !== undefined && <Age since={landing.ended_wall} />}</td>
      <td>
        <span class="row">
          {entry.actions.map((action) => (
            <ActionButton key={action.label} action={{ ...action, key: undefined, first: false }} />
          ))}
        </span>
      </td>
    </tr>
  );
}

function LandedRow({ landing, lines }: { landing: LandingView; lines: number | undefined }) {
  const ended = landing.ended_wall;
  return (
    <tr data-row tabIndex={0}>
      <td class="mono commit">{landing.commit?.slice(0, 10)}</td>
      <Subject landing={landing} />
      <td class="name">{landing.agent}</td>
      <td class="right" data-label="Files">{landing.files.length}</td>
      <td class="right" data-label="Changed lines">{lines ?? <span class="aside">not counted</span>}</td>
      <td class="right" data-label="Took">{ended === undefined ? '' : age(ended - landing.queued_wall)}</td>
      <td class="right" data-label="Landed">{ended !== undefined && <Age since={ended} />}</td>
      <td>
        {landing.taken_back_by ? (
          <>
            reverted by <TaskLink id={landing.taken_back_by} />
          </>
        ) : (
          <ActionButton action={{ label: 'Undo', verb: 'undo', input: { id: landing.task }, cli: `regatta undo ${landing.task}`, first: false, grave: true }} />
        )}
      </td>
    </tr>
  );
}

/** What stops the queue or differs from what was recorded. */
function Problems({ queue }: { queue: QueuePage }) {
  return (
    <>
      {queue.held && (
        <Callout tone="warning">
          <p>
            ‖ {plain(queue.held.by, 60)} holds the queue: {plain(queue.held.reason, 200)}. Nothing lands until it is released.
          </p>
        </Callout>
      )}
      {queue.trunk_differs && (
        <Callout tone="problem">
          <p>✕ {plain(queue.trunk_differs, 600)}</p>
        </Callout>
      )}
      {queue.unpushed && (
        <Callout tone="problem">
          <p>
            ✕ The landed commits could not be pushed to {plain(queue.unpushed.remote, 80)} for <Age since={queue.unpushed.since_wall} />: {plain(queue.unpushed.reason, 300)}
          </p>
        </Callout>
      )}
    </>
  );
}

function ProjectQueue({ queue }: { queue: QueuePage }) {
  const landed = queue.recent.filter((landing) => landing.commit !== null);
  const lines = new Map(queue.lines ?? []);
  const out = queue.out ?? [];
  return (
    <div class="queue">
      <Panel
        title={`Merge queue of ${queue.project}`}
        aside={
          <>
            <span class="aside">
              {queue.text} · {queue.slots} merge result{queue.slots === 1 ? '' : 's'} tested at the same time
            </span>
            {queue.actions.map((action) => (
              <ActionButton key={action.label} action={action} />
            ))}
            <ShellLine line="regatta queue --all" />
          </>
        }
      >
        <Problems queue={queue} />
        {queue.queue.length === 0 ? (
          <EmptyState title="Nothing waits to land" text={`Finished work is merged here, tested on top of ${plain(queue.trunk, 60)}, and lands only if the tests pass.`}>
            <a class="do" href="/tasks?at=review">
              Tasks in review
            </a>
          </EmptyState>
        ) : (
          <>
            <QueueBatches queue={queue} maxBatches={12} />
            <Table class="stack" heads={['>Position', 'Task', 'Agent', 'State', 'Ahead', 'Detail', '>Queued for', '>Expected to land', 'Actions']}>
              {queue.queue.slice(0, MAX_ROWS).map((landing) => (
                <QueueRow key={landing.landing} landing={landing} queue={queue} />
              ))}
            </Table>
            {queue.queue.length > MAX_ROWS && <p class="empty">{MAX_ROWS} of {queue.queue.length} landings are shown.</p>}
          </>
        )}
      </Panel>
      {out.length > 0 && (
        <Panel title={`Out of the queue: ${out.length}`} aside={<span class="aside">work that left the queue without landing, and whose task is still open</span>}>
          <Table class="stack" heads={['Task', 'Reason', 'State now', 'Next step', '>Out for', 'Actions']}>
            {out.map((entry) => (
              <OutRow key={entry.landing.landing} entry={entry} />
            ))}
          </Table>
        </Panel>
      )}
      <Panel title="Landed" aside={<span class="aside">{landed.length > 0 && `the last ${landed.length} on ${plain(queue.trunk, 60)}`}</span>}>
        {landed.length === 0 ? (
          <p class="empty">Nothing has landed yet.</p>
        ) : (
          <Table class="landed stack" heads={['Commit', 'Task', 'Agent', '>Files', '>Changed lines', '>Took', '>Landed', 'Actions']}>
            {landed.map((landing) => (
              <LandedRow key={landing.landing} landing={landing} lines={lines.get(landing.landing)} />
            ))}
          </Table>
        )}
      </Panel>
    </div>
  );
}

export function Queue() {
  useTopics('queue');
  const queues = topic('queue').all();
  if (queues.length > 0) {
    return (
      <>
        {queues.map((queue) => (
          <ProjectQueue key={queue.project} queue={queue} />
        ))}
      </>
    );
  }
  return (
    <Panel title="Merge queue">
      {topic('queue').known.value ? (
        <EmptyState title="No projects yet" text="This page shows finished work on its way to the trunk: tested one after another, landed only if the tests pass.">
          <ShellLine line="regatta init" />
        </EmptyState>
      ) : (
        <p class="empty">loading…</p>
      )}
    </Panel>
  );
}
