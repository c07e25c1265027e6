// The newcomer walk: from the README to a stopped daemon. The test knows only what a person wants (see it work, answer,
// land, ask why, stop). It takes each command from the output of the step before, and clicks only visible elements.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

const withoutEscapes = (text) => text.replace(/\u001b\[[0-9;?]*[A-Za-z]/g, '').replace(/\r/g, '');

/** A shell on a terminal. Exported variables and the working directory persist between commands. */
class Shell {
  constructor(binary, env, dir) {
    this.env = env;
    this.dir = dir;
    this.binary = binary;
  }

  type(line) {
    const all = `cd '${this.dir}' && ${line} && printf '\\n@@ %s %s\\n' "$REGATTA_DATA_DIR" "$PWD"`;
    const text = withoutEscapes(execFileSync('script', ['-qec', `stty cols 200; sh -c ${quoted(all)}`, '/dev/null'], { env: this.env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] }));
    const [, data, dir] = /^@@ (\S*) (.+)$/m.exec(text) ?? [];
    if (!dir) throw new Error(`command failed: ${line}\n${text}`);
    this.dir = dir;
    if (data) this.env = { ...this.env, REGATTA_DATA_DIR: data };
    return text.replace(/^@@ .*$/m, '');
  }
}

const quoted = (text) => `'${text.replace(/'/g, `'\\''`)}'`;

/** Walks all steps and logs each. Returns their number. */
export async function newcomerWalk({ binary, browser, dist, until, check, log }) {
  const readme = readFileSync(new URL('../../README.md', import.meta.url), 'utf8');
  const home = mkdtempSync(join(tmpdir(), 'regatta-walk-'));
  // The program is already built, so `regatta` replaces `cargo run --release --`.
  const env = { ...process.env, HOME: home, TMPDIR: home, PATH: `${dirname(binary)}:${process.env.PATH}`, TERM: 'xterm', CI: '', ...(dist ? { REGATTA_WEB_DIR: dist } : {}) };
  delete env.CI;
  delete env.REGATTA_DATA_DIR;
  const shell = new Shell(binary, env, home);
  let steps = 0;
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  context.setDefaultTimeout(240_000);
  try {
    /** Finds the next command or button in the output of the step before. */
    const findNext = (shape, shown, what) => {
      const found = shape.exec(shown);
      if (!found) throw new Error(`no way to ${what} in:\n${shown}`);
      steps += 1;
      log(`${steps}. ${what}: ${found[1].slice(0, 110)}`);
      return found[1];
    };
    const nextCommands = (text) => text.split('\n').filter((line) => line.startsWith('next: ')).at(-1)?.slice(6).split(' · ').join('\n') ?? '';

    const start = findNext(/^cargo run --release -- (demo --serve)/m, readme, 'see it work');
    const output = shell.type(`regatta ${start}`);
    const page = await context.newPage();
    await page.goto(findNext(/^web +(http\S+#\S+)$/m, output.slice(output.lastIndexOf('done ')), 'open the page'));
    const visibleTexts = async () => page.evaluate(() => [...document.querySelectorAll('main button, main a, main code')].filter((element) => element.checkVisibility()).map((element) => element.innerText.replace(/\s+/g, ' ').trim()).join('\n'));
    const press = async (name) => page.locator('main').getByRole('button', { name, exact: false }).first().click();

    await until('the question', async () => (await page.locator('.card').count()) > 0);
    const card = (await page.locator('.card .row').first().innerText()).replace(/\s+\d\s*/g, '\n');
    await press(findNext(/^(\S[^\n]*)/, card, 'answer it'));
    await until('work to review', async () => /review/.test(await page.locator('.inbox').innerText()));
    const task = findNext(/^(T\d+)$/m, await visibleTexts(), 'open the work');
    await page.locator('main').getByRole('link', { name: task, exact: true }).first().click();
    await until('the change', async () => (await page.locator('.diff tr.i').count()) > 0);
    await press(findNext(/^(Land) L$/m, await visibleTexts(), 'land it'));
    await until('the landing', async () => /landed as/.test(await page.locator('main').innerText()));
    const tab = findNext(/^(Why)\b/m, await visibleTexts(), 'see why it landed');
    await page.locator('.task-tabs').getByText(tab).click();
    await until('the reasons', async () => new URL(page.url()).searchParams.get('tab') === 'why');
    const why = findNext(new RegExp(`^(regatta why ${task})$`, 'm'), await visibleTexts(), 'ask why');
    // The terminal still shows the last lines of the demo.
    const exportLine = findNext(/^shell +(export REGATTA_DATA_DIR=.*)$/m, output, 'go there in the terminal');
    shell.type(exportLine);
    const answered = shell.type(why);
    check(answered.includes(task) && answered.includes('landed'), 'why explains the landing');
    const status = shell.type(findNext(/^(regatta status)$/m, nextCommands(answered), 'see that all is done'));
    check(/7 done/.test(status), 'all seven tasks landed', status.split('\n')[0]);
    const stop = findNext(/^(regatta down)$/m, nextCommands(status), 'stop');
    shell.type(stop);
    check(steps <= 12, 'a newcomer needs at most 12 steps, each shown by the step before', `${steps} steps`);
    return steps;
  } finally {
    await context.close();
    try {
      shell.type('regatta down');
    } catch {
      // the daemon is already down, as expected
    }
    rmSync(home, { recursive: true, force: true });
  }
}
