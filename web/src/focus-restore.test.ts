import { afterEach, expect, it } from 'vitest';
import { rememberFocus } from './focus-memory';
import { restoreFocus, wantedRow } from './focus-restore';

const list = '<main><table><tr data-row tabindex="0"><td><a href="/t/T1">T1</a></td></tr><tr data-row data-row-key="/t/T2" tabindex="0"><td>T2</td></tr></table></main>';

afterEach(() => {
  document.body.innerHTML = '';
});

/** Waits until the focus is on a row. Fails with the time limit of the test. */
async function focusedRow(): Promise<string> {
  while (document.activeElement === document.body) await new Promise((done) => setTimeout(done));
  return document.activeElement?.textContent ?? '';
}

it('gives the focus back to the row that had it, when the row is drawn again', async () => {
  for (const [name, selector] of [
    ['T1', 'a'],
    ['T2', '[data-row-key]'],
  ] as const) {
    document.body.innerHTML = list;
    document.querySelector<HTMLElement>(selector)?.focus();
    rememberFocus(name);
    document.body.innerHTML = '<main>loading…</main>';
    restoreFocus(name);
    expect(wantedRow.value).toBe(`/t/${name}`);
    document.body.innerHTML = list;
    expect(await focusedRow()).toBe(name);
    expect(document.activeElement?.tagName).toBe('TR');
    expect(wantedRow.value).toBe(null);
  }
});

it('leaves the focus alone when the person has pressed a key, or when no row had the focus', () => {
  document.body.innerHTML = list;
  rememberFocus('none');
  restoreFocus('none');
  expect(wantedRow.value).toBe(null);
  document.querySelector('a')?.focus();
  rememberFocus('row');
  document.body.innerHTML = '<main></main>';
  restoreFocus('row');
  dispatchEvent(new KeyboardEvent('keydown', { key: 'j' }));
  expect(wantedRow.value).toBe(null);
});
