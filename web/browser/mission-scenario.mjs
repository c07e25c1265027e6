// The page of a mission: overview, tasks, graph, replay and comparison, also with hostile text and a thousand tasks.

import { accessible, binary, budget, check, collectComplaints, dist, hasText, newContext, shoot, text, until } from './harness.mjs';
import { HOSTILE, World } from './world.mjs';

const edit = (path) => ({ write: { path, text: 'one\ntwo\n' } });

/** A finished mission, a running one that asks, and two that are large and hostile. */
async function missions(world) {
  await world.start('Two notes', [
    { subject: 'First note', files: ['notes/1.md'], agent: 'claude-1', script: [{ usage: { input: 2000, output: 100, cost: 0.2 } }, edit('notes/1.md')] },
    { subject: 'Second note', files: ['notes/2.md'], agent: 'codex-1', after: [0], script: [edit('notes/2.md')] },
  ]);
  await until('the first mission to end', async () => !(await world.call('mission.show', { id: 'M1' })).running);
  await world.start('Add a rate limit', [
    { subject: 'Choose a package', files: ['src/limit.rs'], agent: 'claude-1', script: [{ permission: 'npm install zod@4' }, edit('src/limit.rs')] },
    ...Array.from({ length: 12 }, (_, index) => ({ subject: `Use the package in part ${index}`, files: [`parts/${index}.rs`], after: index % 4 === 3 ? [] : [index % 3], script: [{ sleep: 600 }] })),
  ]);
  await until('a request', async () => (await world.call('inbox.list')).length === 1);
  await world.start('A thousand notes', Array.from({ length: 1_000 }, (_, index) => ({ subject: `Note ${index}`, files: [`n/${index}.md`], after: index < 100 ? [] : [index - 100] })));
  await world.start(`Hostile ${HOSTILE.slice(0, 150)}`, [{ subject: `${HOSTILE}${'w'.repeat(60)}`, files: ['h/1'] }]);
}

async function overview(page, world) {
  await page.goto(`${world.url}/missions`);
  await until('the missions', async () => (await page.locator('.missions tr[data-row]').count()) === 4);
  check((await text(page, '.missions tbody')).startsWith('Running'), 'running missions come first');
  await accessible(page, 'missions');
  await page.getByRole('link', { name: 'M1 Two notes' }).click();
  await until('the mission', () => hasText(page, 'claude-1'));
  check(await hasText(page, '2 of 2 tasks landed'), 'an ended mission says its result');
  check((await page.locator('.waves li').count()) === 2 && (await page.locator('.landings li').count()) === 2, 'its waves and landings are listed');
  check((await text(page, '.landings .lines')).includes('+2'), 'landings have their number of lines');
  await page.goto(`${world.url}/m/M2`);
  await until('the decision', async () => (await page.locator('.decisions .hot').count()) === 1);
  await shoot(page, 'mission');
  await accessible(page, 'a mission');
  await page.getByRole('button', { name: 'Pause' }).click();
  await until('the pause', async () => (await text(page, '.chip-state')).includes('paused'));
  await page.getByRole('button', { name: 'Resume' }).click();
  await until('the mission to go on', async () => !(await text(page, '.chip-state')).includes('paused'));
  check(true, 'a mission is paused and resumed on its page');
}

async function graph(page, world) {
  await page.goto(`${world.url}/m/M2?tab=graph`);
  await until('the graph', async () => (await page.locator('[data-node]').count()) === 13);
  const wide = await page.evaluate(() => [...document.querySelectorAll('svg.graph .task-node')].filter((node) => [...node.querySelectorAll('text')].some((label) => label.getComputedTextLength() > 200)).length);
  check(wide === 0, 'no label is wider than its box');
  await page.locator('[data-node="0"]').focus();
  const before = await page.evaluate(() => document.activeElement.getAttribute('data-node'));
  await page.keyboard.press('ArrowRight');
  check((await page.evaluate(() => document.activeElement.getAttribute('data-node'))) !== before, 'the arrow keys follow the lines of the graph');
  await page.keyboard.press('-');
  await page.keyboard.press('0');
  await shoot(page, 'mission-graph');
  await accessible(page, 'the graph of a mission');
  await page.goto(`${world.url}/m/M3?tab=graph`);
  await until('the large graph', async () => (await page.locator('[data-node]').count()) > 0);
  budget('boxes in the graph of 1,000 tasks', await page.locator('[data-node]').count(), 60, '');
  await page.locator('[data-node][role=button]').first().click();
  await until('the unfolded group', async () => (await page.locator('.group-node a').count()) > 4);
  check(true, 'a folded group unfolds in place');
}

async function history(page, world) {
  await page.goto(`${world.url}/m/M1?tab=replay`);
  await until('the replay', async () => (await page.locator('.replay-slider').count()) === 1);
  const left = () => page.locator('.thumb').evaluate((thumb) => thumb.style.left);
  check((await left()) === '100%', 'at the end, the slider is at its end');
  await page.locator('.replay-slider').focus();
  await page.keyboard.press('Home');
  await until('the start', async () => (await left()) === '0%');
  await page.keyboard.press('ArrowRight');
  await until('the next moment', () => hasText(page, 'moment 2 of'));
  await page.keyboard.press(' ');
  await until('the end of the replay', async () => (await left()) === '100%');
  check(true, 'a replay is stepped by keys and plays to its end');
  await shoot(page, 'replay');
  await accessible(page, 'a replay');
  await page.goto(`${world.url}/m/M3?tab=replay`);
  await until('the long replay', async () => (await page.locator('.vtable tr[data-row]').count()) > 10);
  budget('replay of 1,000 tasks', await page.evaluate(() => document.querySelectorAll('*').length), 1_200, 'elements');
  await page.goto(`${world.url}/m/M2?tab=compare&with=M1`);
  await until('the comparison', async () => (await page.locator('.compared thead th').count()) === 3);
  check((await page.locator('.compared td').allInnerTexts()).every((cell) => cell.trim() !== '–'), 'a running mission shows what is known so far');
  check((await page.locator('.change.worse, .change.better').count()) > 0, 'differences are judged');
  await shoot(page, 'compare');
  await accessible(page, 'a comparison');
}

async function phone(page, world) {
  await page.setViewportSize({ width: 390, height: 844 });
  for (const path of ['/missions', '/m/M2', '/m/M4', '/m/M2?tab=tasks', '/m/M4?tab=graph', '/m/M2?tab=replay', '/m/M2?tab=compare&with=M4']) {
    await page.goto(`${world.url}${path}`);
    await until(`${path} on a phone`, async () => (await page.locator('main .panel').count()) > 0 && !(await hasText(page, 'loading…')));
    const excess = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    check(excess <= 0, `no sideways scrolling on a phone: ${path}`, excess > 0 ? `${excess} px` : '');
  }
  check(!(await page.evaluate(() => globalThis.hacked)), 'hostile titles are text');
}

export async function mission() {
  const world = new World(binary, dist);
  const complaints = [];
  const context = await newContext();
  try {
    world.up();
    await world.setup({ agents: 3 });
    await missions(world);
    const page = collectComplaints(await context.newPage(), complaints);
    await page.goto(world.open());
    await until('the page', () => hasText(page, 'Needs you'));
    for (const part of [overview, graph, history, phone]) await part(page, world);
    check(complaints.length === 0, 'no error in the console', complaints.join(' | '));
  } finally {
    await context.close();
    world.down();
  }
}
