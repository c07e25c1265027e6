// Long lists: three hundred agents, and a hundred thousand tasks of which half have ended.

import { TIMEOUT_MS, accessible, binary, budget, check, collectComplaints, dist, newContext, option, table, until } from './harness.mjs';
import { World, outsideAgents } from './world.mjs';

const TASK_COUNT = Number(option('--tasks') ?? 100_000);
const TASKS_PER_MISSION = 1_000;
/** Requests per measurement. The fastest one counts, because other programs of the machine only slow requests down. */
const ROUNDS = 7;

/** Adds tasks in missions of a thousand, and cancels every second mission. Returns how many tasks are open. */
async function addTasks(world) {
  let open = 0;
  for (let first = 0; first < TASK_COUNT; first += TASKS_PER_MISSION) {
    const size = Math.min(TASKS_PER_MISSION, TASK_COUNT - first);
    const tasks = Array.from({ length: size }, (_, index) => ({ subject: `Generated work ${first + index} on module ${(first + index) % 97}`, files: [`gen/${first + index}.rs`], agent: world.agents[(first + index) % world.agents.length] }));
    const mission = await world.start(`Generated ${first}`, tasks);
    if ((first / TASKS_PER_MISSION) % 2 === 0) await world.call('mission.cancel', { id: mission.id, text: 'enough' });
    else open += size;
  }
  return open;
}

/** Measures requests for windows, and checks their counts against each other. */
async function measureFilters(world, all) {
  const get = async (query) => {
    const began = performance.now();
    const answer = await fetch(`${world.url}/api/v1/page/tasks?${query}`, { headers: { authorization: `Bearer ${world.token}` } });
    const window = await answer.json();
    if (!answer.ok) throw new Error(`${query}: ${JSON.stringify(window)}`);
    return { window, ms: performance.now() - began };
  };
  const first = await get('');
  table.push([`first window of ${all.toLocaleString('en')} tasks, which reads the ended ones`, `${first.ms.toFixed(0)} ms`, '', '']);
  check(first.window.all === all, 'the list has all tasks', `${first.window.all} of ${all}`);
  const sum = first.window.counts.reduce((total, entry) => total + entry.count, 0);
  check(sum === all, 'the counts of the states add up', `${sum}`);
  for (const [name, query] of [
    ['without a filter', ''],
    ['a word', 'text=module+13'],
    ['a number', 'text=work+4900'],
    ['a state and a file', 'at=failed&file=gen/77'],
    ['sorted by subject', 'sort=subject&offset=50000'],
  ]) {
    let best = Infinity;
    let window;
    for (let round = 0; round < ROUNDS; round += 1) {
      const got = await get(query);
      best = Math.min(best, got.ms);
      window = got.window;
    }
    budget(`filter over ${all.toLocaleString('en')} tasks: ${name}, ${window.total} found`, Math.round(best), 100, 'ms');
  }
}

export async function lists() {
  const world = new World(binary, dist);
  try {
    world.up();
    await world.setup({ agents: 300, runtime: 'outside' });
    await outsideAgents(world);
    const context = await newContext();
    const complaints = [];
    const page = collectComplaints(await context.newPage(), complaints);
    await page.goto(world.open());
    await until('the sentence', async () => (await page.locator('.sentence a').count()) > 0);

    const fresh = await context.newPage();
    const session = await context.newCDPSession(fresh);
    await session.send('Performance.enable', { timeDomain: 'threadTicks' });
    await fresh.goto(`${world.url}/agents`);
    await fresh.waitForFunction(() => document.querySelectorAll('.agent-list [data-row] a').length > 10, null, { polling: 'raf', timeout: TIMEOUT_MS });
    const busy = (await session.send('Performance.getMetrics')).metrics.find((metric) => metric.name === 'ThreadTime').value * 1000;
    budget('Agents with 300 agents ready, main-thread CPU', Math.round(busy), 400, 'ms');
    budget('elements of Agents with 300 agents', await fresh.evaluate(() => document.querySelectorAll('*').length), 3000, '');
    await accessible(fresh, 'Agents with 300 agents');
    await fresh.close();

    const before = (await world.call('task.list', { all: true })).length;
    await addTasks(world);
    await measureFilters(world, before + TASK_COUNT);

    // The number may also be the id of another task.
    const newest = `Generated work ${TASK_COUNT - 1} on`;
    await page.goto(`${world.url}/tasks?q=${encodeURIComponent(newest)}`);
    await until('the newest task', async () => (await page.locator('.task-list .task-subject', { hasText: newest }).count()) === 1);
    check(true, 'the filter finds the newest task');
    await page.goto(`${world.url}/tasks`);
    await until('rows', async () => (await page.locator('.task-list [data-row] a.id').count()) > 10);
    await page.keyboard.press('j');
    await page.keyboard.press('End');
    await until('the last row', () => page.evaluate((rows) => document.activeElement?.getAttribute('aria-rowindex') === String(rows + 1) && document.activeElement.querySelector('a.id') !== null, before + TASK_COUNT));
    check(true, 'End reaches the last task');
    await page.keyboard.press('Enter');
    await until('the task', () => page.url().includes('/t/T'));
    await page.goBack();
    await until('the focus on the last row', () => page.evaluate((rows) => document.activeElement?.getAttribute('aria-rowindex') === String(rows + 1), before + TASK_COUNT));
    check(true, 'Back returns to the row');
    budget('elements of a long list of tasks', await page.evaluate(() => document.querySelectorAll('*').length), 3000, '');
    budget('rows of a long list in the document', await page.locator('[data-row]').count(), 300, '');
    await accessible(page, 'a long list of tasks');
    check(complaints.length === 0, 'the lists report no error', complaints.join(' | '));
    await context.close();
  } finally {
    world.down();
  }
}
