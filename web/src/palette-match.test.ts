import { expect, it } from 'vitest';
import { type PaletteEntry, bestMatches, matchDistance } from './palette-match';

const entry = (label: string, hint = '', kind: PaletteEntry['kind'] = 'Actions'): PaletteEntry => ({ id: label, label, hint, kind, run: () => {} });
const later = Array.from({ length: 10 }, (_, at) => entry(`Later: in 1 h · A5${at} npm and more`, `regatta inbox snooze A5${at}`));

it('ranks whole words before parts of words, and does not match scattered letters', () => {
  const all = [...later, entry('Go to Landings', '', 'Pages'), entry('Land T13', 'regatta land T13'), entry('T4 Land the plane', 'regatta show T4', 'Tasks')];
  expect(bestMatches(all, 'land', []).map((found) => found.label)).toEqual(['Land T13', 'T4 Land the plane', 'Go to Landings']);
  expect(bestMatches(all, 'land t13', []).map((found) => found.label)).toEqual(['Land T13']);
});

it('finds a word with a letter that was left out, and a shell command', () => {
  expect(matchDistance('qeue', entry('Go to Queue'))).not.toBeNull();
  expect(matchDistance('snooze', later[0] as PaletteEntry)).not.toBeNull();
  expect(matchDistance('xyz', entry('Go to Queue'))).toBeNull();
  expect(matchDistance('', entry('Go to Queue'))).toBe(0);
});

it('puts recent choices first without a query, and uses them only for equal matches with one', () => {
  const all = [entry('Land T1'), entry('Land T2'), entry('T9 Land it', '', 'Tasks')];
  expect(bestMatches(all, '', ['Land T2']).map((found) => found.label)[0]).toBe('Land T2');
  expect(bestMatches(all, 'land', ['T9 Land it', 'Land T2']).map((found) => found.label)).toEqual(['Land T2', 'Land T1', 'T9 Land it']);
});

it('puts an action whose subject alone matches after tasks and pages', () => {
  const all = [{ ...entry('Hold… · greet', 'regatta queue hold …'), verb: 'Hold…' }, entry('T1 Greet in French', '', 'Tasks')];
  expect(bestMatches(all, 'greet', []).map((found) => found.label)).toEqual(['T1 Greet in French', 'Hold… · greet']);
  expect(bestMatches(all, 'hold', []).map((found) => found.label)).toEqual(['Hold… · greet']);
});

it('shows at most twelve entries', () => {
  expect(bestMatches([...later, ...later], 'later', []).length).toBe(12);
});
