// Conversations: threads in outside services that are bound to one agent's session, with their turns and answers.

import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { plain, usd } from '../format';
import { topic } from '../live/client';
import { queryParam, setQueryParam } from '../route';
import { call } from '../session';
import { ActionButton, Age, Empty, Panel, Table, TaskLink, useTopics } from '../ui';
import type { Conversation, ConversationPage } from '../api';

/** Returns a URL that is safe to link to, or null. Only http and https are allowed. */
export function safeUrl(url: string | undefined): string | null {
  try {
    const parsed = new URL(url ?? '');
    return parsed.protocol === 'https:' || parsed.protocol === 'http:' ? parsed.href : null;
  } catch {
    return null;
  }
}

function ExternalLink({ url, text }: { url: string | undefined; text: string }) {
  const to = safeUrl(url);
  return to ? (
    <a href={to} target="_blank" rel="noopener noreferrer" title={plain(new URL(to).host, 80)}>
      {text} ↗
    </a>
  ) : (
    <>{text}</>
  );
}

/** One conversation. Its turns are fetched again whenever the conversation changes. */
function ConversationDetail({ conversation }: { conversation: ConversationPage }) {
  const details = useSignal<Conversation | null>(null);
  const problem = useSignal('');
  useEffect(() => {
    let cancelled = false;
    call('conversation.show', { conversation: conversation.id }).then(
      (found) => !cancelled && (details.value = found),
      (error: Error) => !cancelled && (problem.value = error.message),
    );
    return () => {
      cancelled = true;
    };
  }, [conversation.id, conversation.updated_wall]);
  const turns = details.value?.turns ?? [];
  return (
    <Panel
      title={`${conversation.id} ${plain(conversation.title, 120)}`}
      aside={
        <span class="aside row">
          {conversation.service} · {conversation.agent} · {conversation.word}
          {conversation.actions.map((action) => (
            <ActionButton key={action.label} action={action} />
          ))}
          <code>regatta bridge show {conversation.id}</code>
        </span>
      }
    >
      {problem.value && <p class="error">{problem.value}</p>}
      {details.value?.held?.map((request) => (
        <p key={request.wall} class="late">
          ! {plain(request.by.name, 60)} is not allowed to ask: {plain(request.text, 300)}
        </p>
      ))}
      {details.value && details.value.turn_count > turns.length && <p class="empty">{details.value.turn_count - turns.length} earlier turns are no longer stored.</p>}
      <ol class="turns">
        {turns.map((turn) => (
          <li key={turn.n}>
            <b>{plain(turn.by.name, 60)}</b> <Age since={turn.asked_wall} /> <span class="dim">{turn.state}</span>
            <pre class="what" tabIndex={0}>{plain(turn.text, 2_000)}</pre>
            {(turn.answer || turn.reason) && (
              <>
                <b>{conversation.agent}</b> {turn.micro_usd !== undefined && <span class="dim">{usd(turn.micro_usd)}</span>}
                <pre class="what" tabIndex={0}>{plain(turn.answer ?? turn.reason ?? '', 8_000)}</pre>
              </>
            )}
          </li>
        ))}
      </ol>
      {details.value?.pull && <ExternalLink url={details.value.pull.url} text={`pull request ${details.value.pull.number}`} />}
    </Panel>
  );
}

export function Conversations() {
  useTopics('conversations');
  void topic('conversations').changed.value;
  const query = queryParam('q').toLowerCase();
  const all = topic('conversations')
    .all()
    .filter((conversation) => `${conversation.id} ${conversation.service} ${conversation.agent} ${conversation.title} ${conversation.last} ${conversation.word}`.toLowerCase().includes(query))
    .sort((a, b) => b.updated_wall - a.updated_wall);
  const chosen = all.find((conversation) => conversation.id === queryParam('id'));
  return (
    <>
      <Panel
        title={`${all.length} conversation${all.length === 1 ? '' : 's'}`}
        aside={
          <span class="filters">
            <input id="filter" type="search" aria-label="Filter" placeholder="filter  /" value={queryParam('q')} onInput={(event) => setQueryParam('q', event.currentTarget.value)} />
            <code class="aside">regatta bridge conversations</code>
          </span>
        }
      >
        {all.length === 0 ? (
          <Empty known={topic('conversations').known.value}>{query ? 'No conversation matches.' : 'No conversations yet. Connect an agent to a service with regatta bridge.'}</Empty>
        ) : (
          <Table heads={['Conversation', 'Service', 'Agent', 'Thread', 'State', '>Turns', 'Last asked', '>Since']}>
            {all.slice(0, 300).map((conversation) => (
              <tr key={conversation.id} data-row tabIndex={0}>
                <td>
                  <button type="button" class="plain" aria-pressed={chosen?.id === conversation.id} onClick={() => setQueryParam('id', chosen?.id === conversation.id ? null : conversation.id, true)}>
                    {conversation.id}
                  </button>{' '}
                  {conversation.task && <TaskLink id={conversation.task} />}
                </td>
                <td>{conversation.service}</td>
                <td>{conversation.agent}</td>
                <td class="subject">
                  <ExternalLink url={conversation.url} text={plain(conversation.title, 120)} />
                </td>
                <td class={conversation.dead > 0 ? 'bad' : conversation.at === 'waiting' ? 'late' : ''}>
                  {conversation.word} {conversation.queued > 0 && `${conversation.queued} queued`} {conversation.unshown > 0 && `${conversation.unshown} to be posted`} {conversation.dead > 0 && `${conversation.dead} could not be posted`}
                </td>
                <td class="right">{conversation.turns}</td>
                <td class="dim">{plain(conversation.last, 140)}</td>
                <td class="right">
                  <Age since={conversation.updated_wall} />
                </td>
              </tr>
            ))}
          </Table>
        )}
      </Panel>
      {chosen && <ConversationDetail key={chosen.id} conversation={chosen} />}
    </>
  );
}
