// Costs by provider, mission, agent and model, with their results and budgets.

import { useEffect, useState } from 'preact/hooks';
import { EmptyState, Figures, GaugeBar, type FigureProps, ShellLine, seriesClass } from '../components';
import { plain, tokens, usd } from '../format';
import { forecastText, price } from '../format-cost';
import { topic } from '../live/client';
import { SpendLine } from '../plots/spend';
import { queryParam, setQueryParam } from '../route';
import { call } from '../session';
import { type Column, Heads, sortRows } from '../table';
import { Empty, Panel, Table, reportError, useTopics } from '../ui';
import { ceilingLines } from './setup-limits';
import type { BudgetView, CostRow, CostSum, CostTable, CostView, SpendResultsView, TodaySpendView } from '../api';
import './cost.css';

const SINCE: [number, string][] = [
  [0, 'today'],
  [7, '7 days'],
  [30, '30 days'],
];
const MAX_ROWS = 300;
const GROUPINGS: CostTable['by'][] = ['provider', 'mission', 'agent', 'model'];

function tokenSum(sum: CostSum): number {
  const { input, cached_input, cache_write, output } = sum.spent.usage;
  return input + cached_input + cache_write + output;
}

/** Returns the share of input tokens that came from a cache, or `n/a` if the program reports no cache tokens. */
export function cached(sum: CostSum): string {
  const { input, cached_input, cache_write } = sum.spent.usage;
  if (cached_input + cache_write === 0) return 'n/a';
  return `${Math.floor((100 * cached_input) / (input + cached_input + cache_write))} %`;
}

/** A figure of a table. An unknown figure is not reported; it is never zero. */
function Reported({ text }: { text: string | null }) {
  return text === null ? <span class="aside">not reported</span> : <>{text}</>;
}

const inputTokens = (sum: CostSum) => sum.spent.usage.input + sum.spent.usage.cached_input + sum.spent.usage.cache_write;

function columnsOf(by: CostTable['by'], hasRates: boolean): Column<CostRow>[] {
  const known = (row: CostRow, value: number) => (tokenSum(row) === 0 ? null : value);
  const columns: Column<CostRow>[] = [
    { name: 'name', head: `${by[0]?.toUpperCase()}${by.slice(1)}`, sortKey: (row) => row.name },
    { name: 'share', head: 'Share of cost' },
    { name: 'cost', head: 'Cost', sortKey: (row) => row.spent.usage.micro_usd, right: true },
    { name: 'tasks', head: 'Tasks', sortKey: (row) => row.tasks, right: true },
    { name: 'in', head: 'Input tokens', sortKey: (row) => known(row, inputTokens(row)), right: true },
    { name: 'cache', head: 'From cache', sortKey: (row) => known(row, row.spent.usage.cached_input), right: true },
    { name: 'out', head: 'Output tokens', sortKey: (row) => known(row, row.spent.usage.output), right: true },
  ];
  if (hasRates) columns.push({ name: 'rate', head: 'Last hour', sortKey: (row) => row.rate, right: true });
  return columns;
}

function SumCells({ sum, hasRates }: { sum: CostSum; hasRates: boolean }) {
  const usage = sum.spent.usage;
  const isReported = tokenSum(sum) > 0;
  const cost = usage.micro_usd || isReported ? (usage.micro_usd === undefined || usage.micro_usd === null ? null : price(sum)) : null;
  return (
    <>
      <td class="right" data-label="Cost">
        <Reported text={cost} />
      </td>
      <td class="right" data-label="Tasks">{sum.tasks}</td>
      <td class="right" data-label="Input">
        <Reported text={isReported ? tokens(inputTokens(sum)) : null} />
      </td>
      <td class="right" data-label="From cache">
        <Reported text={isReported && cached(sum) !== 'n/a' ? cached(sum) : null} />
      </td>
      <td class="right" data-label="Output">
        <Reported text={isReported ? tokens(usage.output) : null} />
      </td>
      {hasRates && <td class="right">{sum.rate === undefined ? '–' : `${usd(sum.rate)}/h`}</td>}
    </>
  );
}

function Name({ by, row }: { by: CostTable['by']; row: CostRow }) {
  const name = plain(row.name, 100);
  return (
    <td>
      {by === 'provider' && <span class={`swatch ${seriesClass(row.name)}`} aria-hidden="true" />} {by === 'mission' && /^M\d+$/.test(row.name) ? <a href={`/tasks?mission=${row.name}`}>{name}</a> : by === 'agent' ? <a href={`/agents/${row.name}`}>{name}</a> : name}{' '}
      {row.about && <span class="dim">{plain(row.about, 100)}</span>}
    </td>
  );
}

/** The part of the whole cost as a bar. */
function ShareCell({ row, all, series }: { row: CostRow; all: number; series: string }) {
  const micro = row.spent.usage.micro_usd;
  if (micro === undefined || micro === null || all === 0) return <td class="share-cell" />;
  const percent = (100 * micro) / all;
  return (
    <td class="share-cell">
      <svg class={`share-bar ${series}`} viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label={`${Math.round(percent)} % of the cost`}>
        <title>{Math.round(percent)} % of the cost</title>
        <rect width={percent} height={8} />
      </svg>
    </td>
  );
}

function CostRows({ table, total, since }: { table: CostTable; total: CostSum; since: string }) {
  const hasRates = table.rows.some((row) => row.rate !== undefined);
  const columns = columnsOf(table.by, hasRates);
  const rows = sortRows(table.rows, columns, queryParam('sort'));
  const all = total.spent.usage.micro_usd ?? 0;
  return (
    <>
      <div class="scroll">
        <table class="list stack">
          <Heads columns={columns} />
          <tbody>
            {rows.slice(0, MAX_ROWS).map((row) => (
              <tr key={row.name} data-row>
                <Name by={table.by} row={row} />
                <ShareCell row={row} all={all} series={table.by === 'provider' ? seriesClass(row.name) : ''} />
                <SumCells sum={row} hasRates={hasRates} />
              </tr>
            ))}
            <tr class="sum">
              <th scope="row">Total {since}</th>
              <td />
              <SumCells sum={total} hasRates={hasRates} />
            </tr>
          </tbody>
        </table>
      </div>
      {rows.length > MAX_ROWS && <p class="empty">{MAX_ROWS} of {rows.length} rows are shown.</p>}
    </>
  );
}

const plural = (n: number, noun: string) => `${n} ${noun}${n === 1 ? '' : 's'}`;

/** Returns the figures above the chart: the cost, its forecast, and what it achieved. */
export function costFigures(total: CostSum, outcome: SpendResultsView, spending: Pick<TodaySpendView, 'cap' | 'forecast'> | undefined): FigureProps[] {
  const micro = total.spent.usage.micro_usd;
  const isUnknown = micro === undefined || micro === null || (micro === 0 && tokenSum(total) === 0);
  const share = spending?.cap && !isUnknown ? `${Math.round((100 * micro) / spending.cap)} % of the cap of ${usd(spending.cap)}` : '';
  const lost = [outcome.failed_attempts > 0 && plural(outcome.failed_attempts, 'failed attempt'), outcome.dropped_tasks > 0 && `${plural(outcome.dropped_tasks, 'task')} dropped or failed`].filter(Boolean);
  const wasted = outcome.wasted.spent.usage.micro_usd;
  return [
    { name: 'Spent', value: isUnknown ? 'not reported' : usd(micro), more: share || (total.unpriced ? `${tokens(total.unpriced)} tokens without a price` : `${plural(total.tasks, 'task')}`), isBad: spending?.forecast?.when === 'reached' },
    { name: 'Rate of the last hour', value: total.rate === undefined ? '–' : `${usd(total.rate)}/h`, more: spending?.forecast ? forecastText(spending.forecast) : total.rate === undefined ? 'needs 15 minutes of spending' : 'no cap for the day' },
    { name: 'Cost per landed task', value: outcome.each === undefined ? '–' : usd(outcome.each), more: outcome.landed.tasks > 0 ? (outcome.each === undefined ? `${plural(outcome.landed.tasks, 'task')} landed, cost not reported` : `${plural(outcome.landed.tasks, 'task')} landed`) : 'nothing landed yet' },
    { name: 'Wasted', value: lost.length === 0 ? 'nothing' : wasted === undefined || wasted === null ? 'not reported' : usd(wasted), more: lost.length > 0 ? lost.join(', ') : 'no attempt failed, no task was dropped', isBad: Boolean(wasted) },
    { name: 'Tokens per landed line', value: outcome.lines ? tokens(outcome.lines.tokens_each) : '–', more: outcome.lines ? `${plural(outcome.lines.lines, 'line')}${outcome.lines.tasks < outcome.landed.tasks ? ` of the last ${outcome.lines.tasks} tasks` : ''}` : 'no landed lines with token counts' },
  ];
}

function Budgets({ budgets }: { budgets: BudgetView[] }) {
  return (
    <Panel
      title="Budgets"
      aside={
        <a class="do" href="/setup?section=budgets">
          Set a budget
        </a>
      }
    >
      {budgets.length === 0 ? (
        <p class="empty">No budget is set: agents may spend without a limit.</p>
      ) : (
        <Table heads={['Budget of', 'Limit of', '>Used', 'Share']}>
          {budgets.flatMap((budget) =>
            ceilingLines(budget).map((line, index) => (
              <tr key={`${budget.scope}${line.name}`} class="budget-row" data-row>
                <td class="name">{index === 0 && budget.scope}</td>
                <td>{line.name}</td>
                <td class="right">{line.text}</td>
                <td class="share-cell">{line.share !== null && budget.spent && <GaugeBar share={line.share} label={`${budget.scope} ${line.name}: ${Math.round(line.share * 100)} % used`} />}</td>
              </tr>
            )),
          )}
        </Table>
      )}
    </Panel>
  );
}

export function Cost() {
  useTopics('spend', 'cost');
  void topic('cost').changed.value;
  const days = SINCE.some(([choice]) => String(choice) === queryParam('days')) ? Number(queryParam('days')) : 0;
  const by = GROUPINGS.find((grouping) => grouping === queryParam('by')) ?? 'provider';
  const [fetched, setFetched] = useState<{ days: number; cost: CostView } | null>(null);
  useEffect(() => {
    if (days > 0) call('cost', { days }).then((cost) => setFetched({ days, cost }), reportError);
  }, [days]);
  const today = topic('cost').get('cost');
  const spending = topic('spend').get('spend');
  const cost = days === 0 ? today : fetched?.days === days ? fetched.cost : undefined;
  const since = days === 0 ? 'today' : `since ${cost ? new Date(cost.since_wall).toISOString().slice(0, 10) : `${days} days ago`}`;
  const table = cost?.tables.find((candidate) => candidate.by === by);
  return (
    <>
      <Panel
        title={`Cost ${since}`}
        aside={
          <>
            <span class="tabs" role="group" aria-label="Time">
              {SINCE.map(([dayCount, label]) => (
                <button key={dayCount} type="button" class="chip" aria-pressed={days === dayCount} onClick={() => setQueryParam('days', dayCount === 0 ? '' : String(dayCount))}>
                  {label}
                </button>
              ))}
            </span>
          </>
        }
      >
        {cost ? <Figures figures={costFigures(cost.total, cost.came, days === 0 ? spending : undefined)} /> : <p class="empty">loading…</p>}
      </Panel>
      {days === 0 && <SpendLine height={260} />}
      <Panel
        title={`Cost by ${by}`}
        aside={
          <>
            <span class="tabs cost-tables" role="group" aria-label="Group by">
              {GROUPINGS.map((grouping) => (
                <button key={grouping} type="button" class="chip" aria-pressed={by === grouping} onClick={() => setQueryParam('by', grouping === 'provider' ? null : grouping)}>
                  by {grouping}
                </button>
              ))}
            </span>
            <ShellLine line={`regatta cost --by ${by}${days > 0 ? ` --since ${days}d` : ''}`} />
          </>
        }
      >
        {cost && cost.total.tasks === 0 && (
          <EmptyState title={`No agent has used tokens ${since}`} text="This page shows what agents cost, by provider, mission, agent and model, and how much of it landed.">
            <a class="do first" href="/setup?section=budgets">
              Set a budget
            </a>
          </EmptyState>
        )}
        {!cost && <Empty known={false}>loading…</Empty>}
        {cost && cost.total.tasks > 0 && table && <CostRows table={table} total={cost.total} since={since} />}
      </Panel>
      {today && <Budgets budgets={today.budgets} />}
    </>
  );
}
