// Costs as text.

import { tokens, usd } from './format';
import type { CostSum } from './api';

/** Formats a cost. Tokens without a reported price are never shown as free. */
export function price(sum: CostSum): string {
  const { micro_usd, input, cached_input, cache_write, output } = sum.spent.usage;
  if (micro_usd === undefined || micro_usd === null) return input + cached_input + cache_write + output > 0 ? 'no price reported' : '–';
  return sum.unpriced ? `${usd(micro_usd)} + ${tokens(sum.unpriced)} tok unpriced` : usd(micro_usd);
}
