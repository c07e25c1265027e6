import { describe, expect, it } from 'vitest';
import { shellCommand } from '../shell-words';
import { ruleScope } from './setup-access';
import { ceilingLines, durationMs, durationText } from './setup-limits';

describe('the forms of the setup', () => {
  it('quote words for a shell only if they need it', () => {
    expect(shellCommand(['policy', 'add', 'allow'], [['--command', "echo 'x'*"], ['--for', '']])).toBe("regatta policy add allow --command 'echo '\\''x'\\''*'");
  });

  it('read and write durations as the command does', () => {
    expect(['2h', '15m', '30s', '1.5h', '3 days', ''].map(durationMs)).toEqual([7_200_000, 900_000, 30_000, 5_400_000, null, null]);
    expect([7_200_000, 900_000, 30_000, 1_500].map(durationText)).toEqual(['2h', '15m', '30s', '1500ms']);
  });

  it('turn the name of a scope into a scope', () => {
    expect(['all', 't7', 'M3', 'leads', 'agent:claude-1', 'claude-1'].map(ruleScope)).toEqual(['all', { task: 'T7' }, { mission: 'M3' }, { role: 'lead' }, { agent: 'claude-1' }, { agent: 'claude-1' }]);
  });

  it('show an unknown cost as not reported, never as zero', () => {
    const usage = { input: 10, cached_input: 0, cache_write: 0, output: 5 };
    const [cost, tokenLine] = ceilingLines({ scope: 'day', ceiling: { micro_usd: 4_000_000, tokens: 100 }, spent: { usage, turns: 1, attempts: 1, wall_ms: 0 } });
    expect([cost?.text, cost?.share]).toEqual(['not reported, of $4.00', null]);
    expect([tokenLine?.text, tokenLine?.share]).toEqual(['15 of 100', 0.15]);
  });
});
