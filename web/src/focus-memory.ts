// Remembers which row had the focus in each entry of the history, so that Back returns to it; see focus-restore.ts.
//
// A row has a key, which is its attribute `data-row-key`, or the address of its first link.

export interface FocusPosition {
  rowKey: string;
  scrollY: number;
}

const ROWS = 'main [data-row-key], main [data-row], main a';
const positions = new Map<string, FocusPosition>();

/** Returns the key of a row: its attribute `data-row-key`, or the address of its first link. */
function rowKeyOf(row: Element): string {
  return row.getAttribute('data-row-key') ?? (row.matches('a') ? row : row.querySelector('a'))?.getAttribute('href') ?? '';
}

/** Returns the row with a key. A link outside rows counts as a row. */
export function rowWithKey(rowKey: string): HTMLElement | null {
  return [...document.querySelectorAll<HTMLElement>(ROWS)].find((row) => rowKeyOf(row) === rowKey) ?? null;
}

/** Remembers the row with the focus for an entry of the history. */
export function rememberFocus(entry: string): void {
  const row = document.activeElement?.closest(ROWS);
  if (row) positions.set(entry, { rowKey: rowKeyOf(row), scrollY });
  else positions.delete(entry);
}

/** Returns the row that had the focus in an entry of the history. */
export function rememberedFocus(entry: string): FocusPosition | undefined {
  return positions.get(entry);
}
