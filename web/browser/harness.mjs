// The harness of the browser tests: options, checks, budgets, the browser and helpers for pages.

import { mkdirSync } from 'node:fs';
import { loadavg } from 'node:os';
import { fileURLToPath } from 'node:url';
import axe from 'axe-core';
import { chromium } from 'playwright-core';
import { shrink } from './png.mjs';

const argv = process.argv.slice(2);
export const option = (name) => (argv.includes(name) ? argv[argv.indexOf(name) + 1] : undefined);
export const binary = argv[0];
if (!binary || binary.startsWith('--')) throw new Error('node browser/run.mjs BINARY [--screens DIR] [--minutes N] [--built]');
export const screens = option('--screens');
/** Whether screenshots are taken in both themes. */
export const takesBothThemes = argv.includes('--both');
/** How many minutes the heap is measured. */
export const minutes = Number(option('--minutes') ?? 0.5);
export const dist = argv.includes('--built') ? undefined : fileURLToPath(new URL('../dist', import.meta.url));
export const TIMEOUT_MS = 240_000;

/** The number of failed checks and exceeded budgets. */
export const totals = { failures: 0 };
export const table = [];

export function check(good, label, detail = '') {
  if (!good) totals.failures += 1;
  console.log(`${good ? 'ok  ' : 'FAIL'} ${label}${detail ? `  ${detail}` : ''}`);
}

export function budget(label, value, max, unit) {
  table.push([label, `${value} ${unit}`.trim(), `${max} ${unit}`.trim(), value <= max ? 'ok' : 'OVER']);
  if (value > max) totals.failures += 1;
}

/** How many pages and themes axe has checked, and how many violations it found. */
export const axeTotals = { looked: 0, found: 0 };
/** The machine's load before the tests. Latency is judged only if the machine was idle. */
export const loadBefore = loadavg()[0];

/** Waits until `condition` returns something true, and returns it. The label is for the error. */
export async function until(label, condition, ms = TIMEOUT_MS) {
  const end = Date.now() + ms;
  for (;;) {
    const result = await condition();
    if (result) return result;
    if (Date.now() > end) throw new Error(`timed out waiting for ${label}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

export const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--js-flags=--expose-gc', '--enable-precise-memory-info'],
});

/** Opens a separate browser profile. */
export async function newContext() {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  // A person who has seen the tour, so that its offer is not on each screenshot.
  await context.addInitScript(() => location.protocol.startsWith('http') && localStorage.setItem('regatta-tour', 'seen'));
  context.setDefaultTimeout(TIMEOUT_MS);
  return context;
}

export function collectComplaints(page, complaints) {
  page.on('console', (message) => message.type() === 'error' && complaints.push(message.text()));
  page.on('pageerror', (error) => complaints.push(error.message));
  return page;
}

export async function shoot(page, name) {
  if (!screens) return;
  mkdirSync(screens, { recursive: true });
  for (const theme of takesBothThemes || ['now-30', 'task'].includes(name) ? ['light', 'dark'] : ['light']) {
    await page.evaluate((name) => (document.documentElement.dataset.theme = name), theme);
    const path = `${screens}/${name}${theme === 'dark' ? '-dark' : ''}.png`;
    await page.screenshot({ path });
    shrink(path);
  }
  await page.evaluate(() => (document.documentElement.dataset.theme = 'light'));
}

export async function accessible(page, name) {
  for (const theme of ['light', 'dark']) {
    await page.evaluate((name) => (document.documentElement.dataset.theme = name), theme);
    await page.evaluate(axe.source);
    const found = await page.evaluate(async () => (await globalThis.axe.run(document, { resultTypes: ['violations'] })).violations.map((violation) => `${violation.id}: ${violation.nodes.map((node) => node.target.join(' ')).slice(0, 3)}`));
    axeTotals.looked += 1;
    axeTotals.found += found.length;
    check(found.length === 0, `axe finds no violations: ${name}, ${theme} theme`, found.join(' | '));
  }
  await page.evaluate(() => (document.documentElement.dataset.theme = 'light'));
}

export const text = (page, selector) => page.locator(selector).first().innerText();
export const hasText = (page, expected) => page.evaluate((needle) => document.body.innerText.includes(needle), expected);
