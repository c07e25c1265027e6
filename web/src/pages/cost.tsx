import { age, plain, tokens, usd } from '../format';
import { topic } from '../live/client';
import { SpendLine } from '../plots/spend';
import { Panel, useTopics } from '../ui';
import type { Spend, Spending } from '../views';

function Cells({ of }: { of: Spend }) {
  const all = of.usage.input + of.usage.cached_input + of.usage.cache_write;
  return (
    <>
      <td class="right">{of.attempts}</td>
      <td class="right">{tokens(all)}</td>
      <td class="right">{tokens(of.usage.output)}</td>
      <td class="right">{all > 0 ? `${Math.round((100 * of.usage.cached_input) / all)} %` : '–'}</td>
      <td class="right">{of.usage.micro_usd === undefined ? (all > 0 ? 'no price reported' : '–') : usd(of.usage.micro_usd)}</td>
      <td class="right">{of.wall_ms > 0 ? age(of.wall_ms) : ''}</td>
    </>
  );
}

function Head({ first }: { first: string }) {
  return (
    <thead>
      <tr>
        <th>{first}</th>
        <th class="right">Attempts</th>
        <th class="right">In</th>
        <th class="right">Out</th>
        <th class="right">Cached</th>
        <th class="right">Cost</th>
        <th class="right">Time</th>
      </tr>
    </thead>
  );
}

/** Adds what each provider's agents used. */
export function byProvider(of: Spending['by_agent']): [string, Spend][] {
  const found = new Map<string, Spend>();
  for (const [, provider, it] of of) {
    const sum = found.get(provider);
    if (!sum) {
      found.set(provider, structuredClone(it));
      continue;
    }
    sum.attempts += it.attempts;
    sum.turns += it.turns;
    sum.wall_ms += it.wall_ms;
    for (const key of ['input', 'cached_input', 'cache_write', 'output'] as const) sum.usage[key] += it.usage[key];
    if (it.usage.micro_usd !== undefined) sum.usage.micro_usd = (sum.usage.micro_usd ?? 0) + it.usage.micro_usd;
  }
  return [...found];
}

const COLOURS = ['working', 'review', 'landing', 'needs', 'waiting', 'landed'];

/** Today's money as one bar, a stretch for each provider. */
function Shares({ of }: { of: [string, Spend][] }) {
  const known = of.flatMap(([name, it]) => (it.usage.micro_usd ? [[name, it.usage.micro_usd] as const] : []));
  const all = known.reduce((sum, it) => sum + it[1], 0);
  if (all === 0) return null;
  let x = 0;
  return (
    <>
      <svg class="time" viewBox="0 0 300 18" preserveAspectRatio="none" height={18} role="img" aria-label={`Today by provider: ${known.map(([name, micro]) => `${name} ${usd(micro)}`).join(', ')}`}>
        {known.map(([name, micro], nth) => {
          const wide = (micro / all) * 300;
          x += wide;
          return <rect key={name} class={`at-${COLOURS[nth % COLOURS.length]}`} x={x - wide} width={Math.max(0.5, wide - 0.7)} y={0} height={18} />;
        })}
      </svg>
      <ul class="legend">
        {known.map(([name, micro], nth) => (
          <li key={name}>
            <span class={`swatch at-${COLOURS[nth % COLOURS.length]}`} aria-hidden="true" /> {plain(name, 40)} {usd(micro)}, {Math.round((100 * micro) / all)} %
          </li>
        ))}
      </ul>
    </>
  );
}

/** What the money brought: what landed, and what came to nothing. */
function Came({ of }: { of: Spending['came'] }) {
  return (
    <Panel title="What came of it" aside={<span class="aside">of the tasks that ended lately</span>}>
      {of.length === 0 ? (
        <p class="empty">No task has ended yet.</p>
      ) : (
        <ul class="spans">
          {of.map((it) => (
            <li key={it.word}>
              <b class={it.lost ? 'bad' : ''}>
                {it.tasks} {it.word}
              </b>{' '}
              {it.spent.usage.micro_usd === undefined ? 'no price reported' : `${usd(it.spent.usage.micro_usd)}, ${usd(it.spent.usage.micro_usd / it.tasks)} each`}
              {it.lost && it.spent.usage.micro_usd ? ': spent for nothing' : ''}
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

export function Cost() {
  useTopics('spend');
  void topic('spend').changed.value;
  const it = topic('spend').one<Spending>('spend');
  return (
    <>
      <SpendLine height={140} />
      {it && (
        <Panel title="Today" aside={<code class="aside">regatta budget list</code>}>
          {it.by_agent.length === 0 ? (
            <p class="empty">Nobody has used anything today.</p>
          ) : (
            <div class="scroll">
              <Shares of={byProvider(it.by_agent)} />
              <table class="list">
                <Head first="Provider" />
                <tbody>
                  {byProvider(it.by_agent).map(([name, of]) => (
                    <tr key={name}>
                      <td>{name}</td>
                      <Cells of={of} />
                    </tr>
                  ))}
                  <tr class="sum">
                    <th scope="row">all today</th>
                    <Cells of={it.today} />
                  </tr>
                </tbody>
                <Head first="Agent" />
                <tbody>
                  {it.by_agent.map(([name, provider, of]) => (
                    <tr key={name}>
                      <td>
                        {name} <span class="dim">{provider}</span>
                      </td>
                      <Cells of={of} />
                    </tr>
                  ))}
                </tbody>
                {it.by_mission.length > 0 && <Head first="Mission, all its days" />}
                <tbody>
                  {it.by_mission.map(([id, title, of]) => (
                    <tr key={id}>
                      <td>
                        <a href={`/tasks?mission=${id}`}>{id}</a> {plain(title, 100)}
                      </td>
                      <Cells of={of} />
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )}
        </Panel>
      )}
      {it && <Came of={it.came} />}
      {it && (
        <Panel title="Budgets" aside={<code class="aside">regatta budget set day --usd 20</code>}>
          {it.budgets.length === 0 ? (
            <p class="empty">No budget is set.</p>
          ) : (
            <ul class="spans">
              {it.budgets.map((one) => (
                <li key={JSON.stringify(one.scope)}>
                  <b>{typeof one.scope === 'string' ? one.scope : Object.entries(one.scope as object).map(([kind, name]) => `${kind} ${String(name)}`)}</b>{' '}
                  {Object.entries(one.ceiling)
                    .map(([kind, most]) => (kind === 'micro_usd' ? `${usd(one.spent?.usage.micro_usd)} of ${usd(most)}` : `${most} ${kind}`))
                    .join(' · ')}
                </li>
              ))}
            </ul>
          )}
        </Panel>
      )}
    </>
  );
}
