// Words in the composer become a plan: made by an agent, shown with what collides, changed, and started on a click.

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

/** The steps of a scripted planner that answers with this. */
const answerWith = (detail) => [{ say: 'looking around' }, { run: `printf '%s' '${JSON.stringify({ status: 'done', detail })}' > "$REGATTA_RESULT"` }];

export async function planScenario({ world, page, until, check, has, shoot, accessible }) {
  await page.goto(`${world.url}/`);
  await until('the composer', async () => (await page.locator('.composer button[type=submit]').innerText()).includes('Plan'));
  // A scripted agent knows only its script, so it is handed one on the way; everything else is as it is.
  let script = answerWith('[[task]]\nsubjekt = "x"\n');
  await page.route('**/api/v1/plan.ask', (route) => route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), script }) }));
  const ask = async (goal) => {
    await page.goto(`${world.url}/`);
    await until('the composer', async () => (await page.locator('#composer').count()) === 1 && (await page.locator('.composer button[type=submit]').isEnabled()));
    await page.locator('#composer').fill(goal);
    await page.keyboard.press('Enter');
    await until('the plan’s own page', async () => /^\/plan\/T\d+$/.test(new URL(page.url()).pathname));
  };
  await ask('Write about the words');
  await until('what is wrong with it', () => has(page, 'subjekt'));
  check(await has(page, 'No usable plan'), 'a plan that cannot be used is said, with what is wrong');
  script = answerWith(PLAN);
  const before = page.url();
  await page.getByRole('button', { name: 'Ask again' }).click();
  await until('the next plan', async () => page.url() !== before);
  await until('the plan', async () => (await page.locator('.plan tbody tr').count()) === 3);
  check((await page.locator('.plan tr.clash').count()) === 2 && (await has(page, '3 after 1')), 'words become a plan with waves, owners and what collides');
  await shoot(page, 'plan');
  await accessible(page, 'a plan');
  // It is changed: the one that collides leaves the file alone, and the table goes to another agent.
  const files = page.getByLabel('Files of task 3');
  await files.fill('plan/index.md');
  await files.press('Tab');
  await until('no conflict', () => has(page, 'no conflicts'));
  await page.getByLabel('Agent of task 2').selectOption({ index: 1 });
  await page.getByLabel('Move task 3 up').click();
  await until('the other order', async () => (await page.getByLabel('Subject of task 2').inputValue()) === 'Write an index');
  check((await page.getByLabel('Blockers of task 3').inputValue()) === '1', 'a plan is changed, and who needs whom stays');
  await page.reload();
  await until('what was changed', async () => (await page.locator('.plan tbody tr').count()) === 3 && (await page.getByLabel('Subject of task 2').inputValue()) === 'Write an index');
  check(true, 'what was changed outlives the tab');
  await page.getByRole('button', { name: 'Start' }).click();
  await until('its tasks', async () => new URL(page.url()).pathname === '/tasks' && (await has(page, 'Make a table of them')) && (await has(page, 'landed 3')));
  check(true, 'and started on a click: its tasks are seen to land');
  await page.unroute('**/api/v1/plan.ask');
}
