import { describe, expect, it } from 'vitest';
import { saveDrafts, unsentComments } from './drafts';
import { markChangeSeen, wasChangeSeen } from './seen-changes';

describe('seen changes', () => {
  it('remembers a change by its commit, so that new work of the task counts as unread', () => {
    expect(wasChangeSeen('T9', 'aaaa')).toBe(false);
    markChangeSeen('T9', 'aaaa');
    expect(wasChangeSeen('T9', 'aaaa')).toBe(true);
    expect(wasChangeSeen('T9', 'bbbb')).toBe(false);
  });

  it('forgets the oldest change when there are too many', () => {
    for (let task = 0; task < 600; task += 1) markChangeSeen(`T${task}`, 'cccc');
    expect(wasChangeSeen('T599', 'cccc')).toBe(true);
    expect(wasChangeSeen('T0', 'cccc')).toBe(false);
    expect(JSON.parse(localStorage.getItem('regatta-seen-changes') ?? '[]')).toHaveLength(500);
  });
});

describe('unsent comments', () => {
  it('counts the comments that have text, and the one on the whole change', () => {
    expect(unsentComments('T9')).toBe(0);
    saveDrafts('T9', { words: 'smaller, please', comments: [{ path: 'a.rs', line: 3, text: 'why?' }, { path: 'a.rs', line: 4, text: ' ' }] });
    expect(unsentComments('T9')).toBe(2);
  });
});
