// Costs by provider, mission, agent and model, with their results and budgets.

import { useEffect, useState } from 'preact/hooks';
import { plain, tokens, usd } from '../format';
import { price } from '../format-cost';
import { topic } from '../live/client';
import { colour } from '../plots/spend-chart';
import { SpendLine } from '../plots/spend';
import { queryParam, setQueryParam } from '../route';
import { call } from '../session';
import { Empty, Panel, reportError, useTopics } from '../ui';
import type { CostRow, CostSum, CostTable, CostView } from '../api';
import './cost.css';

const SINCE: [number, string][] = [
  [0, 'today'],
  [7, '7 days'],
  [30, '30 days'],
];

/** Formats a token count. Programs report tokens at the end of a turn or never, so a count of zero means unknown. */
function tokenCount(sum: CostSum, count: number): string {
  const { input, cached_input, cache_write, output } = sum.spent.usage;
  return input + cached_input + cache_write + output === 0 ? '–' : tokens(count);
}

function SumCells({ sum }: { sum: CostSum }) {
  const usage = sum.spent.usage;
  return (
    <>
      <td class="right">{sum.tasks}</td>
      <td class="right">{tokenCount(sum, usage.input + usage.cached_input + usage.cache_write)}</td>
      <td class="right">{tokenCount(sum, usage.output)}</td>
      <td class="right">{cached(sum)}</td>
      <td class="right">{price(sum)}</td>
      <td class="right">{sum.rate === undefined ? '–' : `${usd(sum.rate)}/h`}</td>
    </>
  );
}

/** Returns the share of input tokens that came from a cache, or `n/a` if the program reports no cache tokens. */
export function cached(sum: CostSum): string {
  const { input, cached_input, cache_write } = sum.spent.usage;
  if (cached_input + cache_write === 0) return 'n/a';
  return `${Math.floor((100 * cached_input) / (input + cached_input + cache_write))} %`;
}

/** The total cost as one bar, with a segment per provider. */
function ProviderShares({ rows }: { rows: CostRow[] }) {
  const shares = rows.flatMap((row) => (row.spent.usage.micro_usd ? [[row.name, row.spent.usage.micro_usd] as const] : []));
  const all = shares.reduce((sum, share) => sum + share[1], 0);
  if (all === 0) return null;
  let x = 0;
  return (
    <div class="shares">
      <svg class="time" viewBox="0 0 300 18" preserveAspectRatio="none" height={14} role="img" aria-label={`By provider: ${shares.map(([name, micro]) => `${name} ${usd(micro)}`).join(', ')}`}>
        {shares.map(([name, micro], index) => {
          const width = (micro / all) * 300;
          x += width;
          return <rect key={name} class={`at-${colour(index)}`} x={x - width} width={Math.max(0.5, width - 0.7)} y={0} height={18} />;
        })}
      </svg>
      <ul class="legend">
        {shares.map(([name, micro], index) => (
          <li key={name}>
            <span class={`swatch at-${colour(index)}`} aria-hidden="true" /> {plain(name, 40)} {usd(micro)}, {Math.round((100 * micro) / all)} %
          </li>
        ))}
      </ul>
    </div>
  );
}

function Name({ by, row }: { by: CostTable['by']; row: CostRow }) {
  const name = plain(row.name, 100);
  return (
    <td>
      {by === 'mission' && /^M\d+$/.test(row.name) ? <a href={`/tasks?mission=${row.name}`}>{name}</a> : by === 'agent' ? <a href={`/agents/${row.name}`}>{name}</a> : name}{' '}
      {row.about && <span class="dim">{plain(row.about, 100)}</span>}
    </td>
  );
}

function CostSection({ table, total, since }: { table: CostTable; total?: CostView; since: string }) {
  return (
    <>
      <thead>
        <tr>
          <th>{table.by[0]?.toUpperCase()}{table.by.slice(1)}</th>
          <th class="right">Tasks</th>
          <th class="right">In tok</th>
          <th class="right">Out tok</th>
          <th class="right">Cache</th>
          <th class="right">Cost</th>
          <th class="right">Rate</th>
        </tr>
      </thead>
      <tbody>
        {table.rows.slice(0, 300).map((row) => (
          <tr key={row.name} data-row>
            <Name by={table.by} row={row} />
            <SumCells sum={row} />
          </tr>
        ))}
        {total && (
          <tr class="sum">
            <th scope="row">total {since}</th>
            <SumCells sum={total.total} />
          </tr>
        )}
      </tbody>
    </>
  );
}

/** The results of the cost: landed tasks and wasted attempts. */
function Outcome({ outcome, since }: { outcome: CostView['came']; since: string }) {
  const renderFigure = (name: string, value: string, more: string, isBad = false) => (
    <div class="figure">
      <dt>{name}</dt>
      <dd class={isBad ? 'bad' : ''}>{value}</dd>
      <dd class="more">{more}</dd>
    </div>
  );
  const plural = (n: number, noun: string) => `${n} ${noun}${n === 1 ? '' : 's'}`;
  const lost = [outcome.failed_attempts > 0 && plural(outcome.failed_attempts, 'failed attempt'), outcome.dropped_tasks > 0 && `${plural(outcome.dropped_tasks, 'task')} dropped or failed`].filter(Boolean);
  return (
    <Panel title="Results" aside={<span class="aside">{since}</span>}>
      <dl class="figures">
        {renderFigure('Cost per landed task', outcome.each !== undefined ? usd(outcome.each) : outcome.landed.tasks > 0 ? price(outcome.landed) : '–', outcome.landed.tasks > 0 ? `${plural(outcome.landed.tasks, 'task')} landed` : 'nothing landed yet')}
        {renderFigure('Wasted', lost.length > 0 ? price(outcome.wasted) : 'nothing', lost.length > 0 ? lost.join(', ') : 'no attempt failed, no task was dropped', lost.length > 0)}
        {renderFigure(
          'Tokens per landed line',
          outcome.lines ? tokens(outcome.lines.tokens_each) : '–',
          outcome.lines ? `${plural(outcome.lines.lines, 'line')}${outcome.lines.tasks < outcome.landed.tasks ? ` of the last ${outcome.lines.tasks} tasks` : ''}` : 'no landed lines with token counts',
        )}
      </dl>
    </Panel>
  );
}

export function Cost() {
  useTopics('spend', 'cost');
  void topic('cost').changed.value;
  const days = SINCE.some(([choice]) => String(choice) === queryParam('days')) ? Number(queryParam('days')) : 0;
  const [fetched, setAsked] = useState<{ days: number; cost: CostView } | null>(null);
  useEffect(() => {
    if (days > 0) call('cost', { days }).then((cost) => setAsked({ days, cost }), reportError);
  }, [days]);
  const today = topic('cost').get('cost');
  const cost = days === 0 ? today : fetched?.days === days ? fetched.cost : undefined;
  const since = days === 0 ? 'today' : `since ${cost ? new Date(cost.since_wall).toISOString().slice(0, 10) : `${days} days ago`}`;
  return (
    <>
      <SpendLine height={140} />
      <Panel
        title="Spent"
        aside={
          <span class="filters">
            {SINCE.map(([dayCount, label]) => (
              <button key={dayCount} type="button" class="chip" aria-pressed={days === dayCount} onClick={() => setQueryParam('days', dayCount === 0 ? '' : String(dayCount))}>
                {label}
              </button>
            ))}
            <code class="aside">regatta cost --by provider{days > 0 ? ` --since ${days}d` : ''}</code>
          </span>
        }
      >
        {!cost || cost.total.tasks === 0 ? (
          <Empty known={cost !== undefined}>No agent has used tokens {since}.</Empty>
        ) : (
          <div class="scroll">
            <ProviderShares rows={cost.tables.find((table) => table.by === 'provider')?.rows ?? []} />
            <table class="list">
              {cost.tables.map((table, index) => (
                <CostSection key={table.by} table={table} total={index === 0 ? cost : undefined} since={since} />
              ))}
            </table>
          </div>
        )}
      </Panel>
      {cost && <Outcome outcome={cost.came} since={since} />}
      {today && (
        <Panel title="Budgets" aside={<code class="aside">regatta budget set day --usd 20</code>}>
          {today.budgets.length === 0 ? (
            <p class="empty">No budgets.</p>
          ) : (
            <ul class="spans">
              {today.budgets.map((budget) => (
                <li key={budget.scope}>
                  <b>{budget.scope}</b>{' '}
                  {Object.entries(budget.ceiling)
                    .map(([kind, limit]) => (kind === 'micro_usd' ? `${usd(budget.spent?.usage.micro_usd)} of ${usd(limit)}` : `${limit} ${kind}`))
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
