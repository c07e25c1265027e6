// The parts of the setup page about access: permissions of agents, access tokens, and bridges to outside services.

import { useState } from 'preact/hooks';
import { Callout, EmptyState, Field, ShellLine, VerbForm } from '../components';
import { plain } from '../format';
import { eventSummary } from '../event-summary';
import { quoteWord, shellCommand } from '../shell-words';
import { ActionButton, Age, Panel, Table } from '../ui';
import type { BridgeView, NewTokenView, PolicyRule, RuleEffect, RuleScope, TokenView } from '../api';
import type { Fetched } from './setup-call';

const EFFECTS: Record<RuleEffect, [string, string]> = { allow: ['✓', 'good'], deny: ['✕', 'bad'], ask: ['!', 'late'] };
const TOOLS = ['execute', 'read', 'edit', 'delete', 'move', 'search', 'fetch', 'think', 'switch_mode', 'other'];
const DAY_MS = 86_400_000;

/** Formats part of a rule as names and values: `agent codex-1`, `command npm install *`. */
export const ruleText = (value: unknown) => plain(eventSummary(value), 200);

/** Returns the scope that `--for` names: a task, a mission, an agent, a role or all. */
export function ruleScope(text: string): RuleScope {
  if (/^T\d+$/i.test(text)) return { task: text.toUpperCase() };
  if (/^M\d+$/i.test(text)) return { mission: text.toUpperCase() };
  if (text === 'leads') return { role: 'lead' };
  if (text === 'workers') return { role: 'worker' };
  return text === 'all' || text === '' ? 'all' : { agent: text.replace(/^agent:/, '') };
}

function PolicyForm({ done }: { done: () => void }) {
  const [effect, setEffect] = useState<string>('allow');
  const [tool, setTool] = useState('execute');
  const [pattern, setPattern] = useState('');
  const [scope, setScope] = useState('all');
  const what = tool === 'fetch' ? 'url' : tool === 'execute' ? 'command' : 'path';
  const input = { effect, matter: { tool, ...(pattern ? { [what]: pattern } : {}) }, scope: ruleScope(scope) };
  const scopeText = typeof input.scope === 'object' && 'agent' in input.scope ? `agent:${input.scope.agent}` : scope;
  const cli = shellCommand(['policy', 'add', effect], [['--tool', tool], [`--${what}`, pattern], ['--for', scopeText === 'all' ? '' : scopeText]]);
  return (
    <VerbForm label="Add rule" verb="policy.add" input={input} cli={cli} onDone={done}>
      <Field
        label="Answer"
        value={effect}
        set={setEffect}
        options={[
          ['allow', 'allow'],
          ['deny', 'deny'],
          ['ask', 'ask a person'],
        ]}
      />
      <Field label="Kind of tool" value={tool} set={setTool} options={TOOLS.map((name) => [name, name])} />
      <Field label={{ url: 'Web address', command: 'Command', path: 'Path' }[what]} value={pattern} set={setPattern} placeholder={{ url: 'https://docs.rs/*', command: 'cargo test*', path: 'src/*' }[what]} required={effect === 'allow'} help={effect === 'allow' ? '* matches anything' : '* matches anything; empty matches all'} />
      <Field label="Requests of" value={scope} set={setScope} placeholder="all" help="all, workers, leads, T7, M3 or an agent's name" />
    </VerbForm>
  );
}

export function PermissionsSection({ policy }: { policy: Fetched<PolicyRule[]> }) {
  return (
    <Panel title="Permissions" aside={<ShellLine line="regatta policy list" />}>
      <p class="intro">A rule answers matching permission requests of agents without a person. “Always allow” in the inbox also adds a rule. Requests that no rule matches wait in the inbox.</p>
      <PolicyForm done={policy.reload} />
      {policy.problem && <p class="error">{policy.problem}</p>}
      {policy.data?.length === 0 && <p class="empty">No rules yet: every request waits for a person.</p>}
      {policy.data && policy.data.length > 0 && (
        <Table class="stack" heads={['Rule', 'Answer', 'Requests of', 'Condition', 'Actions']}>
          {policy.data.map((rule) => (
            <tr key={rule.id} data-row tabIndex={0}>
              <td>{rule.id}</td>
              <td class={EFFECTS[rule.effect]?.[1]}>
                {EFFECTS[rule.effect]?.[0]} {rule.effect}
              </td>
              <td>{ruleText(rule.scope)}</td>
              <td class="mono">{ruleText({ ...rule, id: '', scope: '', effect: '' })}</td>
              <td>
                <ActionButton action={{ label: 'Remove', verb: 'policy.rm', input: { rule: rule.id }, cli: `regatta policy rm ${rule.id}`, first: false, grave: true, after: policy.reload }} />
              </td>
            </tr>
          ))}
        </Table>
      )}
    </Panel>
  );
}

function TokenForm({ done }: { done: (token: NewTokenView) => void }) {
  const [name, setName] = useState('');
  const [scope, setScope] = useState('viewer');
  const [days, setDays] = useState('30');
  const input = { name, scope, ...(days ? { expires_ms: Number(days) * DAY_MS } : {}) };
  const cli = shellCommand(['token', 'add', name || '…'], [['--scope', scope], ['--expires', days && `${days}d`]]);
  return (
    <VerbForm label="Create token" verb="token.add" input={input} cli={cli} onDone={(result) => done(result as NewTokenView)}>
      <Field label="Name" value={name} set={setName} required placeholder="ci" help="The audit log shows it" />
      <Field
        label="Rights"
        value={scope}
        set={setScope}
        options={[
          ['viewer', 'viewer: reads'],
          ['operator', 'operator: also changes tasks'],
          ['admin', 'admin: may do everything'],
          ['runner', 'runner: for regatta runner'],
        ]}
      />
      <Field label="Valid for days" type="number" min={1} value={days} set={setDays} help="Empty: until it is removed" />
    </VerbForm>
  );
}

export function TokensSection({ tokens }: { tokens: Fetched<TokenView[]> }) {
  const [created, setCreated] = useState<NewTokenView | null>(null);
  const done = (token: NewTokenView) => {
    setCreated(token);
    tokens.reload();
  };
  return (
    <Panel title="Access tokens" aside={<ShellLine line="regatta token list" />}>
      <p class="intro">A token lets another program or machine call the API. The owner of this machine needs none.</p>
      <TokenForm done={done} />
      {created?.token && (
        <Callout tone="warning">
          <p>
            Copy the token {plain(created.name, 60)} now. It is not shown again.
            <code class="secret">{created.token}</code>
          </p>
        </Callout>
      )}
      {tokens.problem && <p class="error">{tokens.problem}</p>}
      {tokens.data?.length === 0 && <p class="empty">No tokens: only the owner of this machine has access.</p>}
      {tokens.data && tokens.data.length > 0 && (
        <Table class="stack" heads={['Name', 'Rights', '>Created', 'Valid until', 'Actions']}>
          {tokens.data.map((token) => (
            <tr key={token.name} data-row tabIndex={0}>
              <td class="name">{plain(token.name, 80)}</td>
              <td>{token.scope}</td>
              <td class="right">
                <Age since={token.made_wall} />
              </td>
              <td class={token.expired ? 'bad' : ''}>{token.expired ? '✕ expired' : token.expires_wall ? new Date(token.expires_wall).toLocaleDateString('en-GB') : 'it is removed'}</td>
              <td>
                <ActionButton action={{ label: 'Remove', verb: 'token.rm', input: { name: token.name }, cli: `regatta token rm ${quoteWord(token.name)}`, first: false, grave: true, after: tokens.reload }} />
              </td>
            </tr>
          ))}
        </Table>
      )}
    </Panel>
  );
}

/** Returns a bridge's state as a glyph, a word and the class of its colour. */
export function bridgeState(bridge: BridgeView): { text: string; colour: string } {
  if (bridge.off) return { text: '✕ off', colour: 'bad' };
  if (bridge.paused) return { text: '‖ paused', colour: 'late' };
  if (bridge.trouble) return { text: '✕ failing', colour: 'bad' };
  return { text: bridge.connected ? '✓ connected' : '✓ ready', colour: 'good' };
}

/** Returns what a bridge could not do, as one text. */
export function bridgeProblems(bridge: BridgeView): string {
  const posts = [bridge.waiting > 0 && `${bridge.waiting} posts wait`, bridge.dead > 0 && `${bridge.dead} posts could not be sent`];
  return [bridge.off, bridge.trouble, bridge.warning, ...posts].filter(Boolean).map((text) => plain(String(text), 200)).join(' · ');
}

export function BridgeTable({ bridges, reload }: { bridges: BridgeView[]; reload: () => void }) {
  return (
    <Table class="stack" heads={['Service', 'Agent', 'Known as', 'State', '>Received', '>Refused', '>Sent', 'Problem', 'Actions']}>
      {bridges.map((bridge) => {
        const state = bridgeState(bridge);
        const paused = !bridge.paused;
        const label = paused ? 'Pause' : 'Resume';
        const action = { label, verb: 'bridge.pause', input: { agent: bridge.agent, service: bridge.service, paused }, cli: `regatta bridge ${label.toLowerCase()} ${bridge.agent}`, first: false, grave: false, after: reload };
        return (
          <tr key={bridge.name} data-row tabIndex={0}>
            <td>{bridge.service}</td>
            <td class="name">
              <a href={`/agents/${bridge.agent}`}>{bridge.agent}</a>
            </td>
            <td>{plain(bridge.known_as ?? '', 60) || <span class="aside">not reported</span>}</td>
            <td class={`mark ${state.colour}`}>{state.text}</td>
            <td class="right" data-label="Received">{bridge.taken}</td>
            <td class="right" data-label="Refused">{bridge.refused}</td>
            <td class="right" data-label="Sent">{bridge.sent}</td>
            <td class="dim wide" data-label="Problem">{bridgeProblems(bridge) || 'none'}</td>
            <td>{!bridge.off && <ActionButton action={action} />}</td>
          </tr>
        );
      })}
    </Table>
  );
}

const CONNECT = `[agents.claude]
preset = "claude"
default = true

[bridges]
allow = ["slack:team", "github:write"]`;

export function BridgesSection({ bridges }: { bridges: Fetched<BridgeView[]> }) {
  return (
    <>
      <Panel title="Bridges" aside={<ShellLine line="regatta bridge list" />}>
        <p class="intro">A bridge gives an agent its own identity in Slack, GitHub, Linear or Telegram, so that people can ask it there.</p>
        {bridges.problem && <p class="error">{bridges.problem}</p>}
        {bridges.data?.length === 0 && <EmptyState title="No bridges yet" text="Connect an agent with the three steps below." />}
        {bridges.data && bridges.data.length > 0 && <BridgeTable bridges={bridges.data} reload={bridges.reload} />}
      </Panel>
      <Panel title="Connect an agent" aside={<span class="aside">bridges are set up in a file and in the daemon's environment, not on this page</span>}>
        <ol class="service-steps">
          <li>
            Create an app at the service, and put its credentials into the daemon's environment, for example <code>SLACK_BOT_TOKEN_FILE</code>.
          </li>
          <li>
            Write who may ask into <code>~/.config/regatta/config.toml</code>:
            <pre class="snippet" tabIndex={0}>
              {CONNECT}
            </pre>
          </li>
          <li>
            Restart the daemon and test the bridges: <ShellLine line="regatta up --restart && regatta bridge test" />
          </li>
        </ol>
      </Panel>
    </>
  );
}
