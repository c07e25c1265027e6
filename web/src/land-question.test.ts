import { beforeEach, describe, expect, it, vi } from 'vitest';
import { saveDrafts } from './drafts';
import { landQuestion } from './land-question';
import { markChangeSeen } from './seen-changes';
import { pending, press } from './ui';
import type { Action } from './action';
import type { ChangeToLand } from './api';

vi.mock('./live/worker?sharedworker&url', () => ({ default: '/assets/worker.js' }));

const land = (task: string, confirm: ChangeToLand['confirm'] = 'unread'): Action => ({ label: 'Land', verb: 'land', input: { id: task }, cli: `regatta land ${task}`, first: false, grave: false, lands: { task, head: `head-${task}`, confirm } });

beforeEach(() => {
  localStorage.clear();
  pending.value = null;
});

describe('landing a change', () => {
  it('asks once for a change that nobody opened, and not after it was opened', () => {
    const question = landQuestion(land('T1'));
    expect([question?.text, question?.proceed]).toEqual(['You have not opened this change. Land it unread?', 'Land it unread']);
    expect(question?.instead.map((action) => [action.label, action.to])).toEqual([['Open the change', '/t/T1?tab=change']]);
    markChangeSeen('T1', 'an-earlier-head');
    expect(landQuestion(land('T1'))).toBeDefined();
    markChangeSeen('T1', 'head-T1');
    expect(landQuestion(land('T1'))).toBeUndefined();
  });

  it('follows the setting', () => {
    expect(landQuestion(land('T2', 'never'))).toBeUndefined();
    markChangeSeen('T2', 'head-T2');
    expect(landQuestion(land('T2', 'always'))).toMatchObject({ proceed: 'Land', instead: [] });
    expect(landQuestion({ ...land('T2'), lands: undefined })).toBeUndefined();
  });

  it('is blocked by comments that were not sent, whatever the setting says', () => {
    markChangeSeen('T3', 'head-T3');
    saveDrafts('T3', { words: 'more tests', comments: [{ path: 'a.rs', line: 2, text: 'why?' }] });
    const question = landQuestion(land('T3', 'never'));
    expect([question?.title, question?.proceed]).toEqual(['2 comments not sent', null]);
    expect(question?.instead.map((action) => action.label)).toEqual(['Revise with 2 comments', 'Discard them', 'Show the change']);
    expect(question?.instead[0]?.input).toEqual({ id: 'T3', text: 'more tests\na.rs:2: why?' });
    saveDrafts('T3', { words: '', comments: [] });
    expect(landQuestion(land('T3', 'never'))).toBeUndefined();
  });

  it('opens the dialog when the button is pressed, and calls nothing', async () => {
    const fetch = vi.fn();
    vi.stubGlobal('fetch', fetch);
    press(land('T4'));
    for (let index = 0; index < 300 && pending.value === null; index += 1) await new Promise((done) => setTimeout(done, 10));
    expect(pending.value?.question?.title).toBe('Land T4?');
    expect(fetch).not.toHaveBeenCalled();
    vi.unstubAllGlobals();
  });
});
