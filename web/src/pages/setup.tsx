import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { plain } from '../format';
import { brief } from './events';
import { topic } from '../live/client';
import { call } from '../session';
import { get, set } from '../route';
import { Empty, Panel, Table, useTopics } from '../ui';
import type { Head } from '../views';

/** What a verb says, asked once. */
function useCall<T>(verb: string): { data: T | null; problem: string } {
  const data = useSignal<T | null>(null);
  const problem = useSignal('');
  useEffect(() => {
    call<T>(verb).then(
      (it) => (data.value = it),
      (error: Error) => (problem.value = error.message),
    );
  }, [verb]);
  return { data: data.value, problem: problem.value };
}

interface Rule {
  id: string;
  scope: unknown;
  effect: string;
  /** What it is about: a tool, a command, a path. */
  [matter: string]: unknown;
}

interface Standing {
  project: string;
  name: string;
  says?: string;
  files?: string[];
  action: string;
}

interface Token {
  name: string;
  scope: string;
  made_wall: number;
  expired: boolean;
}

interface Check {
  id: string;
  level: 'ok' | 'warn' | 'bad';
  text: string;
  fix?: string;
}

interface Provider {
  preset: string;
  provider: string;
  program: string | null;
  version: string | null;
  signed_in: string;
  fix: string | null;
}

interface Doctor {
  checks: Check[];
  providers: Provider[];
}

const EFFECTS: Record<string, [string, string]> = { allow: ['✓', 'good'], deny: ['✕', 'bad'], ask: ['!', 'late'] };
const LEVELS = { ok: ['✓', 'good', 'well'], warn: ['!', 'late', 'look at it'], bad: ['✕', 'bad', 'mend it'] } as const;

/** What the daemon found on its machine, worst first. */
function Doctors({ it }: { it: { data: Doctor | null; problem: string } }) {
  const rank = (level: Check['level']) => ['bad', 'warn', 'ok'].indexOf(level);
  const checks = [...(it.data?.checks ?? [])].sort((a, b) => rank(a.level) - rank(b.level));
  const bad = checks.filter((one) => one.level === 'bad').length;
  return (
    <Panel
      title="Doctor"
      aside={
        <span class="aside">
          {it.data && (bad === 0 ? 'all is well' : `${bad} to mend`)} <code>regatta doctor</code>
        </span>
      }
    >
      {it.problem && <p class="error">{it.problem}</p>}
      {!it.data && !it.problem && <p class="empty">looking…</p>}
      {checks.length > 0 && (
        <Table heads={['State', 'What', 'Found', 'Fix']}>
          {checks.map((one, nth) => (
            <tr key={`${one.id}${nth}`} data-row tabIndex={0}>
              <td class={LEVELS[one.level][1]}>
                {LEVELS[one.level][0]} {LEVELS[one.level][2]}
              </td>
              <td>{one.id}</td>
              <td>{plain(one.text, 300)}</td>
              <td class="mono">{plain(one.fix ?? '', 300)}</td>
            </tr>
          ))}
        </Table>
      )}
    </Panel>
  );
}

/** The programs that are here; what else is known is folded away. */
function Providers({ it }: { it: { data: Doctor | null; problem: string } }) {
  const all = it.data?.providers ?? [];
  const here = all.filter((one) => one.program !== null);
  const gone = all.filter((one) => one.program === null);
  return (
    <Panel
      title="Providers"
      aside={
        <span class="aside">
          {it.data && `${here.length} of ${all.length} known programs are on this machine`} <code>regatta provider</code>
        </span>
      }
    >
      {!it.data && !it.problem && <p class="empty">looking…</p>}
      {it.data && here.length === 0 && <p class="empty">None of them is on this machine. Install one of those below, or rehearse without any: regatta run … --agents scripted</p>}
      {here.length > 0 && (
        <Table heads={['Preset', 'Provider', 'Version', 'Signed in', 'Next']}>
          {here.map((one) => (
            <tr key={one.preset} data-row tabIndex={0}>
              <td>{one.preset}</td>
              <td>{one.provider}</td>
              <td>{plain(one.version ?? 'installed', 60)}</td>
              <td>{one.signed_in}</td>
              <td class="mono">{plain(one.fix ?? `regatta agent add ${one.preset} --preset ${one.preset}`, 200)}</td>
            </tr>
          ))}
        </Table>
      )}
      {gone.length > 0 && (
        <details open={get('more') === 'providers'} onToggle={(event) => set('more', event.currentTarget.open ? 'providers' : null)}>
          <summary>{gone.length} more that are known and not installed</summary>
          <Table heads={['Preset', 'Provider', 'How to install it']}>
            {gone.map((one) => (
              <tr key={one.preset} data-row tabIndex={0}>
                <td>{one.preset}</td>
                <td>{one.provider}</td>
                <td class="mono">{plain(one.fix ?? '', 200)}</td>
              </tr>
            ))}
          </Table>
        </details>
      )}
    </Panel>
  );
}

interface Bridge {
  name: string;
  agent: string;
  service: string;
  route?: string;
  off?: string;
  warning?: string;
  connected?: number;
  known_as?: string;
  trouble?: string;
  taken: number;
  refused: number;
  sent: number;
  paused: boolean;
  dead: number;
  waiting: number;
}

/** Which agent is at which service, and how it is. */
function Bridges({ it }: { it: { data: Bridge[] | null; problem: string } }) {
  return (
    <Panel title="Bridges" aside={<code class="aside">regatta bridge list</code>}>
      {it.problem && <p class="error">{it.problem}</p>}
      {it.data?.length === 0 && <p class="empty">No agent is at an outside service yet. What each needs: regatta bridge</p>}
      {it.data && it.data.length > 0 && (
        <Table heads={['Bridge', 'Known as', 'State', 'Comes in at', '>Taken', '>Refused', '>Sent', 'What it lacks']}>
          {it.data.map((one) => (
            <tr key={one.name} data-row tabIndex={0}>
              <td>{one.name}</td>
              <td>{plain(one.known_as ?? '', 60)}</td>
              <td class={one.off || one.trouble ? 'bad' : one.paused ? 'late' : 'good'}>{one.off ? '✕ off' : one.paused ? '‖ paused' : one.trouble ? '✕ in trouble' : one.connected ? '✓ hears' : '✓ ready'}</td>
              <td class="mono">{plain(one.route ?? '', 120)}</td>
              <td class="right">{one.taken}</td>
              <td class="right">{one.refused}</td>
              <td class="right">{one.sent}</td>
              <td class="dim">
                {[one.off, one.trouble, one.warning].filter(Boolean).map((text) => plain(text ?? '', 200)).join(' · ')} {one.waiting > 0 && `${one.waiting} posts wait`} {one.dead > 0 && `${one.dead} posts were given up`}
              </td>
            </tr>
          ))}
        </Table>
      )}
    </Panel>
  );
}

/** `agent codex-1`, `command npm install *`: names and values, no braces. */
const short = (it: unknown) => plain(brief(it), 200);

export function Setup() {
  useTopics('head');
  void topic('head').changed.value;
  const head = topic('head').one<Head>('head');
  const policy = useCall<Rule[]>('policy.list');
  const rules = useCall<Standing[]>('rule.list');
  const tokens = useCall<Token[]>('token.list');
  const doctor = useCall<Doctor>('doctor');
  const bridges = useCall<Bridge[]>('bridge.list');
  return (
    <>
      <Doctors it={doctor} />
      <Providers it={doctor} />
      <Bridges it={bridges} />
      <Panel title="Projects" aside={<code class="aside">regatta project list</code>}>
        {head?.projects.length ? (
          <Table heads={['Name', 'Trunk', 'Where']}>
            {head.projects.map((it) => (
              <tr key={it.name}>
                <td>{it.name}</td>
                <td>{it.trunk}</td>
                <td class="mono">{plain(it.path, 200)}</td>
              </tr>
            ))}
          </Table>
        ) : (
          <Empty known={head !== undefined}>No repository is under management yet: regatta init</Empty>
        )}
      </Panel>
      <Panel title="Policy: what agents may do unasked" aside={<code class="aside">regatta policy list</code>}>
        {policy.problem && <p class="error">{policy.problem}</p>}
        {policy.data?.length === 0 && <p class="empty">No rule of your own yet: “Always allow” in the inbox makes one.</p>}
        {policy.data && policy.data.length > 0 && (
          <Table heads={['Rule', 'Effect', 'For', 'Matter']}>
            {policy.data.map((it) => (
              <tr key={it.id} data-row tabIndex={0}>
                <td>{it.id}</td>
                <td class={EFFECTS[it.effect]?.[1]}>
                  {EFFECTS[it.effect]?.[0]} {it.effect}
                </td>
                <td>{short(it.scope)}</td>
                <td class="mono">{short({ ...it, id: '', scope: '', effect: '' })}</td>
              </tr>
            ))}
          </Table>
        )}
      </Panel>
      <Panel title="Standing rules of projects" aside={<code class="aside">regatta rule list</code>}>
        {rules.problem && <p class="error">{rules.problem}</p>}
        {rules.data?.length === 0 && <p class="empty">No project has a standing rule.</p>}
        <ul class="spans">
          {rules.data?.map((it) => (
            <li key={`${it.project}${it.name}`}>
              <b>{it.project}</b> {plain(it.name ?? '', 80)} <b>{short(it.action)}</b> {plain(it.says ?? '', 300)} {(it.files?.length ?? 0) > 0 && <code>{short(it.files)}</code>}
            </li>
          ))}
        </ul>
      </Panel>
      <Panel title="Tokens" aside={<code class="aside">regatta token list</code>}>
        {tokens.problem && <p class="empty">{tokens.problem}</p>}
        {tokens.data?.length === 0 && <p class="empty">No token was given: only this machine’s owner comes in.</p>}
        <ul class="spans">
          {tokens.data?.map((it) => (
            <li key={it.name}>
              <b>{plain(it.name, 80)}</b> {it.scope} {it.expired ? 'expired' : ''}
            </li>
          ))}
        </ul>
      </Panel>
      <Panel title="This machine">
        <p>
          Regatta {head?.version ?? ''} · settings and where each comes from: <code>regatta config show --origin</code>
        </p>
      </Panel>
    </>
  );
}
