import { signal } from '@preact/signals';
import { render } from 'preact';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { Inbox, chosenGroup, groupAction } from './inbox';
import { handleKey } from './keys';
import { topic } from './live/client';
import { route } from './route';
import { perform, toasts } from './ui';
import type { InboxItemView } from './api';

vi.mock('./live/worker?sharedworker&url', () => ({ default: '/assets/worker.js' }));
vi.mock('./live/client', async (load) => ({ ...(await load<typeof import('./live/client')>()), subscribe: () => () => {} }));

afterEach(() => vi.unstubAllGlobals());

function visit(path: string): void {
  history.replaceState(null, '', path);
  route.value = { path: location.pathname, query: new URLSearchParams(location.search) };
}

async function until(holds: () => boolean): Promise<void> {
  for (let index = 0; index < 3_000 && !holds(); index += 1) await new Promise((done) => setTimeout(done, 10));
  expect(holds()).toBe(true);
}

describe('the inbox', () => {
  it('shows items without a task and of unknown kinds, with their actions and shell command', async () => {
    const item = (id: string, kind: string, more: object) => ({ id, kind, task: null, project: null, agent: null, subject: `${kind} <b>`, why: 'because', since_wall: 1, escalated: false, group: id, actions: [{ label: `Do ${id}`, verb: 'x', input: {}, cli: `regatta x ${id}`, first: true }], ...more });
    const all = [item('budget:day', 'budget', {}), item('agent:ann', 'credential', { agent: 'ann' }), item('bridge:slack:ann', 'credential', { agent: 'ann' }), item('V7', 'request', {}), item('Z1', 'unheard_of', {}), item('T9', 'failed', { task: 'T9', actions: [] })];
    for (const item of all) topic('inbox').entities.set(`item/${item.id}`, signal(item));
    topic('inbox').keys.value = all.map((item) => `item/${item.id}`);
    const box = document.createElement('div');
    render(<Inbox />, box);
    await until(() => box.querySelectorAll('.card').length === all.length);
    const cards = [...box.querySelectorAll('.card')];
    expect(cards.map((element) => element.querySelector('header a')?.getAttribute('href') ?? null)).toEqual(['/cost', '/agents/ann', '/setup', '/conversations', null, '/t/T9']);
    expect(cards.slice(0, 5).map((element) => element.querySelector('button')?.textContent?.trim())).toEqual(['Do budget:day 1', 'Do agent:ann 1', 'Do bridge:slack:ann 1', 'Do V7 1', 'Do Z1 1']);
    expect(cards[4]?.textContent).toContain('unheard_of <b>');
    expect(box.querySelector('.card .cli')?.textContent).toContain('regatta x budget:day');
    expect(box.querySelector('[href*=null], [href*=undefined]')).toBeNull();
    render(null, box);
    topic('inbox').keys.value = [];
  });
});

describe('agents with the same fault', () => {
  it('are one card with the cause, the fix, the agents, and one answer for all', async () => {
    const cause = { class: 'model', detail: 'opus-5', text: 'the provider does not know the model opus-5', fix: 'choose a model', noun: 'agents' };
    const item = (name: string) => ({ id: `agent:${name}`, kind: 'settings', agent: name, subject: `${name} cannot work`, why: '', since_wall: 1, escalated: false, group: 'one', cause, actions: [{ label: 'Choose a model…', verb: 'agent.add', input: { name, profile: { model: 'opus-5' } }, cli: `regatta agent add ${name} … --model …`, words: '/profile/model', first: true }, { label: 'Resume', verb: 'resume', input: { id: name }, cli: `regatta resume ${name}` }] });
    const all = ['claude-1', 'codex-2', 'codex-10'].map(item);
    for (const entry of all) topic('inbox').entities.set(`item/${entry.id}`, signal(entry));
    topic('inbox').keys.value = all.map((entry) => `item/${entry.id}`);
    const box = document.createElement('div');
    render(<Inbox />, box);
    await until(() => box.querySelector('.headline') !== null);
    expect(box.querySelectorAll('.card').length).toBe(1);
    expect(box.querySelector('.headline')?.textContent).toBe('3 agents: the provider does not know the model opus-5');
    expect(box.querySelector('.why')?.textContent).toBe('fix: choose a model');
    expect([...box.querySelectorAll('.members a')].map((link) => link.textContent)).toEqual(['claude-1', 'codex-2', 'codex-10']);
    expect([...box.querySelectorAll('.card button')].map((button) => button.textContent?.trim())).toEqual(['Choose a model for all 3… 1', 'Resume all 3 2']);
    const group = { key: 'one', items: all as unknown as InboxItemView[] };
    const resume = groupAction(group, group.items[0]?.actions[1] as never);
    expect(resume.cli).toBe('regatta resume claude-1 codex-2 codex-10');
    expect(resume.also?.map((other) => other.input.id)).toEqual(['codex-2', 'codex-10']);
    render(null, box);
    topic('inbox').keys.value = [];
  });
});

describe('requests that ask the same', () => {
  it('are answered in one call, and snoozed one by one', async () => {
    const requests: [string, Record<string, unknown>][] = [];
    vi.stubGlobal('fetch', async (url: string, init: RequestInit) => {
      requests.push([url, JSON.parse(String(init.body)) as Record<string, unknown>]);
      return new Response(JSON.stringify({ data: { answered: 3, rules: ['R1: allow npm install * for a1', 'R2: allow npm install * for a2'] } }));
    });
    const item = (id: string) => {
      const say = (reach: string) => ({ id, answer: { say: 'allow' }, reach });
      const actions = [
        { label: 'Allow once', verb: 'inbox.answer', input: say('once'), cli: `regatta allow ${id}`, first: true },
        { label: 'Always allow', verb: 'inbox.answer', input: say('always'), cli: `regatta allow ${id} --for always`, grave: true },
        { label: 'Later: in 1 h', verb: 'inbox.snooze', input: { id, ms: 3_600_000 }, cli: `regatta inbox snooze ${id} 1h` },
      ];
      return { id, kind: 'permission', task: 'T1', project: 'shop', agent: 'a1', subject: 'npm install', why: '', since_wall: 1, escalated: false, group: 'permission npm install', actions } as unknown as InboxItemView;
    };
    const group = { key: 'g', items: ['Q1', 'Q2', 'Q3'].map(item) };
    const [once, always, later] = group.items[0]?.actions.map((action) => groupAction(group, action)) ?? [];
    if (!once || !always || !later) throw new Error('three actions');
    expect([once.label, once.cli, always.grave]).toEqual(['Allow once × 3', 'regatta allow Q1 --all', true]);
    expect(await perform(always)).toBe(true);
    expect(requests).toEqual([['/api/v1/inbox.answer', { id: 'Q1', answer: { say: 'allow' }, reach: 'always', alike: true }]]);
    const toastText = toasts.value.map((toast) => toast.text).join('\n');
    expect(toastText).toContain('R1: allow npm install * for a1 · R2: allow npm install * for a2');
    expect(toastText).toContain('Always allow × 3: 3 done');
    expect(await perform(later)).toBe(true);
    expect(requests.slice(1).map((request) => request[1].id)).toEqual(['Q1', 'Q2', 'Q3']);
    expect(groupAction({ key: 'g', items: group.items.slice(0, 1) }, once)).toBe(once);
  });
});

describe('inbox keys', () => {
  const asks = (id: string, group: string, since_wall: number) => ({ id, kind: 'permission', task: id, agent: 'ann', subject: 'cargo test', why: '', since_wall, escalated: false, group, actions: [{ label: 'Allow once', verb: 'inbox.answer', input: { id }, cli: `regatta allow ${id}`, first: true }, { label: 'Reply…', verb: 'inbox.answer', input: { id, text: '' }, cli: `regatta answer ${id} …`, words: '/text' }] });
  const press = (key: string, target?: Element) => {
    const event = new KeyboardEvent('keydown', { key });
    if (target) Object.defineProperty(event, 'target', { value: target });
    return handleKey(event);
  };
  const show = (all: ReturnType<typeof asks>[]) => {
    const inbox = topic('inbox');
    inbox.entities.clear();
    for (const item of all) inbox.entities.set(`item/${item.id}`, signal(item));
    inbox.keys.value = all.map((item) => `item/${item.id}`);
    inbox.changed.value += 1;
  };

  it('the first digit chooses a card, the second answers the whole group, and the position is kept', async () => {
    const requests: unknown[] = [];
    vi.stubGlobal('fetch', async (_: string, init: RequestInit) => {
      const input = JSON.parse(String(init.body)) as { id: string; alike?: boolean };
      requests.push([input.id, input.alike]);
      return new Response(JSON.stringify({ data: { answered: 2 } }));
    });
    visit('/');
    chosenGroup.value = null;
    show([asks('Q1', 'same', 1), asks('Q2', 'same', 2), asks('Q3', 'other', 3), asks('Q4', 'third', 4)]);
    const box = document.createElement('div');
    document.body.append(box);
    render(<Inbox />, box);
    await until(() => box.querySelectorAll('.card').length === 3);
    const active = () => box.querySelector('.card.active')?.getAttribute('aria-label');
    expect(active()).toBeUndefined();
    expect(press('1')).toBe(true);
    await until(() => active() === 'permission Q1');
    expect(requests).toEqual([]);
    expect(box.querySelector('.card.active button')?.textContent).toContain('Allow once × 2');
    press('1');
    await until(() => requests.length === 1);
    expect(requests).toEqual([['Q1', true]]);
    await until(() => toasts.value.some((toast) => toast.text === 'Allow once × 2: 2 done'));
    // The card is gone. A digit for it must not answer another card, and j continues from its position.
    show([asks('Q3', 'other', 3), asks('Q4', 'third', 4)]);
    await until(() => box.querySelectorAll('.card').length === 2);
    await until(() => document.activeElement?.id === 'inbox');
    expect(active()).toBeUndefined();
    press('j');
    await until(() => active() === 'permission Q3');
    press('j');
    await until(() => active() === 'permission Q4');
    show([asks('Q3', 'other', 3), asks('Q5', 'fifth', 5)]);
    press('j');
    await until(() => active() === 'permission Q5');
    expect(requests).toEqual([['Q1', true]]);
    render(null, box);
    box.remove();
    show([]);
  });

  it('Enter opens the focused row, and does nothing elsewhere', () => {
    const table = document.createElement('table');
    table.innerHTML = '<tr data-row tabindex="0"><td><a href="#x">T1</a></td></tr>';
    let clicked = 0;
    table.querySelector('a')?.addEventListener('click', (event) => (event.preventDefault(), (clicked += 1)));
    expect(press('Enter', table.querySelector('tr') as Element)).toBe(true);
    expect(press('Enter', table.querySelector('td') as Element)).toBe(false);
    expect(clicked).toBe(1);
  });
});
