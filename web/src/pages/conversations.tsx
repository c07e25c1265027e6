// Threads in outside services, each bound to one agent's session: who asked what, what came of it, what was posted.

import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { plain, usd } from '../format';
import { topic } from '../live/client';
import { get, set } from '../route';
import { call } from '../session';
import { Age, Do, Empty, Panel, Table, TaskLink, useTopics } from '../ui';
import type { Conversation } from '../views';

interface Turn {
  n: number;
  by: { id: string; name: string };
  text: string;
  state: string;
  answer?: string;
  reason?: string;
  micro_usd?: number;
  asked_wall: number;
  ended_wall?: number;
}

interface Whole {
  turns: Turn[];
  turn_count: number;
  held?: { by: { id: string; name: string }; text: string; wall: number }[];
  pull?: { number: number; url: string };
}

/** An address that a browser may go to; another kind is only text. */
export function outside(url: string | undefined): string | null {
  try {
    const it = new URL(url ?? '');
    return it.protocol === 'https:' || it.protocol === 'http:' ? it.href : null;
  } catch {
    return null;
  }
}

function Out({ url, words }: { url: string | undefined; words: string }) {
  const to = outside(url);
  return to ? (
    <a href={to} target="_blank" rel="noopener noreferrer" title={plain(new URL(to).host, 80)}>
      {words} ↗
    </a>
  ) : (
    <>{words}</>
  );
}

/** One of them, asked for anew whenever something changed about it. */
function One({ it }: { it: Conversation }) {
  const whole = useSignal<Whole | null>(null);
  const problem = useSignal('');
  useEffect(() => {
    let over = false;
    call<Whole>('conversation.show', { conversation: it.id }).then(
      (found) => !over && (whole.value = found),
      (error: Error) => !over && (problem.value = error.message),
    );
    return () => {
      over = true;
    };
  }, [it.id, it.updated_wall]);
  const turns = whole.value?.turns ?? [];
  return (
    <Panel
      title={`${it.id} ${plain(it.title, 120)}`}
      aside={
        <span class="aside row">
          {it.service} · {it.agent} · {it.word}
          {it.actions.map((action) => (
            <Do key={action.label} action={action} />
          ))}
          <code>regatta bridge show {it.id}</code>
        </span>
      }
    >
      {problem.value && <p class="error">{problem.value}</p>}
      {whole.value?.held?.map((one) => (
        <p key={one.wall} class="late">
          ! {plain(one.by.name, 60)} is on no list of who may ask: {plain(one.text, 300)}
        </p>
      ))}
      {whole.value && whole.value.turn_count > turns.length && <p class="empty">{whole.value.turn_count - turns.length} turns before these are no longer kept here.</p>}
      <ol class="turns">
        {turns.map((one) => (
          <li key={one.n}>
            <b>{plain(one.by.name, 60)}</b> <Age since={one.asked_wall} /> <span class="dim">{one.state}</span>
            <pre class="what" tabIndex={0}>{plain(one.text, 2_000)}</pre>
            {(one.answer || one.reason) && (
              <>
                <b>{it.agent}</b> {one.micro_usd !== undefined && <span class="dim">{usd(one.micro_usd)}</span>}
                <pre class="what" tabIndex={0}>{plain(one.answer ?? one.reason ?? '', 8_000)}</pre>
              </>
            )}
          </li>
        ))}
      </ol>
      {whole.value?.pull && <Out url={whole.value.pull.url} words={`pull request ${whole.value.pull.number}`} />}
    </Panel>
  );
}

export function Conversations() {
  useTopics('conversations');
  void topic('conversations').changed.value;
  const words = get('q').toLowerCase();
  const all = topic('conversations')
    .all<Conversation>()
    .filter((it) => `${it.id} ${it.service} ${it.agent} ${it.title} ${it.last} ${it.word}`.toLowerCase().includes(words))
    .sort((a, b) => b.updated_wall - a.updated_wall);
  const chosen = all.find((it) => it.id === get('id'));
  return (
    <>
      <Panel
        title={`${all.length} conversation${all.length === 1 ? '' : 's'}`}
        aside={
          <span class="filters">
            <input id="filter" type="search" aria-label="Filter" placeholder="filter  /" value={get('q')} onInput={(it) => set('q', it.currentTarget.value)} />
            <code class="aside">regatta bridge conversations</code>
          </span>
        }
      >
        {all.length === 0 ? (
          <Empty known={topic('conversations').known.value}>{words ? 'No conversation matches.' : 'Nobody has spoken to an agent from outside yet: regatta bridge'}</Empty>
        ) : (
          <Table heads={['Conversation', 'Service', 'Agent', 'Thread', 'State', '>Turns', 'Last asked', '>Since']}>
            {all.slice(0, 300).map((it) => (
              <tr key={it.id} data-row tabIndex={0}>
                <td>
                  <button type="button" class="plain" aria-pressed={chosen?.id === it.id} onClick={() => set('id', chosen?.id === it.id ? null : it.id, true)}>
                    {it.id}
                  </button>{' '}
                  {it.task && <TaskLink id={it.task} />}
                </td>
                <td>{it.service}</td>
                <td>{it.agent}</td>
                <td class="subject">
                  <Out url={it.url} words={plain(it.title, 120)} />
                </td>
                <td class={it.dead > 0 ? 'bad' : it.word === 'held' ? 'late' : ''}>
                  {it.word} {it.queued > 0 && `${it.queued} wait`} {it.unshown > 0 && `${it.unshown} to be posted`} {it.dead > 0 && `${it.dead} could not be posted`}
                </td>
                <td class="right">{it.turns}</td>
                <td class="dim">{plain(it.last, 140)}</td>
                <td class="right">
                  <Age since={it.updated_wall} />
                </td>
              </tr>
            ))}
          </Table>
        )}
      </Panel>
      {chosen && <One key={chosen.id} it={chosen} />}
    </>
  );
}
