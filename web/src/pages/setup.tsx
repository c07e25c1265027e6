import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { plain } from '../format';
import { topic } from '../live/client';
import { call } from '../session';
import { Empty, Panel, useTopics } from '../ui';
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
  matter: Record<string, unknown>;
}

interface Standing {
  project: string;
  name: string;
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
        <div class="scroll">
          <table class="list">
            <thead>
              <tr>
                <th>State</th>
                <th>What</th>
                <th>Found</th>
                <th>Fix</th>
              </tr>
            </thead>
            <tbody>
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
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

/** The programs that are known; those that are here come first. */
function Providers({ it }: { it: { data: Doctor | null; problem: string } }) {
  const all = [...(it.data?.providers ?? [])].sort((a, b) => Number(a.program === null) - Number(b.program === null));
  const here = all.filter((one) => one.program !== null).length;
  return (
    <Panel
      title="Providers"
      aside={
        <span class="aside">
          {it.data && `${here} of ${all.length} known programs are on this machine`} <code>regatta provider</code>
        </span>
      }
    >
      {!it.data && !it.problem && <p class="empty">looking…</p>}
      {all.length > 0 && (
        <div class="scroll">
          <table class="list">
            <thead>
              <tr>
                <th>Preset</th>
                <th>Provider</th>
                <th>Version</th>
                <th>Signed in</th>
                <th>Next</th>
              </tr>
            </thead>
            <tbody>
              {all.map((one) => (
                <tr key={one.preset} data-row tabIndex={0}>
                  <td>{one.preset}</td>
                  <td>{one.provider}</td>
                  <td>{one.program === null ? <span class="dim">not installed</span> : plain(one.version ?? 'installed', 60)}</td>
                  <td>{one.program === null ? '' : one.signed_in}</td>
                  <td class="mono">{plain(one.fix ?? (one.program === null ? '' : `regatta agent add ${one.preset} --preset ${one.preset}`), 200)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
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
        <div class="scroll">
          <table class="list">
            <thead>
              <tr>
                <th>Bridge</th>
                <th>Known as</th>
                <th>State</th>
                <th>Comes in at</th>
                <th class="right">Taken</th>
                <th class="right">Refused</th>
                <th class="right">Sent</th>
                <th>What it lacks</th>
              </tr>
            </thead>
            <tbody>
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
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

const short = (it: unknown) => plain(typeof it === 'string' ? it : JSON.stringify(it), 160);

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
          <table class="list">
            <thead>
              <tr>
                <th>Name</th>
                <th>Trunk</th>
                <th>Where</th>
              </tr>
            </thead>
            <tbody>
              {head.projects.map((it) => (
                <tr key={it.name}>
                  <td>{it.name}</td>
                  <td>{it.trunk}</td>
                  <td class="mono">{plain(it.path, 200)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        ) : (
          <Empty known={head !== undefined}>No repository is under management yet: regatta init</Empty>
        )}
      </Panel>
      <Panel title="Policy: what agents may do unasked" aside={<code class="aside">regatta policy list</code>}>
        {policy.problem && <p class="error">{policy.problem}</p>}
        {policy.data?.length === 0 && <p class="empty">No rule of your own yet: “Always allow” in the inbox makes one.</p>}
        {policy.data && policy.data.length > 0 && (
          <table class="list">
            <thead>
              <tr>
                <th>Rule</th>
                <th>Effect</th>
                <th>For</th>
                <th>Matter</th>
              </tr>
            </thead>
            <tbody>
              {policy.data.map((it) => (
                <tr key={it.id}>
                  <td>{it.id}</td>
                  <td>{it.effect}</td>
                  <td>{short(it.scope)}</td>
                  <td class="mono">{short(it.matter)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Panel>
      <Panel title="Standing rules of projects" aside={<code class="aside">regatta rule list</code>}>
        {rules.problem && <p class="error">{rules.problem}</p>}
        {rules.data?.length === 0 && <p class="empty">No project has a standing rule.</p>}
        <ul class="spans">
          {rules.data?.map((it) => (
            <li key={`${it.project}${it.name}`}>
              <b>{it.project}</b> {plain(it.name ?? '', 80)} {short(it.action)}
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
