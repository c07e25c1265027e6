// Conversations: threads in outside services that are bound to one agent's session, with their turns and answers, and
// the health of the bridges that carry them.

import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { Callout, EmptyState, ShellLine } from '../components';
import { clockTime, plain, usd } from '../format';
import { topic } from '../live/client';
import { queryParam, setQueryParam } from '../route';
import { call } from '../session';
import { ActionButton, Age, Mark, Panel, Table, TaskLink, useTopics } from '../ui';
import { BridgeTable } from './setup-access';
import { useCall } from './setup-call';
import type { Conversation, ConversationPage, ConversationTurn } from '../api';
import './conversations.css';

const MAX_ROWS = 300;

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

/** A message of a person, with the answer of the agent. */
function Turn({ turn, agent }: { turn: ConversationTurn; agent: string }) {
  const answer = turn.answer ?? turn.reason;
  return (
    <li>
      <article class="turn">
        <header>
          <b>{plain(turn.by.name, 60)}</b> <span class="dim">{turn.state}</span>
          <time>{clockTime(turn.asked_wall, false)}</time>
        </header>
        <pre tabIndex={0}>{plain(turn.text, 2_000)}</pre>
      </article>
      {answer && (
        <article class="turn answer">
          <header>
            <b>{plain(agent, 60)}</b>
            <span class="dim">
              {turn.micro_usd === undefined ? 'cost not reported' : usd(turn.micro_usd)}
              {turn.work && ` · ${turn.work.changed.length} files changed on ${plain(turn.work.branch, 80)}`}
            </span>
            {turn.ended_wall !== undefined && <time>{clockTime(turn.ended_wall, false)}</time>}
          </header>
          <pre tabIndex={0}>{plain(answer, 8_000)}</pre>
        </article>
      )}
    </li>
  );
}

/** Describes what came of a conversation's work. */
function Result({ details }: { details: Conversation }) {
  const end = details.landing_end;
  return (
    <p class="row">
      {details.task && (
        <span>
          Task <TaskLink id={details.task} />
        </span>
      )}
      {details.pull && <ExternalLink url={details.pull.url} text={`pull request ${details.pull.number}`} />}
      {end?.came === 'landed' && (
        <span class="good">
          ✓ landed as <code>{end.commit.slice(0, 10)}</code>
        </span>
      )}
      {end?.came === 'failed' && <span class="bad">✕ did not land: {plain(end.reason, 200)}</span>}
      {details.pushed?.trouble && <span class="bad">✕ not pushed: {plain(details.pushed.trouble, 200)}</span>}
    </p>
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
        <>
          <span class="aside">
            {conversation.service} · {conversation.agent}
          </span>
          <Mark at={conversation.at} word={conversation.word} />
          {conversation.actions.map((action) => (
            <ActionButton key={action.label} action={action} />
          ))}
          <ShellLine line={`regatta bridge show ${conversation.id}`} />
        </>
      }
    >
      {problem.value && <p class="error">{problem.value}</p>}
      {!details.value && !problem.value && <p class="empty">loading…</p>}
      {details.value?.held?.map((request) => (
        <Callout key={request.wall} tone="warning">
          <p>
            ! {plain(request.by.name, 60)} is not allowed to ask: {plain(request.text, 300)}
          </p>
        </Callout>
      ))}
      {details.value && <Result details={details.value} />}
      {details.value && details.value.turn_count > turns.length && <p class="empty">{details.value.turn_count - turns.length} earlier turns are no longer stored.</p>}
      <ol class="turns">
        {turns.map((turn) => (
          <Turn key={turn.n} turn={turn} agent={conversation.agent} />
        ))}
      </ol>
    </Panel>
  );
}

/** Describes posts that wait or failed. */
export function postsText(conversation: Pick<ConversationPage, 'queued' | 'unshown' | 'dead'>): string {
  const parts = [conversation.queued > 0 && `${conversation.queued} queued`, conversation.unshown > 0 && `${conversation.unshown} to be posted`, conversation.dead > 0 && `${conversation.dead} could not be posted`];
  return parts.filter(Boolean).join(', ');
}

function ConversationRow({ conversation, isChosen }: { conversation: ConversationPage; isChosen: boolean }) {
  return (
    <tr data-row tabIndex={0} aria-selected={isChosen}>
      <td>
        <button type="button" class="thread-button" aria-pressed={isChosen} onClick={() => setQueryParam('id', isChosen ? null : conversation.id, true)}>
          {conversation.id}
        </button>
      </td>
      <td class="subject">
        <ExternalLink url={conversation.url} text={plain(conversation.title, 120)} />
      </td>
      <td>{conversation.service}</td>
      <td class="name">{conversation.agent}</td>
      <td>
        <Mark at={conversation.at} word={conversation.word} />
        <div class={conversation.dead > 0 ? 'bad' : 'aside'}>{postsText(conversation)}</div>
      </td>
      <td class="last wide">{plain(conversation.last, 140)}</td>
      <td>{conversation.task ? <TaskLink id={conversation.task} /> : <span class="aside">no task</span>}</td>
      <td class="right" data-label="Turns">{conversation.turns}</td>
      <td class="right" data-label="Last active">
        <Age since={conversation.updated_wall} />
      </td>
    </tr>
  );
}

function BridgesPanel() {
  const bridges = useCall('bridge.list');
  return (
    <Panel
      title="Bridges"
      aside={
        <>
          <span class="aside">they carry the messages between services and agents</span>
          <ShellLine line="regatta bridge test" />
        </>
      }
    >
      {bridges.problem && <p class="error">{bridges.problem}</p>}
      {bridges.data && bridges.data.length > 0 && <BridgeTable bridges={bridges.data} reload={bridges.reload} />}
      {bridges.data?.length === 0 && <p class="empty">No bridge is set up, so nobody can ask an agent from Slack, GitHub, Linear or Telegram.</p>}
      <p>
        <a href="/setup?section=bridges">How to connect an agent</a>
      </p>
    </Panel>
  );
}

export function Conversations() {
  useTopics('conversations');
  void topic('conversations').changed.value;
  const query = queryParam('q').toLowerCase();
  const all = topic('conversations').all();
  const shown = all
    .filter((conversation) => `${conversation.id} ${conversation.service} ${conversation.agent} ${conversation.title} ${conversation.last} ${conversation.word}`.toLowerCase().includes(query))
    .sort((a, b) => b.updated_wall - a.updated_wall);
  const chosen = all.find((conversation) => conversation.id === queryParam('id'));
  const isKnown = topic('conversations').known.value;
  return (
    <>
      <div class="threads">
        <Panel
          title={`${shown.length} conversation${shown.length === 1 ? '' : 's'}`}
          aside={
            <>
              <input id="filter" type="search" aria-label="Filter" placeholder="filter  /" value={queryParam('q')} onInput={(event) => setQueryParam('q', event.currentTarget.value)} />
              <ShellLine line="regatta bridge conversations" />
            </>
          }
        >
          {!isKnown && all.length === 0 && <p class="empty">loading…</p>}
          {isKnown && all.length === 0 && (
            <EmptyState title="No conversations yet" text="A conversation is a thread in Slack, GitHub, Linear or Telegram in which people ask an agent. This page shows who asked, what came of it, and what could not be posted.">
              <a class="do first" href="/setup?section=bridges">
                Connect an agent
              </a>
            </EmptyState>
          )}
          {all.length > 0 && shown.length === 0 && <p class="empty">No conversation matches “{plain(query, 60)}”.</p>}
          {shown.length > 0 && (
            <Table class="stack" heads={['Conversation', 'Thread', 'Service', 'Agent', 'State', 'Last asked', 'Result', '>Turns', '>Last active']}>
              {shown.slice(0, MAX_ROWS).map((conversation) => (
                <ConversationRow key={conversation.id} conversation={conversation} isChosen={chosen?.id === conversation.id} />
              ))}
            </Table>
          )}
          {shown.length > MAX_ROWS && <p class="empty">{MAX_ROWS} of {shown.length} conversations are shown. The filter narrows them down.</p>}
        </Panel>
        {chosen && <ConversationDetail key={chosen.id} conversation={chosen} />}
      </div>
      <BridgesPanel />
    </>
  );
}
