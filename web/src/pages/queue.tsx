// The merge queue of each project: the landings in it, and the ones that left it.

import { age, plain } from '../format';
import { topic } from '../live/client';
import { QueueBatches } from '../plots/queue-batches';
import { ActionButton, Age, Empty, Mark, Panel, Table, TaskLink, clock, useTopics } from '../ui';
import type { LandingView, QueuePage } from '../api';

function QueueRow({ landing, queue }: { landing: LandingView; queue: QueuePage }) {
  const actions = queue.each.find((entry) => entry[0] === landing.landing)?.[1] ?? [];
  const expected = queue.expected.find((entry) => entry[0] === landing.landing)?.[1];
  return (
    <tr data-row tabIndex={0}>
      <td class="right">{landing.position ?? ''}</td>
      <td>
        <TaskLink id={landing.task} />
      </td>
      <td class="subject">{plain(landing.subject, 160)}</td>
      <td>{landing.agent}</td>
      <td>
        <Mark at={landing.at} word={landing.state} />
        {landing.at === 'working' && <span class="pulse" aria-hidden="true" />}
      </td>
      <td class="dim">
        {plain(landing.detail, 200)} {landing.conflicts > 0 && `conflicts in ${landing.conflicts} files`} {landing.fixups > 0 && `fix-up ${landing.fixups} of 3`}
      </td>
      <td class="right">
        <Age since={landing.queued_wall} />
      </td>
      <td class="right">{expected === undefined ? '–' : expected > clock.value ? `about ${age(expected - clock.value)}` : 'overdue'}</td>
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

export function Queue() {
  useTopics('queue');
  const queues = topic('queue').all();
  if (queues.length === 0) {
    return (
      <Panel title="Merge queue">
        <Empty known={topic('queue').known.value}>No projects yet. Add one with regatta init.</Empty>
      </Panel>
    );
  }
  return (
    <>
      {queues.map((queue) => (
        <Panel
          key={queue.project}
          title={`Merge queue of ${queue.project}`}
          aside={
            <span class="aside">
              {queue.trunk} {queue.tip?.slice(0, 10)} · {queue.held ? `held by ${queue.held.by}: ${plain(queue.held.reason, 200)}` : queue.text}{' '}
              {queue.actions.map((action) => (
                <ActionButton key={action.label} action={action} />
              ))}
            </span>
          }
        >
          {queue.trunk_differs && <p class="error">{plain(queue.trunk_differs, 600)}</p>}
          {queue.unpushed && (
            <p class="error">
              The landed commits could not be pushed to {plain(queue.unpushed.remote, 80)}: {plain(queue.unpushed.reason, 300)} <Age since={queue.unpushed.since_wall} />
            </p>
          )}
          <QueueBatches queue={queue} maxBatches={12} />
          {queue.queue.length === 0 ? (
            <p class="empty">No landings in the queue.</p>
          ) : (
            <Table heads={['>Position', 'Task', 'Subject', 'Agent', 'State', 'Detail', '>For', '>Lands in', 'Actions']}>
              {queue.queue.slice(0, 300).map((landing) => (
                <QueueRow key={landing.landing} landing={landing} queue={queue} />
              ))}
            </Table>
          )}
          <h3>Finished landings</h3>
          {queue.recent.length === 0 ? (
            <p class="empty">Nothing has landed yet.</p>
          ) : (
            <Table heads={['Task', 'Subject', 'Agent', 'Result', 'Commit', '>Queued']}>
              {queue.recent.map((landing) => (
                <tr key={landing.landing} data-row tabIndex={0}>
                  <td>
                    <TaskLink id={landing.task} />
                  </td>
                  <td class="subject">{plain(landing.subject, 160)}</td>
                  <td>{landing.agent}</td>
                  <td>
                    <Mark at={landing.at} word={landing.state} /> {plain(landing.detail, 200)}
                    {landing.at !== 'landed' && landing.fixups > 0 && ` · fix-up ${landing.fixups} of 3 by ${landing.agent}`}
                  </td>
                  <td class="mono">{landing.commit?.slice(0, 10) ?? ''}</td>
                  <td class="right">
                    <Age since={landing.queued_wall} />
                  </td>
                </tr>
              ))}
            </Table>
          )}
          <p class="cli">
            same from a shell: <code>regatta queue --all</code>
          </p>
        </Panel>
      ))}
    </>
  );
}
