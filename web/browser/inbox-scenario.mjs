// The inbox: landing is deliberate, and one cause is one card. Three worlds: a small team with a review and a long
// choice, thirty agents with one wrong model, and an empty fleet.

import { accessible, binary, budget, check, collectComplaints, dist, hasText, newContext, shoot, text, until } from './harness.mjs';
import { World } from './world.mjs';

const LONG_CHOICE = 'Keep the endpoint, but answer with a redirect to the new one for all clients that do not say which version they understand. '.repeat(3).trim();

const edit = (path, content) => ({ write: { path, text: content } });

/** Signs in and opens a page of the world. */
async function openPage(world, context, complaints, path) {
  const page = collectComplaints(await context.newPage(), complaints);
  await page.goto(world.open());
  await until('the page', () => hasText(page, 'Needs you'));
  if (path !== '/') await page.goto(`${world.url}${path}`);
  return page;
}

const statusOf = async (world, id) => (await world.call('show', { id })).word;
const dialog = (page) => page.locator('dialog[open]');
const card = (page, name) => page.locator('.card', { hasText: name });

async function deliberateLanding(world, context, complaints) {
  await world.start('Reviews', [
    { subject: 'Check passwords', files: ['auth/verify.rs'], agent: 'claude-1', script: [edit('auth/verify.rs', 'pub fn verify() {}\n')] },
    { subject: 'Hash passwords', files: ['auth/hash.rs'], agent: 'codex-1', script: [edit('auth/hash.rs', 'pub fn hash() {}\n')] },
    { subject: 'Choose a policy', files: ['src/policy.rs'], agent: 'gemini-1', script: [{ ask: { question: 'What do we do with old clients?', choices: [LONG_CHOICE, 'Return 410'] } }, edit('src/policy.rs', 'x\n')] },
  ]);
  const page = await openPage(world, context, complaints, '/');
  await until('three cards', async () => (await page.locator('.card').count()) === 3);
  await until('the size of the change', () => hasText(page, '+1'));
  const review = card(page, 'Check passwords');
  const buttons = (await review.locator('button').allInnerTexts()).map((label) => label.replace(/\s+\S$/, ''));
  check(buttons.slice(0, 3).join() === 'Open the change,Land,Send back…', 'a review opens its change first, then lands or sends back', buttons.join());
  check((await review.innerText()).includes('auth/verify.rs'), 'a review names the protected files');
  const isInside = await page.evaluate(() => [...document.querySelectorAll('.card button')].every((button) => button.getBoundingClientRect().right <= button.closest('.card').getBoundingClientRect().right));
  check(isInside && (await hasText(page, LONG_CHOICE.slice(-40))), 'a choice of 300 characters is whole and stays in its card');
  await shoot(page, 'inbox');

  // Landing unread asks once. Escape lands nothing.
  await review.focus();
  await page.keyboard.press('2');
  await until('the question', async () => (await dialog(page).count()) === 1);
  check((await dialog(page).innerText()).includes('You have not opened this change. Land it unread?'), 'landing an unread change asks');
  check((await page.evaluate(() => document.activeElement?.textContent)) === 'Open the change', 'the question offers to open the change first');
  await accessible(page, 'the question before landing');
  await page.keyboard.press('Escape');
  check((await statusOf(world, 'T1')) === 'review', 'Escape lands nothing');

  // A comment that was not sent blocks Land on the card.
  await page.evaluate(() => localStorage.setItem('regatta-drafts-T1', JSON.stringify({ words: '', comments: [{ path: 'auth/verify.rs', line: 1, text: 'say why' }] })));
  await page.reload();
  await until('the card again', async () => (await card(page, 'Check passwords').count()) === 1);
  await card(page, 'Check passwords').focus();
  await page.keyboard.press('2');
  await until('the blocking question', () => hasText(page, '1 comment not sent'));
  const labels = await dialog(page).locator('button').allInnerTexts();
  check(!labels.some((label) => label.startsWith('Land')) && labels[0].startsWith('Revise with 1 comment'), 'an unsent comment blocks Land, and can be sent or discarded', labels.join());
  await page.locator('dialog[open] button', { hasText: 'Discard it' }).click();
  await until('the question about the unread change', () => hasText(page, 'Land it unread?'));
  check((await page.evaluate(() => localStorage.getItem('regatta-drafts-T1'))) === null, 'Discard removes the draft, and then the unread change asks');
  await page.keyboard.press('Escape');

  // Review and landing: open the change with 1, land it with L after reading.
  await card(page, 'Check passwords').focus();
  await page.keyboard.press('1');
  await until('the change', async () => new URL(page.url()).pathname === '/t/T1' && (await hasText(page, 'pub fn verify')));
  check(page.url().includes('tab=change'), 'the first key opens the change');
  await page.keyboard.press('L');
  if (await until('T1 to land or the question', async () => (await statusOf(world, 'T1')) !== 'review' || (await dialog(page).count()) === 1)) {
    check((await dialog(page).count()) === 0, 'a change that was opened lands with one key');
  }

  await page.goto(`${world.url}/inbox`);
  await until('the inbox', async () => (await card(page, 'Hash passwords').count()) === 1);
  await page.setViewportSize({ width: 390, height: 844 });
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  check(width <= 390, 'the inbox does not scroll sideways on a phone', `${width} px`);
  await accessible(page, 'the inbox on a phone');
  await page.close();
}

/** Adds agents whose program does not offer their model. */
async function addAgents(world, count, model) {
  const providers = ['claude', 'codex', 'gemini', 'opencode'];
  for (let index = 0; index < count; index += 1) {
    const provider = providers[index % providers.length];
    const name = `${provider}-${Math.floor(index / providers.length) + 1}`;
    await world.call('agent.add', { name, runtime: 'acp', command: [binary, 'scripted-agent', '--acp'], provider, profile: { model }, anyway: true });
    world.agents.push(name);
  }
  await world.call('limits.set', { max_attempts: count });
}

async function oneCause(world, context, complaints) {
  const count = 30;
  world.agents = [];
  await addAgents(world, count, 'opus-5');
  await world.start('A wrong model', world.agents.map((agent, index) => ({ subject: `Work ${index}`, files: [`notes/${index}.md`], agent, script: [edit(`notes/${index}.md`, 'x\n')] })));
  const items = () => world.call('inbox.list').then((all) => all.filter((item) => item.kind === 'settings'));
  await until('all agents to fail', async () => (await items()).length === count);
  const page = await openPage(world, context, complaints, '/');
  await until('one card', () => hasText(page, `${count} agents: the provider does not know the model opus-5`));
  budget(`cards for ${count} agents with one wrong model`, await page.locator('.card').count(), 1, 'cards');
  check((await text(page, '.sentence')).includes(`${count} need you: ${count} agents cannot work`), 'the head says what needs you, beside a list of tasks without any');
  check((await text(page, '.card')).includes('fix: choose a model that the program offers'), 'the card has the fix');
  check(world.run('inbox').includes(`${count} agents: the provider does not know the model opus-5`) && world.run('status').includes(`${count} agents: the provider does not know the model opus-5`), 'regatta inbox and status show the same group');
  await shoot(page, 'inbox-cause');
  await accessible(page, 'the card of a cause');
  await page.locator('.card').first().focus();
  await page.keyboard.press('1');
  await until('the field for the model', async () => (await page.locator('dialog[open] input').count()) === 1);
  await page.keyboard.type('scripted-big');
  await page.keyboard.press('Enter');
  await until('no agent in the inbox', async () => (await items()).length === 0);
  check(true, 'one answer gives all agents another model, and they are tried again');
  await page.close();
}

async function emptyFleet(world, context, complaints) {
  const page = await openPage(world, context, complaints, '/');
  check(await until('the explanation', () => hasText(page, 'No agents yet, so no task can start.')), 'an empty fleet explains itself');
  await accessible(page, 'Now without agents');
  await page.close();
}

export async function inbox() {
  const complaints = [];
  for (const [agents, scenario] of [[3, deliberateLanding], [0, oneCause], [0, emptyFleet]]) {
    const world = new World(binary, dist);
    try {
      world.up();
      await world.setup({ agents });
      const context = await newContext();
      await scenario(world, context, complaints);
      await context.close();
    } finally {
      world.down();
    }
  }
  check(complaints.length === 0, 'the inbox logs no errors in the browser', complaints.slice(0, 3).join(' | '));
}
