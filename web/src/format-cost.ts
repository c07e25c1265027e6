// What something cost, in words.

import { tokens, usd } from './format';
import type { Sum } from './views';

/** What something cost; what is not known is not called nothing. */
export function price(sum: Sum): string {
  const { micro_usd, input, cached_input, cache_write, output } = sum.spent.usage;
  if (micro_usd === undefined || micro_usd === null) return input + cached_input + cache_write + output > 0 ? 'no price reported' : '–';
  return sum.unpriced ? `${usd(micro_usd)} + ${tokens(sum.unpriced)} tok unpriced` : usd(micro_usd);
}
