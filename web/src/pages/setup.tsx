// The setup: health checks, providers, bridges, projects, policy, rules and tokens.

import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { plain } from '../format';
import { eventSummary } from '../event-summary';
import { topic } from '../live/client';
import { call } from '../session';
import { queryParam, setQueryParam } from '../route';
import { Empty, Panel, Table, useTopics } from '../ui';
import type { BridgeView, DoctorCheck, DoctorView, RuleEffect, Verbs } from '../api';

/** Calls a verb once and returns its result or its error text. */
function useCall<Verb extends keyof Verbs>(verb: Verb): { data: Verbs[Verb]['answer'] | null; problem: string } {
  const data = useSignal<Verbs[Verb]['answer'] | null>(null);
  const problem = useSignal('');
  useEffect(() => {
    call(verb, {}).then(
      (result) => (data.value = result),
      (error: Error) => (problem.value = error.message),
    );
  }, [verb]);
  return { data: data.value, problem: problem.value };
}

const EFFECTS: Record<RuleEffect, [string, string]> = { allow: ['✓', 'good'], deny: ['✕', 'bad'], ask: ['!', 'late'] };
const LEVELS = { ok: ['✓', 'good', 'ok'], warn: ['!', 'late', 'warning'], bad: ['✕', 'bad', 'problem'] } as const;

/** The results of `regatta doctor` on the daemon's machine, worst first. */
function DoctorPanel({ answer }: { answer: { data: DoctorView | null; problem: string } }) {
  const rank = (level: DoctorCheck['level']) => ['bad', 'warn', 'ok'].indexOf(level);
  const checks = [...(answer.data?.checks ?? [])].sort((a, b) => rank(a.level) - rank(b.level));
  const problemCount = checks.filter((check) => check.level === 'bad').length;
  return (
    <Panel
      title="Doctor"
      aside={
        <span class="aside">
          {answer.data && (problemCount === 0 ? 'no problems' : `${problemCount} problem${problemCount === 1 ? '' : 's'}`)} <code>regatta doctor</code>
        </span>
      }
    >
      {answer.problem && <p class="error">{answer.problem}</p>}
      {!answer.data && !answer.problem && <p class="empty">loading…</p>}
      {checks.length > 0 && (
        <Table heads={['State', 'Check', 'Result', 'Fix']}>
          {checks.map((check, index) => (
            <tr key={`${check.id}${index}`} data-row tabIndex={0}>
              <td class={LEVELS[check.level][1]}>
                {LEVELS[check.level][0]} {LEVELS[check.level][2]}
              </td>
              <td>{check.id}</td>
              <td>{plain(check.text, 300)}</td>
              <td class="mono">{plain(check.fix ?? '', 300)}</td>
            </tr>
          ))}
        </Table>
      )}
    </Panel>
  );
}

/** The installed agent programs. The others are in a closed section. */
function ProviderPanel({ answer }: { answer: { data: DoctorView | null; problem: string } }) {
  const all = answer.data?.providers ?? [];
  const installed = all.filter((provider) => provider.program !== null);
  const missing = all.filter((provider) => provider.program === null);
  return (
    <Panel
      title="Providers"
      aside={
        <span class="aside">
          {answer.data && `${installed.length} of ${all.length} known programs are on this machine`} <code>regatta provider</code>
        </span>
      }
    >
      {!answer.data && !answer.problem && <p class="empty">loading…</p>}
      {answer.data && installed.length === 0 && <p class="empty">No known program is installed. Install one from the list below, or try Regatta without one: regatta run … --agents scripted</p>}
      {installed.length > 0 && (
        <Table heads={['Preset', 'Provider', 'Version', 'Signed in', 'Next step']}>
          {installed.map((provider) => (
            <tr key={provider.preset} data-row tabIndex={0}>
              <td>{provider.preset}</td>
              <td>{provider.provider}</td>
              <td>{plain(provider.version ?? 'installed', 60)}</td>
              <td>{provider.signed_in}</td>
              <td class="mono">{plain(provider.fix ?? `regatta agent add ${provider.preset} --preset ${provider.preset}`, 200)}</td>
            </tr>
          ))}
        </Table>
      )}
      {missing.length > 0 && (
        <details open={queryParam('more') === 'providers'} onToggle={(event) => setQueryParam('more', event.currentTarget.open ? 'providers' : null)}>
          <summary>{missing.length} more known programs, not installed</summary>
          <Table heads={['Preset', 'Provider', 'How to install it']}>
            {missing.map((provider) => (
              <tr key={provider.preset} data-row tabIndex={0}>
                <td>{provider.preset}</td>
                <td>{provider.provider}</td>
                <td class="mono">{plain(provider.fix ?? '', 200)}</td>
              </tr>
            ))}
          </Table>
        </details>
      )}
    </Panel>
  );
}

function bridgeColour(bridge: BridgeView): string {
  if (bridge.off || bridge.trouble) return 'bad';
  return bridge.paused ? 'late' : 'good';
}

function bridgeState(bridge: BridgeView): string {
  if (bridge.off) return '✕ off';
  if (bridge.paused) return '‖ paused';
  if (bridge.trouble) return '✕ failing';
  return bridge.connected ? '✓ connected' : '✓ ready';
}

/** The bridges of agents to outside services, and their health. */
function BridgePanel({ answer }: { answer: { data: BridgeView[] | null; problem: string } }) {
  return (
    <Panel title="Bridges" aside={<code class="aside">regatta bridge list</code>}>
      {answer.problem && <p class="error">{answer.problem}</p>}
      {answer.data?.length === 0 && <p class="empty">No bridges yet. To see what each service needs, run: regatta bridge</p>}
      {answer.data && answer.data.length > 0 && (
        <Table heads={['Bridge', 'Known as', 'State', 'Receives at', '>Accepted', '>Refused', '>Sent', 'Problems']}>
          {answer.data.map((bridge) => (
            <tr key={bridge.name} data-row tabIndex={0}>
              <td>{bridge.name}</td>
              <td>{plain(bridge.known_as ?? '', 60)}</td>
              <td class={bridgeColour(bridge)}>{bridgeState(bridge)}</td>
              <td class="mono">{plain(bridge.route ?? '', 120)}</td>
              <td class="right">{bridge.taken}</td>
              <td class="right">{bridge.refused}</td>
              <td class="right">{bridge.sent}</td>
              <td class="dim">
                {[bridge.off, bridge.trouble, bridge.warning].filter(Boolean).map((text) => plain(text ?? '', 200)).join(' · ')} {bridge.waiting > 0 && `${bridge.waiting} posts waiting`} {bridge.dead > 0 && `${bridge.dead} posts failed`}
              </td>
            </tr>
          ))}
        </Table>
      )}
    </Panel>
  );
}

/** Formats part of a rule as names and values: `agent codex-1`, `command npm install *`. */
const ruleText = (value: unknown) => plain(eventSummary(value), 200);

export function Setup() {
  useTopics('head');
  void topic('head').changed.value;
  const head = topic('head').get('head');
  const policy = useCall('policy.list');
  const rules = useCall('rule.list');
  const tokens = useCall('token.list');
  const doctor = useCall('doctor');
  const bridges = useCall('bridge.list');
  return (
    <>
      <DoctorPanel answer={doctor} />
      <ProviderPanel answer={doctor} />
      <BridgePanel answer={bridges} />
      <Panel title="Projects" aside={<code class="aside">regatta project list</code>}>
        {head?.projects.length ? (
          <Table heads={['Name', 'Trunk', 'Path']}>
            {head.projects.map((project) => (
              <tr key={project.name}>
                <td>{project.name}</td>
                <td>{project.trunk}</td>
                <td class="mono">{plain(project.path, 200)}</td>
              </tr>
            ))}
          </Table>
        ) : (
          <Empty known={head !== undefined}>No projects yet. Add one with regatta init.</Empty>
        )}
      </Panel>
      <Panel title="Policy: what agents may do without asking" aside={<code class="aside">regatta policy list</code>}>
        {policy.problem && <p class="error">{policy.problem}</p>}
        {policy.data?.length === 0 && <p class="empty">No rules yet. “Always allow” in the inbox creates one.</p>}
        {policy.data && policy.data.length > 0 && (
          <Table heads={['Rule', 'Effect', 'For', 'Condition']}>
            {policy.data.map((rule) => (
              <tr key={rule.id} data-row tabIndex={0}>
                <td>{rule.id}</td>
                <td class={EFFECTS[rule.effect]?.[1]}>
                  {EFFECTS[rule.effect]?.[0]} {rule.effect}
                </td>
                <td>{ruleText(rule.scope)}</td>
                <td class="mono">{ruleText({ ...rule, id: '', scope: '', effect: '' })}</td>
              </tr>
            ))}
          </Table>
        )}
      </Panel>
      <Panel title="Standing rules" aside={<code class="aside">regatta rule list</code>}>
        {rules.problem && <p class="error">{rules.problem}</p>}
        {rules.data?.length === 0 && <p class="empty">No project has a standing rule.</p>}
        <ul class="spans">
          {rules.data?.map((rule) => (
            <li key={`${rule.project}${rule.name}`}>
              <b>{rule.project}</b> {plain(rule.name ?? '', 80)} <b>{ruleText(rule.action)}</b> {plain(rule.says ?? '', 300)} {(rule.files?.length ?? 0) > 0 && <code>{ruleText(rule.files)}</code>}
            </li>
          ))}
        </ul>
      </Panel>
      <Panel title="Tokens" aside={<code class="aside">regatta token list</code>}>
        {tokens.problem && <p class="empty">{tokens.problem}</p>}
        {tokens.data?.length === 0 && <p class="empty">No tokens. Only the owner of this machine has access.</p>}
        <ul class="spans">
          {tokens.data?.map((token) => (
            <li key={token.name}>
              <b>{plain(token.name, 80)}</b> {token.scope} {token.expired ? 'expired' : ''}
            </li>
          ))}
        </ul>
      </Panel>
      <Panel title="This machine">
        <p>
          Regatta {head?.version ?? ''} · show all settings with their origin: <code>regatta config show --origin</code>
        </p>
      </Panel>
    </>
  );
}
