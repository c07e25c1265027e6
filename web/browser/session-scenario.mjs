// Addresses and sessions: a link keeps its path through the sign-in, a session that ends swallows no click, a restart of
// the daemon keeps an open page alive, and Back returns to the row.

import { accessible, binary, check, dist, hasText, newContext, shoot, until } from './harness.mjs';
import { World, smallTeam } from './world.mjs';

/** A link to a task that somebody sent. The browser has no session yet. */
async function linkWithoutSession(world) {
  const context = await newContext();
  const page = await context.newPage();
  await page.goto(`${world.url}/tasks?view=board`);
  await until('the gate', () => hasText(page, 'regatta open'));
  check(await hasText(page, "regatta open '/tasks?view=board'"), 'the gate names the command that opens the page of the link');
  await shoot(page, 'gate');
  await accessible(page, 'the gate');
  const input = page.getByLabel('Code or address');
  await input.fill('nonsense');
  await page.keyboard.press('Enter');
  await until('the refusal', () => hasText(page, '16 letters and digits'));
  await input.fill(world.open());
  await page.keyboard.press('Enter');
  await until('the page of the link', async () => (await page.locator('nav').count()) > 0);
  check(page.url() === `${world.url}/tasks?view=board`, 'a code entered at the gate leads to the page of the link', page.url());
  await context.close();

  const other = await newContext();
  const opened = await other.newPage();
  await opened.goto(world.run('open', '/tasks?view=board').trim());
  await until('the page', async () => (await opened.locator('nav').count()) > 0);
  check(opened.url() === `${world.url}/tasks?view=board`, '`regatta open PAGE` signs in and opens that page', opened.url());
  await other.close();
}

/** The session ends while the page is open, and the person presses a button. */
async function cutSession(world, context, page) {
  await page.goto(`${world.url}/inbox`);
  const card = page.locator('.card', { hasText: 'Keep the v1 endpoint' });
  await until('the question', async () => (await card.count()) === 1);
  await context.clearCookies();
  await card.getByRole('button', { name: 'Keep v1' }).click();
  await until('the gate', () => hasText(page, 'Your session has ended'));
  check(await hasText(page, 'Nothing has happened'), 'the gate names the action that was not performed');
  await page.getByLabel('Code or address').fill(world.open());
  await page.keyboard.press('Enter');
  const offer = page.locator('.interrupted');
  await until('the offer', async () => (await offer.getByRole('button', { name: 'Do it now' }).count()) === 1);
  await accessible(page, 'the offer of an interrupted action');
  check((await world.call('inbox.list', {})).some((item) => JSON.stringify(item).includes('Keep the v1 endpoint')), 'the action is not performed before the person says so');
  await offer.getByRole('button', { name: 'Do it now' }).click();
  await until('the answer', async () => !(await world.call('inbox.list', {})).some((item) => JSON.stringify(item).includes('Keep the v1 endpoint')));
  check((await page.locator('.interrupted').count()) === 0, 'the action is performed once, and the offer is gone');
}

/** The session ends, and the person signs in in another tab. */
async function otherTab(world, context, page) {
  await page.goto(`${world.url}/queue`);
  await until('the page', async () => (await page.locator('nav').count()) > 0);
  await context.clearCookies();
  await page.goto(`${world.url}/queue`);
  await until('the gate', () => hasText(page, 'Your session has ended'));
  const other = await context.newPage();
  await other.goto(world.open());
  await until('the other tab', async () => (await other.locator('nav').count()) > 0);
  await until('the first tab', async () => (await page.locator('.link.live').count()) === 1);
  check(new URL(page.url()).pathname === '/queue', 'a sign-in in another tab opens the gate of this tab, on its page');
  await other.close();
}

/** The daemon restarts while the page is open. */
async function restart(world, page) {
  await page.goto(`${world.url}/tasks`);
  await until('the live connection', async () => (await page.locator('.link.live').count()) === 1);
  world.run('up', '--restart', ...(world.dist ? ['--web-dir', world.dist] : []));
  await until('the live connection again', async () => (await page.locator('.link.live').count()) === 1);
  check(new URL(world.run('open')).origin === world.url, 'a restart keeps the address, and an open page is live again');
}

async function backToTheRow(world, page) {
  await page.goto(`${world.url}/tasks`);
  const row = page.locator('[data-row]', { hasText: 'Check passwords' }).first();
  await until('the list', async () => (await row.count()) === 1);
  await row.focus();
  await page.keyboard.press('Enter');
  await until('the task', async () => new URL(page.url()).pathname.startsWith('/t/'));
  await page.goBack();
  await until('the focus', () => page.evaluate(() => document.activeElement?.matches('[data-row]') === true));
  check((await page.evaluate(() => document.activeElement.textContent)).includes('Check passwords'), 'Back gives the focus to the row that one came from');
}

export async function session() {
  const world = new World(binary, dist);
  try {
    world.up();
    await world.setup({ agents: 3 });
    await world.start('Add login', smallTeam());
    await linkWithoutSession(world);
    const context = await newContext();
    const page = await context.newPage();
    await page.goto(world.open());
    await until('the page', () => hasText(page, 'Needs you'));
    await backToTheRow(world, page);
    await cutSession(world, context, page);
    await otherTab(world, context, page);
    await restart(world, page);
    await context.close();
  } finally {
    world.down();
  }
}
