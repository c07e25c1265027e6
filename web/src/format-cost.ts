// Costs as text.

import { clockTime, tokens, usd } from './format';
import type { CapForecast, CostSum } from './api';

/** Formats a cost. Tokens without a reported price are never shown as free. */
export function price(sum: CostSum): string {
  const { micro_usd, input, cached_input, cache_write, output } = sum.spent.usage;
  if (micro_usd === undefined || micro_usd === null) return input + cached_input + cache_write + output > 0 ? 'no price reported' : '–';
  return sum.unpriced ? `${usd(micro_usd)} + ${tokens(sum.unpriced)} tok unpriced` : usd(micro_usd);
}

/** Describes when a cap is reached, in the browser's time zone. */
export function forecastText(forecast: CapForecast): string {
  if (forecast.when === 'reached') return 'the cap is reached';
  if (forecast.when === 'not_today') return 'the cap is not reached today at this rate';
  return `cap reached about ${clockTime(forecast.wall, false)} at this rate`;
}
