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

const short = (it: unknown) => plain(typeof it === 'string' ? it : JSON.stringify(it), 160);

export function Setup() {
  useTopics('head');
  void topic('head').changed.value;
  const head = topic('head').one<Head>('head');
  const policy = useCall<Rule[]>('policy.list');
  const rules = useCall<Standing[]>('rule.list');
  const tokens = useCall<Token[]>('token.list');
  return (
    <>
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
          Regatta {head?.version ?? ''} · see what is wrong, and the fix: <code>regatta doctor</code> · find programs: <code>regatta provider</code> · settings: <code>regatta config show --origin</code>
        </p>
      </Panel>
    </>
  );
}
