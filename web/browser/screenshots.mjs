// Takes screenshots of the pages: node browser/screenshots.mjs BINARY OUT [SIZE]

import { mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { World, fleetTasks, smallTeam } from './world.mjs';

const [binary, out, size = '3'] = process.argv.slice(2);
if (!binary || !out) throw new Error('node browser/screenshots.mjs BINARY OUT [SIZE]');
mkdirSync(out, { recursive: true });
const world = new World(binary, fileURLToPath(new URL('../dist', import.meta.url)));
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
try {
  world.up();
  await world.setup({ agents: Number(size) });
  await world.start('Add login and rate limits', size === '3' ? smallTeam() : fleetTasks(world.agents));
  await world.call('budget.set', { scope: 'day', ceiling: { micro_usd: 4_000_000 } });
  const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && console.log('console:', message.text()));
  page.on('pageerror', (error) => console.log('page:', error.message));
  await page.goto(world.open());
  const shoot = async (path, name) => {
    await page.goto(`${world.url}${path}`);
    await page.waitForTimeout(1500);
    for (const theme of ['light', 'dark']) {
      await page.evaluate((name) => {
        document.documentElement.dataset.theme = name;
      }, theme);
      await page.screenshot({ path: `${out}/${name}-${size}-${theme}.png` });
    }
  };
  await page.waitForTimeout(Number(process.env.WAIT ?? 8000));
  const pages = size === '3' ? [['/', 'now'], ['/t/T2', 'task'], ['/t/T3', 'task-asks'], ['/tasks', 'tasks'], ['/tasks?view=board', 'board'], ['/tasks?view=graph', 'graph'], ['/queue', 'queue'], ['/files', 'files'], ['/cost', 'cost'], ['/agents', 'agents'], ['/events', 'events'], ['/events?tab=audit', 'audit'], ['/setup', 'setup']] : [['/', 'now'], ['/tasks', 'tasks']];
  for (const [path, name] of pages) await shoot(path, name);
  if (size === '3') {
    await page.setViewportSize({ width: 390, height: 800 });
    await shoot('/', 'phone');
  }
  console.log('elements', await page.evaluate(() => document.querySelectorAll('*').length));
} finally {
  await browser.close();
  world.down();
}
