// Tests of the page in a real browser against the real program. They do what a person would do, and measure its cost.
//
//   node browser/run.mjs BINARY [--screens DIR [--both]] [--minutes N] [--built] [--gallery DIR] [--worlds empty,new,3,30,300,huge]
//                               [--only team,plan,walk,demo30,demo300,fleet30,fleet300,gallery]
//
// `--built` tests the page that is embedded in the program instead of web/dist. `--minutes` sets how long the heap is
// measured. `--both` takes every screenshot in both themes.

import { demo, fleet } from './fleet-scenario.mjs';
import { gallery } from './gallery.mjs';
import { axeTotals, binary, browser, budget, check, dist, option, table, totals, until } from './harness.mjs';
import { newcomerWalk } from './newcomer-walk.mjs';
import { plan } from './plan-scenario.mjs';
import { team } from './team-scenario.mjs';

const scenarios = {
  team,
  plan,
  walk: () => newcomerWalk({ binary, browser, dist, until, check, log: (line) => console.log(`     ${line}`) }).then((stepCount) => budget('steps of the newcomer walk', stepCount, 12, 'steps')),
  demo30: () => demo(30),
  demo300: () => demo(300),
  fleet30: () => fleet(30),
  fleet300: () => fleet(300),
  gallery,
};
const selected = option('--only')?.split(',');
for (const [name, scenario] of Object.entries(scenarios)) {
  if (selected && !selected.includes(name)) continue;
  try {
    await scenario();
  } catch (error) {
    totals.failures += 1;
    console.log(`FAIL ${name}: ${error.stack}`);
  }
}
await browser.close();
if (axeTotals.looked > 0) table.push([`axe-core, ${axeTotals.looked} pages and themes`, `${axeTotals.found} violations`, '0 violations', axeTotals.found === 0 ? 'ok' : 'OVER']);
const widths = [0, 1, 2].map((column) => Math.max(...table.map((row) => row[column].length)));
console.log('');
for (const row of table) console.log(row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  '));
console.log(totals.failures === 0 ? '\nall checks passed' : `\n${totals.failures} failed`);
process.exitCode = totals.failures === 0 ? 0 : 1;
