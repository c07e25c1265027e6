// Walks every page with no project, and with 3, 30 and 300 agents and 100,000 tasks, in both themes and three widths.
//
// On every page: no error in the console, no sideways scrolling, a bounded number of elements, and nothing for axe to
// find. `--gallery DIR` also keeps a picture of each, for people to look at. `--worlds 3,300` walks a part.

import { mkdirSync, writeFileSync } from 'node:fs';
import axe from 'axe-core';
import { axeTotals, binary, budget, check, collectComplaints, dist, newContext, option, until } from './harness.mjs';
import { shrink } from './png.mjs';
import { World, fleetTasks, outsideAgents, smallTeam } from './world.mjs';

const WIDTHS = [1440, 1024, 390];
const THEMES = ['light', 'dark'];
const MAX_ELEMENTS = 3_000;
const HUGE_TASKS = 100_000;

const PAGES = ['/', '/inbox', '/tasks', '/tasks?view=board', '/tasks?view=graph', '/queue', '/files', '/cost', '/agents', '/events', '/events?tab=audit', '/team', '/conversations', '/setup', '/design', '/no-such-page'];

/** The pages of one thing each: the first mission, its tasks in several states, and an agent. */
async function pagesOfThings(world) {
  const pages = [];
  const missions = await world.call('mission.list');
  const mission = missions[0]?.id;
  if (mission) pages.push(`/m/${mission}`, `/m/${mission}?tab=graph`, `/replay?mission=${mission}`);
  if (missions.length > 1) pages.push(`/replay?compare=${missions[0].id},${missions[1].id}`);
  const words = new Set();
  for (const task of await world.call('task.list', { all: true })) {
    if (words.has(task.word) || words.size >= 6) continue;
    words.add(task.word);
    pages.push(`/t/${task.id}`);
    if (words.size === 1) pages.push(...['change', 'log', 'checks', 'why', 'result'].map((tab) => `/t/${task.id}?tab=${tab}`));
  }
  if (world.agents?.[0]) pages.push(`/agents/${world.agents[0]}`);
  return pages;
}

/** Adds tasks with a bounded number of calls under way. */
async function many(count, call, width = 24) {
  let next = 0;
  const worker = async () => {
    while (next < count) await call(next++);
  };
  await Promise.all(Array.from({ length: width }, worker));
}

/** Adds 100,000 tasks, of which a fifth has ended. */
async function hugeWork(world) {
  const open = Math.round(HUGE_TASKS * 0.8);
  await many(open, (index) => world.call('task.add', { subject: `Port module ${index} to the new interface`, issue_type: 'chore', files: [`src/module-${index % 997}/file-${index}.rs`], backlog: index % 7 === 0 }));
  await many(HUGE_TASKS - open, async (index) => {
    const task = await world.call('task.add', { subject: `Answer question ${index} of the survey`, issue_type: 'docs', backlog: true });
    await world.call('task.cancel', { task: task.id, reason: 'the survey ended' });
  });
}

const WORLDS = {
  empty: async () => {},
  new: async (world) => world.setup({ agents: 0 }),
  3: async (world) => {
    await world.setup({ agents: 3 });
    await world.call('budget.set', { scope: 'day', ceiling: { micro_usd: 4_000_000 } });
    await world.start('Add login and rate limits', smallTeam());
    await until('three items in the inbox', async () => (await world.call('inbox.list')).length >= 3);
    await world.team();
    await world.start('Write the second half', smallTeam().slice(0, 1));
  },
  30: async (world) => {
    await world.setup({ agents: 30 });
    await world.start('Add login and rate limits', fleetTasks(world.agents));
    await until('requests', async () => (await world.call('inbox.list')).length >= 3);
  },
  300: async (world) => {
    await world.setup({ agents: 300, runtime: 'outside' });
    await outsideAgents(world);
  },
  huge: async (world) => {
    await world.setup({ agents: 3, runtime: 'outside' });
    await hugeWork(world);
  },
};

async function axeFindings(page) {
  await page.evaluate(axe.source);
  return page.evaluate(async () => (await globalThis.axe.run(document, { resultTypes: ['violations'] })).violations.map((violation) => `${violation.id}: ${violation.nodes.map((node) => node.target.join(' ')).slice(0, 3)}`));
}

/** Opens one page in each width and theme. Returns what is wrong with it. */
async function look(page, world, path, name, gallery) {
  const wrong = [];
  await page.setViewportSize({ width: WIDTHS[0], height: 900 });
  await page.goto(`${world.url}${path}`);
  const isReady = () => page.evaluate(() => document.querySelector('main') !== null && !/\bloading…/.test(document.querySelector('main').innerText));
  if (!(await until('the page', isReady, 20_000).catch(() => false))) wrong.push('still loading after 20 s');
  await page.evaluate(() => document.fonts.ready);
  const elements = await page.evaluate(() => document.querySelectorAll('*').length);
  if (elements > MAX_ELEMENTS) wrong.push(`${elements} elements`);
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: width === 390 ? 844 : 900 });
    for (const theme of THEMES) {
      await page.evaluate((name) => (document.documentElement.dataset.theme = name), theme);
      await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
      const pageWidth = await page.evaluate(() => document.documentElement.scrollWidth);
      if (pageWidth > width) wrong.push(`${pageWidth} px wide at ${width}`);
      if (width !== 1024) {
        const found = await axeFindings(page);
        axeTotals.looked += 1;
        axeTotals.found += found.length;
        if (found.length > 0) wrong.push(`axe, ${theme} at ${width}: ${found.join(' | ')}`);
      }
      if (gallery) {
        const file = `${gallery}/${name}-${width}${theme === 'dark' ? '-dark' : ''}.png`;
        await page.screenshot({ path: file });
        shrink(file);
      }
    }
  }
  return { wrong, elements };
}

/** Walks all pages of all worlds. */
export async function gallery() {
  const dir = option('--gallery');
  if (dir) mkdirSync(dir, { recursive: true });
  const selected = option('--worlds')?.split(',');
  const report = [];
  for (const [name, fill] of Object.entries(WORLDS)) {
    if (selected && !selected.includes(name)) continue;
    const world = new World(binary, dist);
    try {
      world.up();
      await fill(world);
      const complaints = [];
      const context = await newContext();
      const page = await context.newPage();
      await page.goto(world.open());
      await until('the page', () => page.evaluate(() => document.querySelector('main') !== null));
      collectComplaints(page, complaints);
      let most = 0;
      for (const path of [...PAGES, ...(world.repo ? await pagesOfThings(world) : [])]) {
        const file = `${name}-${path === '/' ? 'now' : path.slice(1).replace(/[^\w]+/g, '-')}`;
        const { wrong, elements } = await look(page, world, path, file, dir);
        most = Math.max(most, elements);
        check(wrong.length === 0, `${name}: ${path}`, wrong.join('; '));
        report.push({ world: name, path, elements, wrong });
      }
      const unexpected = complaints.filter((complaint) => !/ERR_CONNECTION|ERR_INCOMPLETE|net::ERR/.test(complaint));
      check(unexpected.length === 0, `${name}: the browser logs no errors`, unexpected.slice(0, 3).join(' | '));
      budget(`elements of the largest page, world ${name}`, most, MAX_ELEMENTS, '');
      await context.close();
    } finally {
      world.down();
    }
  }
  if (dir) writeFileSync(`${dir}/report.json`, JSON.stringify(report, null, 1));
}
