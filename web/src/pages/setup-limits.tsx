// The parts of the setup page about limits: budgets, and the limits of the running daemon.

import { useState } from 'preact/hooks';
import { Field, GaugeBar, ShellLine, VerbForm } from '../components';
import { tokens, usd } from '../format';
import { quoteWord, shellCommand } from '../shell-words';
import { ActionButton, Panel, Table } from '../ui';
import type { BudgetsView, BudgetView, MachineLimits } from '../api';
import type { Fetched } from './setup-call';

const MINUTE_MS = 60_000;

/** Formats a duration as people type it: `15m`, `2h`, `90s`. */
export function durationText(ms: number): string {
  if (ms % (60 * MINUTE_MS) === 0 && ms > 0) return `${ms / (60 * MINUTE_MS)}h`;
  if (ms % MINUTE_MS === 0) return `${ms / MINUTE_MS}m`;
  return ms % 1_000 === 0 ? `${ms / 1_000}s` : `${ms}ms`;
}

/** Returns a typed duration in milliseconds, or nothing if it is not one. */
export function durationMs(text: string): number | null {
  const match = /^(\d+(?:\.\d+)?)\s*(ms|s|m|h)$/.exec(text.trim());
  const unitMs = { ms: 1, s: 1_000, m: MINUTE_MS, h: 60 * MINUTE_MS }[match?.[2] ?? ''];
  return match && unitMs ? Math.round(Number(match[1]) * unitMs) : null;
}

interface CeilingLine {
  name: string;
  text: string;
  share: number | null;
}

/** Returns each limit of a budget, with the used part. An unknown cost has no share. */
export function ceilingLines({ ceiling, spent }: BudgetView): CeilingLine[] {
  const lines: CeilingLine[] = [];
  const add = (name: string, limit: number | undefined, used: number | undefined, format: (n: number) => string) => {
    if (limit === undefined || limit === null) return;
    const usedText = !spent ? '' : used === undefined ? 'not reported, of ' : `${format(used)} of `;
    lines.push({ name, text: `${usedText}${format(limit)}`, share: used === undefined || limit === 0 ? null : used / limit });
  };
  const usage = spent?.usage;
  add('cost', ceiling.micro_usd, usage?.micro_usd ?? undefined, usd);
  add('tokens', ceiling.tokens, usage && usage.input + usage.cached_input + usage.cache_write + usage.output, tokens);
  add('turns', ceiling.turns, spent?.turns, String);
  add('attempts', ceiling.attempts, spent?.attempts, String);
  add('working time', ceiling.wall_ms, spent?.wall_ms, (ms) => durationText(Math.round(ms / 1_000) * 1_000));
  return lines;
}

const SCOPES: [string, string][] = [
  ['day', 'each day, all agents'],
  ['task', 'each task'],
  ['attempt', 'each attempt (run of an agent on a task)'],
  ['agent', 'one agent, each day'],
  ['mission', 'one mission'],
  ['one-task', 'one task'],
];

function BudgetForm({ done }: { done: () => void }) {
  const [kind, setKind] = useState('day');
  const [which, setWhich] = useState('');
  const [dollars, setDollars] = useState('20');
  const [tokenCount, setTokenCount] = useState('');
  const [time, setTime] = useState('');
  const needsName = ['agent', 'mission', 'one-task'].includes(kind);
  const scope = kind === 'agent' ? `agent:${which}` : needsName ? which : kind;
  const ceiling = {
    ...(dollars === '' ? {} : { micro_usd: Math.round(Number(dollars) * 1e6) }),
    ...(tokenCount === '' ? {} : { tokens: Number(tokenCount) }),
    ...(durationMs(time) === null ? {} : { wall_ms: durationMs(time) }),
  };
  const cli = shellCommand(['budget', 'set', scope || '…'], [['--usd', dollars], ['--tokens', tokenCount], ['--time', time]]);
  return (
    <VerbForm label="Set budget" verb="budget.set" input={{ scope, ceiling }} cli={cli} onDone={done}>
      <Field label="Budget of" value={kind} set={setKind} options={SCOPES} />
      {needsName && <Field label={kind === 'agent' ? 'Agent' : kind === 'mission' ? 'Mission' : 'Task'} value={which} set={setWhich} required placeholder={{ agent: 'claude-1', mission: 'M3' }[kind] ?? 'T7'} />}
      <Field label="US dollars" type="number" min={0} step="any" value={dollars} set={setDollars} help="Empty: no limit" />
      <Field label="Tokens" type="number" min={0} value={tokenCount} set={setTokenCount} help="Empty: no limit" />
      <Field label="Working time" value={time} set={setTime} pattern="\d+(\.\d+)?(s|m|h)" placeholder="2h" help="Empty: no limit" />
    </VerbForm>
  );
}

export function BudgetsSection({ budgets }: { budgets: Fetched<BudgetsView> }) {
  const all = budgets.data?.budgets ?? [];
  return (
    <Panel title="Budgets" aside={<ShellLine line="regatta budget list" />}>
      <p class="intro">At 80 % you get a notice. When a day's or a mission's budget is used up, no new work starts and running work ends so that it can be resumed.</p>
      <BudgetForm done={budgets.reload} />
      {budgets.problem && <p class="error">{budgets.problem}</p>}
      {budgets.data && all.length === 0 && <p class="empty">No budget is set: agents may spend without a limit.</p>}
      {all.length > 0 && (
        <Table heads={['Budget of', 'Limit of', '>Used', 'Share', 'Actions']}>
          {all.flatMap((budget) =>
            ceilingLines(budget).map((line, index) => (
              <tr key={`${budget.scope}${line.name}`} data-row tabIndex={0}>
                <td class="name">{index === 0 && budget.scope}</td>
                <td>{line.name}</td>
                <td class="right">{line.text}</td>
                <td class="budget-use">{line.share !== null && budget.spent && <GaugeBar share={line.share} label={`${budget.scope} ${line.name}: ${Math.round(line.share * 100)} % used`} />}</td>
                <td>
                  {index === 0 && (
                    <ActionButton
                      action={{ label: 'Remove', verb: 'budget.set', input: { scope: budget.scope, ceiling: {} }, cli: `regatta budget set ${quoteWord(budget.scope)}`, first: false, grave: true, after: budgets.reload }}
                    />
                  )}
                </td>
              </tr>
            )),
          )}
        </Table>
      )}
    </Panel>
  );
}

interface LimitSpec {
  field: Exclude<keyof MachineLimits, 'landing_slots'>;
  /** The name that `regatta config set` uses. */
  name: string;
  meaning: string;
  unit: 'count' | 'time' | 'MiB';
}

const LIMITS: LimitSpec[] = [
  { field: 'max_attempts', name: 'max_attempts', meaning: 'Attempts on this machine at the same time', unit: 'count' },
  { field: 'attempt_timeout_ms', name: 'attempt_timeout', meaning: 'Longest attempt of a worker', unit: 'time' },
  { field: 'lead_timeout_ms', name: 'lead_timeout', meaning: 'Longest attempt of a lead', unit: 'time' },
  { field: 'startup_ms', name: 'startup', meaning: 'Time in which a started program must open its session', unit: 'time' },
  { field: 'silence_ms', name: 'silence', meaning: 'Time without output after which a program is ended', unit: 'time' },
  { field: 'escalate_ms', name: 'escalate', meaning: 'Age at which an unanswered request is escalated', unit: 'time' },
  { field: 'retry_ms', name: 'retry', meaning: 'Pause before another try after the first failure', unit: 'time' },
  { field: 'retry_most_ms', name: 'retry_most', meaning: 'Longest pause before another try', unit: 'time' },
  { field: 'shutdown_ms', name: 'shutdown_timeout', meaning: 'Time in which stopped programs may end by themselves', unit: 'time' },
  { field: 'attempt_memory_mb', name: 'attempt_memory', meaning: 'Memory in MiB that must be free for each start; 0 turns the check off', unit: 'MiB' },
  { field: 'attempt_disk_mb', name: 'attempt_disk', meaning: 'Disk space in MiB that must be free for each start; 0 turns the check off', unit: 'MiB' },
];

function LimitRow({ spec, value, done }: { spec: LimitSpec; value: number; done: () => void }) {
  const current = spec.unit === 'time' ? durationText(value) : String(value);
  const [typed, setTyped] = useState<string | null>(null);
  const text = typed ?? current;
  const next = spec.unit === 'time' ? durationMs(text) : /^\d+$/.test(text) ? Number(text) : null;
  const cli = `regatta config set ${spec.name} ${quoteWord(text)}`;
  const after = () => {
    setTyped(null);
    done();
  };
  const isChanged = text !== current;
  return (
    <tr data-row>
      <td>
        {spec.meaning}
        <div class="aside">
          <code>{spec.name}</code>
        </div>
      </td>
      <td class="right">
        <span class="limit-input">
          <input aria-label={spec.meaning} aria-invalid={next === null} value={text} onInput={(event) => setTyped(event.currentTarget.value)} />
        </span>
      </td>
      <td>
        {isChanged && next === null && <span class="bad">{spec.unit === 'time' ? 'Write a time, such as 30s, 15m or 2h' : 'Write a whole number'}</span>}
        {isChanged && next !== null && (
          <span class="row">
            <ActionButton action={{ label: 'Save', verb: 'limits.set', input: { [spec.field]: next }, cli, first: true, grave: false, after }} />
            <ShellLine line={cli} />
          </span>
        )}
      </td>
    </tr>
  );
}

export function LimitsSection({ limits }: { limits: Fetched<MachineLimits> }) {
  const values = limits.data;
  return (
    <Panel title="Limits of the running daemon" aside={<ShellLine line="regatta config show" />}>
      <p class="intro">A change counts at once and stays after a restart.</p>
      {!values && <p class="empty">{limits.problem || 'loading…'}</p>}
      {values && (
        <Table heads={['Limit', '>Value', 'Change']}>
          {LIMITS.map((spec) => (
            <LimitRow key={spec.name} spec={spec} value={values[spec.field]} done={limits.reload} />
          ))}
        </Table>
      )}
    </Panel>
  );
}
