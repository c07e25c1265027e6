// The first run on the page: no project, no agent, the tour, and the Plan button of the demo.

import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DemoWorld } from './demo-world.mjs';
import { accessible, binary, browser, check, dist, hasText, newContext, shoot, until } from './harness.mjs';
import { World } from './world.mjs';

/** An empty daemon becomes one that manages a repository, on the page alone. */
async function emptyDaemon() {
  const world = new World(binary, dist);
  const context = await newContext();
  try {
    world.up();
    const page = await context.newPage();
    await page.goto(world.open());
    await until('the first step', () => hasText(page, 'Pick a repository'));
    await shoot(page, 'first-run');
    await accessible(page, 'the first step');
    const path = page.getByLabel('Path of the git repository');
    await path.fill(join(world.dir, 'nowhere'));
    await page.getByRole('button', { name: 'Add the repository' }).click();
    await until('the refusal', async () => (await page.locator('.step .error').count()) === 1);
    check(await hasText(page, 'nowhere'), 'a path without a repository is refused with a reason');
    const repo = join(world.dir, 'shop');
    mkdirSync(repo);
    writeFileSync(join(repo, 'a.txt'), 'a\n');
    const git = (...args) => execFileSync('git', ['-c', 'user.name=Ann', '-c', 'user.email=ann@example.com', ...args], { cwd: repo, stdio: 'ignore' });
    git('init', '-b', 'main');
    git('add', '-A');
    git('commit', '-m', 'start');
    await path.fill(repo);
    await page.getByRole('button', { name: 'Add the repository' }).click();
    await until('the second step', async () => (await page.locator('.step.done').count()) === 1 && (await page.locator('.programs').count()) === 1);
    check(await hasText(page, 'shop on main'), 'the page adds a repository, and the next step opens by itself');
    await accessible(page, 'the second step');
    // The person adds the agent in a terminal, and the page goes on by itself.
    await world.call('agent.add', { name: 'scripted-1', runtime: 'scripted' });
    await until('Now', async () => (await page.locator('#composer').count()) === 1);
    check((await page.locator('.first-run').count()) === 0, 'an agent that is added in a terminal ends the first run');
    await page.locator('#composer').fill('Add a page');
    await page.keyboard.press('Enter');
    await until('the refusal', () => hasText(page, 'has no script'));
    check(!(await world.call('agent.list')).some((agent) => JSON.stringify(agent).includes('cannot work')), 'a plan of an agent that cannot plan is refused with a reason, and the agent stays well');
  } finally {
    await context.close();
    world.down();
  }
}

/** The tour is offered once, has four steps, and can be taken again from the help. */
async function tour(page) {
  await until('the offer', async () => (await page.locator('.tour-offer').count()) === 1);
  await page.getByRole('button', { name: 'Take the tour' }).click();
  let steps = 0;
  await until('the first step', async () => (await page.locator('.tour').count()) === 1);
  await accessible(page, 'the tour');
  while ((await page.locator('.tour').count()) === 1) {
    steps += 1;
    await page.locator('.tour .do.first').click();
  }
  check(steps === 4, 'the tour has four steps', `${steps}`);
  await page.reload();
  await until('Now', async () => (await page.locator('#composer').count()) === 1);
  check((await page.locator('.tour-offer').count()) === 0, 'the tour is not offered again');
  await page.keyboard.press('?');
  await page.locator('.help').getByRole('button', { name: 'Tour of the page' }).click();
  await until('the tour', async () => (await page.locator('.tour').count()) === 1);
  await page.keyboard.press('Escape');
  await until('its end', async () => (await page.locator('.tour').count()) === 0);
}

/** The first button that a newcomer presses on the demo. */
async function planOfTheDemo() {
  const world = new DemoWorld(binary, dist, 3);
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  context.setDefaultTimeout(60_000);
  try {
    const page = await context.newPage();
    await page.goto(await world.page());
    await until('the composer', async () => (await page.locator('.composer button[type=submit]').count()) === 1);
    await tour(page);
    await page.locator('#composer').fill('Greet in more languages');
    await page.keyboard.press('Enter');
    await until('the plan', async () => (await page.locator('.plan-task').count()) === 4);
    check(await hasText(page, 'whatever the goal'), 'the plan says that a script made it');
    await shoot(page, 'plan-of-the-demo');
    await accessible(page, 'the plan of the demo');
    await page.getByRole('button', { name: 'Start' }).click();
    const landed = async () => (await world.call('task.list', { all: true })).filter((task) => /Spanish|Italian|translators|new languages/.test(task.subject) && task.landed).length;
    await until('the landings', async () => (await landed()) === 4);
    check(true, 'the Plan button of the demo gives a plan that starts and lands');
  } finally {
    await context.close();
    await world.end();
  }
}

export async function firstRun() {
  await emptyDaemon();
  await planOfTheDemo();
}
