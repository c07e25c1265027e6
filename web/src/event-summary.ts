// Summarizes data of the server in one line.

import { age, usd } from './format';

/** Formats one field of an event: numbers with units, hashes shortened, times left out because the row has its own. */
function fieldText(name: string, value: unknown, about: string, depth: number): string {
  if (value === about || /(^|_)(wall|at|day|n|token)$/.test(name)) return '';
  if (name === 'micro_usd') return typeof value === 'number' && value > 0 ? `cost ${usd(value)}` : '';
  if (name.endsWith('_ms')) return typeof value === 'number' ? `${name.slice(0, -3).replace(/_/g, ' ')} ${age(value)}` : '';
  const text = typeof value === 'string' && /^[0-9a-f]{40}$/.test(value) ? value.slice(0, 10) : eventSummary(value, about, depth + 1);
  if (text === '' || text === '0' || depth > 2) return '';
  // Do not repeat the name: `said usage`, not `said said usage`.
  const shown = text.startsWith(`${name} `) ? text : `${name.replace(/_/g, ' ')} ${text}`;
  return shown.length > 160 ? `${shown.slice(0, 159)}…` : shown;
}

/** Summarizes an event's data in one line, without the subject that the row already shows. */
export function eventSummary(data: unknown, about = '', depth = 0): string {
  if (data === null || data === undefined || data === '' || data === false) return '';
  if (Array.isArray(data)) return data.length > 4 ? `${data.length} of them` : data.map((item) => eventSummary(item, about, depth + 1)).filter(Boolean).join(', ');
  if (typeof data !== 'object') return String(data);
  const parts = Object.entries(data)
    .sort(([nameA], [nameB]) => Number(nameB === 'said') - Number(nameA === 'said'))
    .map(([name, value]) => fieldText(name, value, about, depth))
    .filter(Boolean);
  return parts.slice(0, depth === 0 ? 12 : 5).join(depth === 0 ? ' · ' : ', ');
}
