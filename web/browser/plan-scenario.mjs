// Plans: an agent makes one from a prompt, a person edits and starts it. Also stopping and restarting an agent's work.

import { accessible, binary, check, dist, hasText, newContext, shoot, text, until } from './harness.mjs';
import { World } from './world.mjs';

const PLAN = `Here it is.

\`\`\`toml
[[task]]
id = "words"
subject = "Collect the words"
issue_type = "docs"
files = ["plan/words.md"]
script = [{ write = { path = "plan/words.md", text = "words\\n" } }]

[[task]]
id = "table"
subject = "Make a table of them"
issue_type = "docs"
files = ["plan/table.md"]
blocked_by = ["words"]
script = [{ write = { path = "plan/table.md", text = "table\\n" } }]

[[task]]
id = "index"
subject = "Write an index"
issue_type = "docs"
files = ["plan/words.md", "plan/index.md"]
script = [{ write = { path = "plan/index.md", text = "index\\n" } }]
\`\`\`
`;

/** The script of a planner that answers with `detail`. */
const answerWith = (detail) => [{ say: 'looking around' }, { run: `printf '%s' '${JSON.stringify({ status: 'done', detail })}' > "$REGATTA_RESULT"` }];

async function planFromPrompt(world, page) {
  await page.goto(`${world.url}/`);
  await until('the composer', async () => (await page.locator('.composer button[type=submit]').innerText()).includes('Plan'));
  // A scripted planner needs a script, so add one to the page's request. Everything else is unchanged.
  let script = answerWith('[[task]]\nsubjekt = "x"\n');
  await page.route('**/api/v1/plan.ask', (route) => route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), script }) }));
  const ask = async (goal) => {
    await page.goto(`${world.url}/`);
    await until('the composer', async () => (await page.locator('#composer').count()) === 1 && (await page.locator('.composer button[type=submit]').isEnabled()));
    await page.locator('#composer').fill(goal);
    await page.keyboard.press('Enter');
    await until('the page of the plan', async () => /^\/plan\/T\d+$/.test(new URL(page.url()).pathname));
  };
  await ask('Write about the words');
  await until('the error of the plan', () => hasText(page, 'subjekt'));
  check(await hasText(page, 'No usable plan'), 'an unusable plan is shown with its error');
  script = answerWith(PLAN);
  const before = page.url();
  await page.getByRole('button', { name: 'Ask again' }).click();
  await until('the next plan', async () => page.url() !== before);
  await until('the plan', async () => (await page.locator('.plan-task').count()) === 3);
  check((await page.locator('.plan tr.clash').count()) === 2 && (await hasText(page, '3 runs after 1')), 'a prompt becomes a plan with waves, owners and conflicts');
  await shoot(page, 'plan');
  await accessible(page, 'a plan');
  // Edit the plan: remove the conflicting file, assign the second task to another agent, and reorder.
  const files = page.getByLabel('Files of task 3');
  await files.fill('plan/index.md');
  await files.press('Tab');
  await until('no conflict', async () => (await page.locator('.plan tr.clash').count()) === 0);
  await page.getByLabel('Agent of task 2').selectOption({ index: 1 });
  await page.getByLabel('Move task 3 up').click();
  await until('the new order', async () => (await page.getByLabel('Subject of task 2').inputValue()) === 'Write an index');
  check((await page.getByLabel('Blockers of task 3').inputValue()) === '1', 'a plan can be edited, and the blockers stay correct');
  await page.reload();
  await until('the stored edits', async () => (await page.locator('.plan-task').count()) === 3 && (await page.getByLabel('Subject of task 2').inputValue()) === 'Write an index');
  check(true, 'edits survive a reload');
  await page.getByRole('button', { name: 'Start' }).click();
  await until('the tasks to land', async () => new URL(page.url()).pathname === '/tasks' && (await hasText(page, 'Make a table of them')) && (await hasText(page, 'landed 3')));
  check(true, 'a plan starts with one click, and its tasks land');
  await page.unroute('**/api/v1/plan.ask');
}

/** Runs the scenario: plan from a prompt, then restart and stop an agent's work. */
export async function plan() {
  const world = new World(binary, dist);
  try {
    world.up();
    await world.setup({ agents: 3 });
    const context = await newContext();
    const page = await context.newPage();
    await page.goto(world.open());
    await until('the page', () => hasText(page, 'Needs you'));
    await planFromPrompt(world, page);
    await restarted(world, page);
    await context.close();
  } finally {
    world.down();
  }
}

/** Restarts and stops work from an agent's page. */
async function restarted(world, page) {
  await world.start('Slow', [{ subject: 'Slow work', files: ['slow.md'], agent: 'claude-1', script: [{ say: 'I take my time' }, { sleep: 600 }] }]);
  await page.goto(`${world.url}/agents/claude-1`);
  await until('Restart', async () => (await page.getByRole('button', { name: 'Restart' }).count()) === 1);
  await until('the time of the last output', async () => /last output \d+[smh]/.test(await text(page, '.agent-page')));
  const task = (await world.call('task.list', {})).find((entry) => entry.subject === 'Slow work').id;
  const attemptCount = async () => (await world.call('show', { id: task })).attempts.length;
  const confirm = async (name) => {
    await page.locator('main .panel > header').getByRole('button', { name }).click();
    await page.locator('dialog').getByRole('button', { name }).click();
  };
  await confirm('Restart');
  await until('another attempt', async () => (await attemptCount()) === 2);
  check(true, 'work can be restarted from the agent’s page, after a confirmation');
  await until('Stop', async () => (await page.getByRole('button', { name: 'Stop' }).count()) === 1);
  await confirm('Stop');
  await until('the work to stop', async () => (await world.call('show', { id: task })).word !== 'working');
  check(true, 'work can be stopped from the agent’s page');
  await world.call('task.cancel', { task });
}
