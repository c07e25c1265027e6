import { age, plain } from '../format';
import { topic } from '../live/client';
import { Track } from '../plots/queue-batches';
import { Age, Do, Empty, Panel, Table, TaskLink, clock, useTopics } from '../ui';
import type { Landing, Train } from '../views';

function Line({ it, train }: { it: Landing; train: Train }) {
  const actions = train.each.find((one) => one[0] === it.landing)?.[1] ?? [];
  const when = train.expected.find((one) => one[0] === it.landing)?.[1];
  return (
    <tr data-row tabIndex={0}>
      <td class="right">{it.position ?? ''}</td>
      <td>
        <TaskLink id={it.task} />
      </td>
      <td class="subject">{plain(it.subject, 160)}</td>
      <td>{it.agent}</td>
      <td class={it.state === 'searching' || it.state === 'held' ? 'bad' : ''}>
        {it.state}
        {it.state === 'testing' && <span class="pulse" aria-hidden="true" />}
      </td>
      <td class="dim">
        {plain(it.detail, 200)} {it.conflicts > 0 && `conflicts in ${it.conflicts} files`} {it.fixups > 0 && `fix-up ${it.fixups} of 3`}
      </td>
      <td class="right">
        <Age since={it.queued_wall} />
      </td>
      <td class="right">{when === undefined ? '–' : when > clock.value ? `about ${age(when - clock.value)}` : 'later than usual'}</td>
      <td>
        <span class="row">
          {actions.map((action) => (
            <Do key={action.label} action={{ ...action, key: undefined }} />
          ))}
        </span>
      </td>
    </tr>
  );
}

export function Queue() {
  useTopics('queue');
  const trains = topic('queue').all<Train>();
  if (trains.length === 0) {
    return (
      <Panel title="Merge queue">
        <Empty known={topic('queue').known.value}>No project yet: regatta init</Empty>
      </Panel>
    );
  }
  return (
    <>
      {trains.map((it) => (
        <Panel
          key={it.project}
          title={`Merge queue of ${it.project}`}
          aside={
            <span class="aside">
              {it.trunk} {it.tip?.slice(0, 10)} · {it.held ? `held by ${it.held.by}: ${plain(it.held.reason, 200)}` : it.text}{' '}
              {it.actions.map((action) => (
                <Do key={action.label} action={action} />
              ))}
            </span>
          }
        >
          {it.trunk_differs && <p class="error">{plain(it.trunk_differs, 600)}</p>}
          {it.unpushed && (
            <p class="error">
              What landed could not be pushed to {plain(it.unpushed.remote, 80)}: {plain(it.unpushed.reason, 300)} <Age since={it.unpushed.since_wall} />
            </p>
          )}
          <Track of={it} most={12} />
          {it.queue.length === 0 ? (
            <p class="empty">Nothing waits to land.</p>
          ) : (
            <Table heads={['>Place', 'Task', 'Subject', 'Agent', 'State', 'Detail', '>For', '>Lands in', 'Do']}>
              {it.queue.slice(0, 300).map((one) => (
                <Line key={one.landing} it={one} train={it} />
              ))}
            </Table>
          )}
          <h3>Out of the queue</h3>
          {it.recent.length === 0 ? (
            <p class="empty">Nothing has landed yet.</p>
          ) : (
            <Table heads={['Task', 'Subject', 'Agent', 'What came of it', 'Commit', '>Queued']}>
              {it.recent.map((one) => (
                <tr key={one.landing} data-row tabIndex={0}>
                  <td>
                    <TaskLink id={one.task} />
                  </td>
                  <td class="subject">{plain(one.subject, 160)}</td>
                  <td>{one.agent}</td>
                  <td class={one.state === 'landed' ? 'good' : 'bad'}>
                    {one.state === 'landed' ? '✓' : '✕'} {one.state} {plain(one.detail, 200)}
                    {one.state !== 'landed' && one.fixups > 0 && ` · fix-up ${one.fixups} of 3 by ${one.agent}`}
                  </td>
                  <td class="mono">{one.commit?.slice(0, 10) ?? ''}</td>
                  <td class="right">
                    <Age since={one.queued_wall} />
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
