// The setup by form and by key: agents, budgets, limits, permissions and tokens; then the conflicts of files, the cost
// and the design page, with axe in both themes.

import { accessible, binary, browser, budget, check, collectComplaints, dist, hasText, newContext, shoot, text, until } from './harness.mjs';
import { World } from './world.mjs';

const edit = (path, content) => ({ write: { path, text: content } });

/** Tasks that share files: two of them wait, because nothing orders them. Two report a cost. */
function sharedFileTasks() {
  const usage = { usage: { input: 40_000, output: 2_000, cached: 9_000, cost: 1.5 } };
  return [
    { subject: 'Split the shared module', files: ['src/shared.rs', 'src/text.rs'], agent: 'claude-1', script: [usage, { sleep: 3_600 }] },
    { subject: 'Format money in one place', files: ['src/shared.rs'], agent: 'codex-1', script: [{ sleep: 1 }] },
    { subject: 'Count words', files: ['src/shared.rs'], agent: 'gemini-1', script: [{ sleep: 1 }] },
    { subject: 'Describe the API', files: ['docs/api.md'], agent: 'opencode-1', script: [{ usage: { cost: 0.4 } }, edit('docs/api.md', '# API\n')] },
  ];
}

export async function setup() {
  const world = new World(binary, dist);
  const complaints = [];
  try {
    world.up();
    await world.setup({ agents: 4 });
    const context = await newContext();
    const page = collectComplaints(await context.newPage(), complaints);
    await page.goto(world.open());
    await until('the page', () => hasText(page, 'Needs you'));
    await forms(world, page);
    await world.start('Tidy the shared module', sharedFileTasks());
    await files(world, page);
    await page.goto(`${world.url}/cost`);
    await until('the chart', async () => (await page.locator('.spend .band').count()) === 2);
    check((await page.locator('.spend text').count()) >= 4, 'the cost chart has figures on its axes');
    check((await text(page, 'tbody')).includes('not reported'), 'unknown tokens are not shown as zero');
    await shoot(page, 'cost');
    await accessible(page, 'Cost with a chart');
    await page.goto(`${world.url}/design`);
    await until('the components', () => hasText(page, 'Buttons, chips, badges, tabs'));
    await accessible(page, 'Design');
    for (const path of ['setup?section=agents', 'setup?section=permissions', 'files', 'cost', 'queue', 'team', 'conversations', 'design']) {
      await page.setViewportSize({ width: 390, height: 844 });
      await page.goto(`${world.url}/${path}`);
      await until(path, async () => (await page.locator('main .panel').count()) > 0 && !(await hasText(page, 'loading…')));
      budget(`width of /${path} on a phone`, await page.evaluate(() => document.documentElement.scrollWidth), 390, 'px');
    }
    check(complaints.length === 0, 'the browser logs no errors', complaints.slice(0, 3).join(' | '));
    await context.close();
  } finally {
    world.down();
  }
}

/** Fills every form of the setup, and checks what the daemon then has. */
async function forms(world, page) {
  const open = async (section, expected) => {
    await page.goto(`${world.url}/setup?section=${section}`);
    await until(section, () => hasText(page, expected));
  };
  await open('agents', '4 agents');
  await page.getByLabel('Name', { exact: true }).fill('scribe');
  check(await until('the shell command', () => hasText(page, 'regatta agent add scribe --runtime scripted')), 'a form shows the shell command that does the same');
  await page.keyboard.press('Enter');
  await until('the agent', async () => (await world.call('agent.list')).some((agent) => agent.name === 'scribe'));
  check(true, 'Enter in the form adds an agent');
  await shoot(page, 'setup-agents');
  await accessible(page, 'Setup: agents');

  await open('budgets', 'No budget is set');
  await page.getByLabel('US dollars').fill('4');
  await page.getByRole('button', { name: 'Set budget' }).click();
  await until('the budget', async () => (await world.call('budget.list')).budgets.some((entry) => entry.ceiling.micro_usd === 4_000_000));
  check(await until('the budget on the page', () => hasText(page, 'of $4.00')), 'a budget can be set on the page');
  await accessible(page, 'Setup: budgets');

  await open('limits', 'Longest attempt of a worker');
  await page.getByLabel('Longest attempt of a worker').fill('2h');
  await page.getByRole('button', { name: 'Save' }).click();
  await until('the limit', async () => (await world.call('limits.show')).attempt_timeout_ms === 7_200_000);
  check(true, 'a limit can be changed on the page');
  await accessible(page, 'Setup: limits');

  await open('permissions', 'No rules yet');
  await page.getByLabel('Command', { exact: true }).fill('cargo test*');
  await page.getByRole('button', { name: 'Add rule' }).click();
  const rules = await until('the rule', async () => {
    const found = await world.call('policy.list');
    return found.length === 1 ? found : null;
  });
  check(rules[0].command === 'cargo test*' && rules[0].effect === 'allow', 'a permission can be added on the page');
  await accessible(page, 'Setup: permissions');

  await open('tokens', 'No tokens');
  await page.getByLabel('Name', { exact: true }).fill('ci');
  await page.getByRole('button', { name: 'Create token' }).click();
  check(await until('the token', () => hasText(page, 'It is not shown again')), 'a token is shown once');
  await accessible(page, 'Setup: tokens');
}

/** A conflict of files has a button that puts the tasks in order. */
async function files(world, page) {
  await page.goto(`${world.url}/files`);
  await until('the conflict', () => hasText(page, 'in no fixed order'));
  check(!/file:\/\/|radar/i.test(await text(page, 'main')), 'the files page uses plain words');
  check(/by \d\d:\d\d at the latest/.test(await text(page, 'main')), 'a claim shows the time at which it ends');
  await shoot(page, 'files');
  await accessible(page, 'Files with a conflict');
  await page.getByRole('button', { name: /^Run T\d+ after T\d+/ }).first().click();
  const ordered = await until('the order', async () => (await world.call('task.list', {})).find((task) => (task.blocked_by ?? []).length > 0));
  check(ordered !== undefined, 'the button of a conflict puts the tasks in order');
}
