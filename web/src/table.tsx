// Tables that people sort by their headings. The order is stored in the address.

import { byName } from './live/client';
import { queryParam, setQueryParam } from './route';

export interface Column<T> {
  /** The column's name in the address. */
  name: string;
  head: string;
  /** Returns the value to sort by, or nothing if it is unknown. */
  sortKey?: (row: T) => string | number | null | undefined;
  right?: boolean;
}

/** Sorts rows by a column: `cost` ascending, `-cost` descending. Rows with unknown values come last either way. */
export function sortRows<T>(rows: T[], columns: Column<T>[], order: string): T[] {
  const sortKey = columns.find((column) => column.name === order.replace(/^-/, ''))?.sortKey;
  if (!sortKey) return rows;
  const direction = order.startsWith('-') ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [keyA, keyB] = [sortKey(a) ?? '', sortKey(b) ?? ''];
    if (keyA === '' || keyB === '') return Number(keyA === '') - Number(keyB === '');
    return direction * (typeof keyA === 'number' && typeof keyB === 'number' ? keyA - keyB : byName(String(keyA), String(keyB)));
  });
}

export function Heads<T>({ columns }: { columns: Column<T>[] }) {
  const order = queryParam('sort');
  return (
    <thead>
      <tr>
        {columns.map(({ name, head, sortKey, right }) => {
          const direction = order === name ? 'ascending' : order === `-${name}` ? 'descending' : undefined;
          const next = direction === 'ascending' ? `-${name}` : direction ? null : name;
          return (
            <th key={name} class={right ? 'right' : undefined} aria-sort={direction}>
              {sortKey ? (
                <button type="button" class="sort" title={direction ? `sorted by ${head}, ${direction}` : `sort by ${head}`} onClick={() => setQueryParam('sort', next)}>
                  {head} <span aria-hidden="true">{direction === 'ascending' ? '▲' : direction ? '▼' : ''}</span>
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
