// Tables that are sorted by their heads; how is in the address.

import { byName } from './live/client';
import { get, set } from './route';

export interface Column<T> {
  /** Its name in the address. */
  name: string;
  head: string;
  /** What it is sorted by; nothing where that is unknown. */
  of?: (it: T) => string | number | null | undefined;
  right?: boolean;
}

/** Rows in the order that was asked for: `cost`, or `-cost` for the other way. What is not known comes last either way. */
export function ordered<T>(rows: T[], columns: Column<T>[], asked: string): T[] {
  const of = columns.find((it) => it.name === asked.replace(/^-/, ''))?.of;
  if (!of) return rows;
  const way = asked.startsWith('-') ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [one, other] = [of(a) ?? '', of(b) ?? ''];
    if (one === '' || other === '') return Number(one === '') - Number(other === '');
    return way * (typeof one === 'number' && typeof other === 'number' ? one - other : byName(String(one), String(other)));
  });
}

export function Heads<T>({ columns }: { columns: Column<T>[] }) {
  const asked = get('sort');
  return (
    <thead>
      <tr>
        {columns.map(({ name, head, of, right }) => {
          const way = asked === name ? 'ascending' : asked === `-${name}` ? 'descending' : undefined;
          const next = way === 'ascending' ? `-${name}` : way ? null : name;
          return (
            <th key={name} class={right ? 'right' : undefined} aria-sort={way}>
              {of ? (
                <button type="button" class="sort" title={way ? `sorted by ${head}, ${way}` : `sort by ${head}`} onClick={() => set('sort', next)}>
                  {head} <span aria-hidden="true">{way === 'ascending' ? '▲' : way ? '▼' : ''}</span>
                </button>
              ) : (
                head
              )}
            </th>
          );
        })}
      </tr>
    </thead>
  );
}
