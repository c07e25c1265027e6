// The page of one task: its tabs, its tree of files, lines that the diff leaves out, comments on several lines, a very
// long file, and comments that were not sent when the task ended.

import { accessible, binary, budget, check, collectComplaints, dist, hasText, newContext, shoot, text, until } from './harness.mjs';
import { World } from './world.mjs';

const edit = (path, content) => ({ write: { path, text: content } });
const numbered = (count, line) => `${Array.from({ length: count }, (_, index) => line(index)).join('\n')}\n`;
const before = numbered(120, (index) => `pub fn value_${index}() -> usize { ${index} } // number`);
const TEST = '#!/bin/sh\necho "error[E0308]: mismatched types"\necho "  --> src/v1.rs:3:9"\nexit 101\n';

const TASKS = [
  {
    subject: 'Change two values',
    description: 'Both values are wrong.',
    files: ['auth/**', 'src/login.rs'],
    agent: 'claude-1',
    script: [{ say: 'I change **both** values' }, { replace: { path: 'auth/values.rs', from: '{ 20 }', to: '{ 21 }' } }, { replace: { path: 'auth/values.rs', from: '{ 90 }', to: '{ 91 }' } }, edit('auth/new.py', 'def verify(given: str) -> bool:\n    return given == "x"  # no\n')],
  },
  { subject: 'A file of ten thousand lines', files: ['auth/big.rs'], agent: 'codex-1', script: [edit('auth/big.rs', numbered(10_000, (index) => `fn line_${index}(given: usize) -> usize { given + ${index} } // number ${index}`))] },
  { subject: 'Break the checks', files: ['test.sh'], agent: 'gemini-1', script: [edit('test.sh', TEST)] },
];

export async function taskPage() {
  const world = new World(binary, dist);
  try {
    world.up();
    await world.setup({ agents: 3, files: { 'auth/values.rs': before } });
    await world.start('Values', TASKS);
    const wordOf = async (id) => (await world.call('show', { id })).word;
    for (const [id, word] of [['T1', 'review'], ['T2', 'review'], ['T3', 'failed']]) await until(`${id} to be in ${word}`, async () => (await wordOf(id)) === word);
    const context = await newContext();
    const complaints = [];
    const page = collectComplaints(await context.newPage(), complaints);
    await page.goto(world.open());
    await until('the page', () => hasText(page, 'Needs you'));
    await tabs(world, page);
    await lines(world, page);
    await longFile(world, page);
    await unsent(world, page);
    check(complaints.length === 0, 'the browser logs no errors on a task page', complaints.slice(0, 3).join(' | '));
    await context.close();
  } finally {
    world.down();
  }
}

async function tabs(world, page) {
  await page.goto(`${world.url}/t/T3`);
  check(await until('the first error', () => hasText(page, 'First error')), 'a task whose checks failed opens its checks, with the first error on top');
  check((await text(page, '.first-error')).includes('mismatched types'), 'the first error of a check is named');
  await accessible(page, 'the checks of a task');
  await shoot(page, 'task-checks');
  await page.goto(`${world.url}/tasks`);
  await until('the list', () => hasText(page, 'Change two values'));
  await page.locator('a.id[href="/t/T1"]').first().click();
  await until('the change', async () => (await page.locator('.diff tr.i').count()) > 0);
  for (const [key, expected] of [['5', 'What it was told'], ['4', 'History'], ['3', 'all 1 passed'], ['2', 'Log']]) {
    await page.keyboard.press(key);
    check(await until(expected, () => hasText(page, expected)), `key ${key} opens a tab: ${expected}`);
    await accessible(page, `the tab of key ${key}`);
  }
  await page.keyboard.press('5');
  check(await until('the rendered prompt', async () => (await page.locator('.prompt').count()) === 1), 'the prompt of an attempt is shown');
  check(page.url().includes('tab=result'), 'the tab is in the address');
  await page.keyboard.press('1');
  const others = await page.locator('.neighbours a').count();
  check(others > 0, 'a task leads to its neighbours in the list', await text(page, '.neighbours'));
  await page.keyboard.press(']');
  const next = await until('the neighbour', async () => /\/t\/T[23]$/.test(page.url()) || (await text(page, '.neighbours')).startsWith('‹'));
  check(next, '] opens the next task of the list');
}

async function lines(world, page) {
  await page.goto(`${world.url}/t/T1?tab=change`);
  await until('both files', async () => (await page.locator('.file .part tr').count()) > 10);
  check((await page.locator('.tree-file').count()) === 2, 'the tree has a row for each file');
  check((await page.locator('.diff .hk').count()) > 3, 'syntax is coloured');
  const file = page.locator('[data-path="auth/values.rs"]');
  const rows = () => file.locator('tr[data-new]').count();
  const first = await until('the rows', rows);
  await file.locator('[data-grow="up"]').first().click();
  const second = await until('more lines', async () => ((await rows()) > first ? rows() : 0));
  check(second > first, 'lines that the diff leaves out are shown on demand', `${first} then ${second} rows`);
  const numbers = await file.locator('tr[data-new]').evaluateAll((all) => all.map((row) => Number(row.dataset.new)));
  check(numbers.every((number, index) => index === 0 || number >= numbers[index - 1]), 'shown lines are in order');
  // Drag over three line numbers.
  const cells = file.locator('tr:not(.hunk) td.n:nth-child(2)');
  const [from, to] = [await cells.nth(3).boundingBox(), await cells.nth(5).boundingBox()];
  await page.mouse.move(from.x + 5, from.y + 5);
  await page.mouse.down();
  await page.mouse.move(to.x + 5, to.y + 5, { steps: 4 });
  await page.mouse.up();
  await until('the editor', () => page.evaluate(() => document.activeElement?.closest('tr.draft') !== null));
  await page.keyboard.type('these three <b>');
  await page.keyboard.press('Control+Enter');
  check(/lines \d+ to \d+/.test(await until('the saved comment', () => text(page, 'tr.draft'))), 'a drag over line numbers comments on several lines');
  await accessible(page, 'a change with a comment');
  await shoot(page, 'task-change');
  await page.setViewportSize({ width: 390, height: 844 });
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  check(width <= 390, 'a task page on a phone scrolls only vertically', `${width} px`);
  await page.setViewportSize({ width: 1440, height: 900 });
}

async function longFile(world, page) {
  const session = await page.context().newCDPSession(page);
  await session.send('Performance.enable', { timeDomain: 'threadTicks' });
  const cpu = async () => (await session.send('Performance.getMetrics')).metrics.find((metric) => metric.name === 'ThreadTime').value * 1000;
  const times = [];
  const count = () => page.evaluate(() => document.querySelectorAll('*').length);
  let elements = 0;
  for (let round = 0; round < 3; round += 1) {
    await page.goto(`${world.url}/t/T2?tab=change`);
    const heading = page.locator('.file summary');
    await until('the file', async () => (await heading.count()) === 1);
    const start = await cpu();
    await heading.click();
    await page.waitForFunction(() => document.querySelectorAll('.lines tr').length >= 50, null, { polling: 'raf' });
    times.push(Math.round((await cpu()) - start));
    for (const share of [0.3, 0.6, 1, 0]) {
      await page.evaluate((part) => scrollTo(0, document.documentElement.scrollHeight * part), share);
      await until('rows in view', () => page.evaluate(() => document.elementFromPoint(600, 500)?.closest('tr, .part, .actions, main') !== null));
      elements = Math.max(elements, await count());
    }
  }
  budget('a file of 10,000 changed lines, main-thread CPU to open it', Math.min(...times), 100, 'ms');
  budget('elements while scrolling through 10,000 changed lines', elements, 3000, '');
  await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
  check(await until('the last line', () => hasText(page, 'line_9999')), 'the last line of a long file can be reached');
}

async function unsent(world, page) {
  await page.goto(`${world.url}/t/T1`);
  await until('the draft', async () => (await page.locator('tr.draft').count()) === 1);
  await world.call('land', { id: 'T1' });
  check(await until('the notice', () => hasText(page, '1 comment not sent.')), 'a task that landed says that a comment was not sent');
  await accessible(page, 'a landed task with an unsent comment');
  await page.getByRole('button', { name: 'Send as a new task' }).click();
  check(await until('the new task', async () => (await world.call('task.list', {})).some((task) => task.subject.startsWith('Follow up on T1'))), 'unsent comments become a new task');
  check(await until('no notice', async () => !(await hasText(page, 'not sent'))), 'comments that were sent are gone');
}
