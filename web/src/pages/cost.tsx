import { useEffect, useState } from 'preact/hooks';
import { plain, tokens, usd } from '../format';
import { price } from '../format-cost';
import { topic } from '../live/client';
import { colour } from '../plots/spend-chart';
import { SpendLine } from '../plots/spend';
import { get, set } from '../route';
import { call } from '../session';
import { Empty, Panel, complain, useTopics } from '../ui';
import type { Cost as View, CostRow, CostTable, Sum } from '../views';

const SINCE: [number, string][] = [
  [0, 'today'],
  [7, '7 days'],
  [30, '30 days'],
];

/** A count of tokens. Programs tell it at the end of a turn, or never: until then it is not known, and not none. */
function known(of: Sum, many: number): string {
  const { input, cached_input, cache_write, output } = of.spent.usage;
  return input + cached_input + cache_write + output === 0 ? '–' : tokens(many);
}

function Cells({ of }: { of: Sum }) {
  const usage = of.spent.usage;
  return (
    <>
      <td class="right">{of.tasks}</td>
      <td class="right">{known(of, usage.input + usage.cached_input + usage.cache_write)}</td>
      <td class="right">{known(of, usage.output)}</td>
      <td class="right">{cached(of)}</td>
      <td class="right">{price(of)}</td>
      <td class="right">{of.rate === undefined ? '–' : `${usd(of.rate)}/h`}</td>
    </>
  );
}

/** How much of what was read came from a cache; nothing where none was spoken of. */
export function cached(of: Sum): string {
  const { input, cached_input, cache_write } = of.spent.usage;
  if (cached_input + cache_write === 0) return 'n/a';
  return `${Math.floor((100 * cached_input) / (input + cached_input + cache_write))} %`;
}

/** The money as one bar, a stretch for each provider. */
function Shares({ of }: { of: CostRow[] }) {
  const known = of.flatMap((it) => (it.spent.usage.micro_usd ? [[it.name, it.spent.usage.micro_usd] as const] : []));
  const all = known.reduce((sum, it) => sum + it[1], 0);
  if (all === 0) return null;
  let x = 0;
  return (
    <div class="shares">
      <svg class="time" viewBox="0 0 300 18" preserveAspectRatio="none" height={14} role="img" aria-label={`By provider: ${known.map(([name, micro]) => `${name} ${usd(micro)}`).join(', ')}`}>
        {known.map(([name, micro], nth) => {
          const wide = (micro / all) * 300;
          x += wide;
          return <rect key={name} class={`at-${colour(nth)}`} x={x - wide} width={Math.max(0.5, wide - 0.7)} y={0} height={18} />;
        })}
      </svg>
      <ul class="legend">
        {known.map(([name, micro], nth) => (
          <li key={name}>
            <span class={`swatch at-${colour(nth)}`} aria-hidden="true" /> {plain(name, 40)} {usd(micro)}, {Math.round((100 * micro) / all)} %
          </li>
        ))}
      </ul>
    </div>
  );
}

function Name({ by, it }: { by: CostTable['by']; it: CostRow }) {
  const name = plain(it.name, 100);
  return (
    <td>
      {by === 'mission' && /^M\d+$/.test(it.name) ? <a href={`/tasks?mission=${it.name}`}>{name}</a> : by === 'agent' ? <a href={`/agents/${it.name}`}>{name}</a> : name}{' '}
      {it.about && <span class="dim">{plain(it.about, 100)}</span>}
    </td>
  );
}

function Part({ of, total, since }: { of: CostTable; total?: View; since: string }) {
  return (
    <>
      <thead>
        <tr>
          <th>{of.by[0]?.toUpperCase()}{of.by.slice(1)}</th>
          <th class="right">Tasks</th>
          <th class="right">In tok</th>
          <th class="right">Out tok</th>
          <th class="right">Cache</th>
          <th class="right">Cost</th>
          <th class="right">Rate</th>
        </tr>
      </thead>
      <tbody>
        {of.rows.slice(0, 300).map((it) => (
          <tr key={it.name} data-row>
            <Name by={of.by} it={it} />
            <Cells of={it} />
          </tr>
        ))}
        {total && (
          <tr class="sum">
            <th scope="row">total {since}</th>
            <Cells of={total.total} />
          </tr>
        )}
      </tbody>
    </>
  );
}

/** What the money brought: what landed, and what came to nothing. */
function Came({ of, since }: { of: View['came']; since: string }) {
  const figure = (name: string, value: string, more: string, bad = false) => (
    <div class="figure">
      <dt>{name}</dt>
      <dd class={bad ? 'bad' : ''}>{value}</dd>
      <dd class="more">{more}</dd>
    </div>
  );
  const many = (n: number, what: string) => `${n} ${what}${n === 1 ? '' : 's'}`;
  const lost = [of.failed_attempts > 0 && many(of.failed_attempts, 'failed attempt'), of.dropped_tasks > 0 && `${many(of.dropped_tasks, 'task')} dropped or failed`].filter(Boolean);
  return (
    <Panel title="What came of it" aside={<span class="aside">{since}</span>}>
      <dl class="figures">
        {figure('Cost per landed task', of.each !== undefined ? usd(of.each) : of.landed.tasks > 0 ? price(of.landed) : '–', of.landed.tasks > 0 ? `${many(of.landed.tasks, 'task')} landed` : 'nothing landed yet')}
        {figure('Wasted', lost.length > 0 ? price(of.wasted) : 'nothing', lost.length > 0 ? lost.join(', ') : 'no attempt failed, no task was dropped', lost.length > 0)}
        {figure(
          'Tokens per landed line',
          of.lines ? tokens(of.lines.tokens_each) : '–',
          of.lines ? `${many(of.lines.lines, 'line')}${of.lines.tasks < of.landed.tasks ? ` of the last ${of.lines.tasks} tasks` : ''}` : 'no line that tokens were counted for',
        )}
      </dl>
    </Panel>
  );
}

export function Cost() {
  useTopics('spend', 'cost');
  void topic('cost').changed.value;
  const days = SINCE.some(([it]) => String(it) === get('days')) ? Number(get('days')) : 0;
  const [asked, setAsked] = useState<{ days: number; it: View } | null>(null);
  useEffect(() => {
    if (days > 0) call<View>('cost', { days }).then((it) => setAsked({ days, it }), complain);
  }, [days]);
  const today = topic('cost').one<View>('cost');
  const it = days === 0 ? today : asked?.days === days ? asked.it : undefined;
  const since = days === 0 ? 'today' : `since ${it ? new Date(it.since_wall).toISOString().slice(0, 10) : `${days} days ago`}`;
  return (
    <>
      <SpendLine height={140} />
      <Panel
        title="Spent"
        aside={
          <span class="filters">
            {SINCE.map(([many, word]) => (
              <button key={many} type="button" class="chip" aria-pressed={days === many} onClick={() => set('days', many === 0 ? '' : String(many))}>
                {word}
              </button>
            ))}
            <code class="aside">regatta cost --by provider{days > 0 ? ` --since ${days}d` : ''}</code>
          </span>
        }
      >
        {!it || it.total.tasks === 0 ? (
          <Empty known={it !== undefined}>Nobody has used anything {since}.</Empty>
        ) : (
          <div class="scroll">
            <Shares of={it.tables.find((one) => one.by === 'provider')?.rows ?? []} />
            <table class="list">
              {it.tables.map((one, nth) => (
                <Part key={one.by} of={one} total={nth === 0 ? it : undefined} since={since} />
              ))}
            </table>
          </div>
        )}
      </Panel>
      {it && <Came of={it.came} since={since} />}
      {today && (
        <Panel title="Budgets" aside={<code class="aside">regatta budget set day --usd 20</code>}>
          {(today.budgets ?? []).length === 0 ? (
            <p class="empty">No budget is set.</p>
          ) : (
            <ul class="spans">
              {(today.budgets ?? []).map((one) => (
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
