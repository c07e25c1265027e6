// The log of an attempt: groups of tool calls, search, follow, and a transcript of 200 MB.

import { readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { accessible, binary, budget, check, collectComplaints, dist, loadBefore, newContext, shoot, table, until } from './harness.mjs';
import { HOSTILE, World } from './world.mjs';

const MEGABYTE = 1024 * 1024;
/** The length of the long transcript. */
const LONG_MB = Number(process.env.REGATTA_LOG_MB ?? 200);
const SEGMENT_BYTES = 16 * MEGABYTE;

const MARKDOWN = `## What I found

The comparison of passwords **leaks its duration**. I changed \`src/login.rs\`:

1. compare with \`verify\`
2. start the session *after* the check

\`\`\`rust
if verify(&form.password, &user.hash)? {
    sessions.start(&user)?;
}
\`\`\`

| test | before | after |
|---|--:|--:|
| login | 12 ms | 14 ms |
| wrong password | 3 ms | 14 ms |

See [the guide](https://owasp.org/authentication) and [this](javascript:alert(1)).
`;

/** A task whose log has every kind of entry. */
export function logTask() {
  const tests = "printf '\\033[1mrunning 240 tests\\033[0m\\n'; for n in $(seq 1 240); do printf 'test auth::case_%s ... \\033[32mok\\033[0m\\n' $n; done; printf '\\n\\033[1;32mtest result: ok.\\033[0m 240 passed\\n'";
  const failing = "printf 'error[E0308]: mismatched types\\n  --> src/login.rs:42:9\\n\\033[31mexpected `bool`, found `()`\\033[0m\\n'; exit 101";
  return {
    subject: 'Check passwords in constant time',
    files: ['src/login.rs', 'src/verify.rs'],
    agent: 'claude-1',
    script: [
      { plan: ['read the login code', 'compare in constant time', 'run the tests'] },
      { think: 'The comparison returns early, so its duration depends on how many characters match.\nI will look at the callers first.' },
      { say: MARKDOWN },
      { tool: { title: 'Read src/login.rs', kind: 'read' } },
      { run: 'git log --oneline -3; ls -la' },
      { write: { path: 'src/verify.rs', text: 'pub fn verify() {}\n' } },
      { run: tests },
      { say: 'All tests pass. One more check of the types.' },
      { say: HOSTILE },
      { run: failing },
    ],
  };
}

/** Rewrites the journal of an ended attempt so that it has many tool calls: the opening of the session and the first
 * prompt stay, and `calls` updates of ended calls follow. The daemon has not read this journal yet. */
function lengthenJournal(directory, megabytes) {
  const names = readdirSync(directory).filter((name) => name.startsWith('journal-'));
  const records = names.flatMap((name) => readFileSync(join(directory, name), 'utf8').trim().split('\n')).map((line) => JSON.parse(line));
  const prompt = records.findIndex((record) => record.stream === 'in' && record.line.includes('session/prompt'));
  const session = JSON.parse(records[prompt].line).params.sessionId;
  for (const name of names) rmSync(join(directory, name));
  let [number, at, segment, segmentBytes, total, first] = [1, records[0].at, [], 0, 0, 1];
  const flush = () => {
    if (segment.length > 0) writeFileSync(join(directory, `journal-${String(first).padStart(10, '0')}.jsonl`), segment.join(''), { mode: 0o600 });
    [segment, segmentBytes, first] = [[], 0, number];
  };
  const append = (stream, line) => {
    const body = `{"n":${number},"at":${at},"stream":"${stream}","line":${JSON.stringify(line)}`;
    const record = `${body},"sum":"${crc32(body).toString(16).padStart(8, '0')}"}\n`;
    segment.push(record);
    number += 1;
    at += 40;
    segmentBytes += record.length;
    total += record.length;
    if (segmentBytes >= SEGMENT_BYTES) flush();
  };
  const update = (update) => append('out', JSON.stringify({ jsonrpc: '2.0', method: 'session/update', params: { sessionId: session, update } }));
  for (const record of records.slice(0, prompt + 1)) append(record.stream, record.line);
  const output = Array.from({ length: 90 }, (_, line) => `   Compiling package-${line} v1.${line}.0 (/src/crates/package-${line}) with many features`).join('\n');
  let calls = 0;
  while (total < megabytes * MEGABYTE) {
    calls += 1;
    const failed = calls % 500 === 0;
    const call = { toolCallId: `call-${calls}`, title: `cargo build -p package-${calls}` };
    update({ sessionUpdate: 'tool_call', kind: 'execute', status: 'in_progress', rawInput: { command: call.title }, ...call });
    update({ sessionUpdate: 'tool_call_update', status: failed ? 'failed' : 'completed', rawOutput: { exit_code: failed ? 101 : 0 }, content: [{ type: 'content', content: { type: 'text', text: `${output}\nfinished call ${calls}` } }], ...call });
    if (calls % 10 === 0) update({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: `Package **${calls}** is built. ` } });
  }
  const last = number;
  for (const record of records.slice(prompt + 1).filter((record) => record.stream !== 'in' && record.line.includes('stopReason'))) append(record.stream, record.line);
  flush();
  return { calls, records: last };
}

const rows = (page, selector = '.entry') => page.locator(`.log-box ${selector}`);

export async function log() {
  const world = new World(binary, dist);
  try {
    world.up();
    await world.setup({ agents: 1 });
    await world.start('Harden the login', [logTask()]);
    const task = await until('the first task', async () => (await world.call('task.list')).find((row) => row.id === 'T1' && (row.word === 'failed' || row.needs)));
    check(task !== undefined, 'the agent worked and its last command failed');
    const context = await newContext();
    const complaints = [];
    const page = collectComplaints(await context.newPage(), complaints);
    await page.goto(world.open());
    await page.goto(`${world.url}/t/T1?attempt=A1&log=full`);
    await until('the rows of the log', () => rows(page, '.call').count().then((count) => count >= 5));

    const titles = await rows(page, '.tool .title').allInnerTexts();
    const printed = world.run('logs', 'A1').split('\n').filter((line) => /^[✓✕+x] /.test(line)).map((line) => line.slice(2));
    check(titles.length === printed.length && titles.every((title, index) => title.slice(0, 40).startsWith((printed[index] ?? '').slice(0, 40))), 'the page and `regatta logs` show the same calls in the same order', `${titles.length} and ${printed.length}`);
    check((await rows(page, '.call.done[open]').count()) === 0, 'calls that succeeded are closed');
    check((await rows(page, '.call.failed[open]').count()) === 1, 'the failed call is open');
    check((await rows(page, '.call.failed .ln .f1').count()) > 0, 'colours of the terminal are shown');
    check((await rows(page, '.md table').count()) === 1 && (await rows(page, '.md a').count()) === 1, 'a message is rendered as Markdown, and only https is a link');
    check(await page.evaluate(() => globalThis.hacked === undefined), 'markup of the agent has no effect');
    await shoot(page, 'log');
    await accessible(page, 'a log');

    // Opening and folding.
    await rows(page, '.entry').nth(0).waitFor();
    const tests = rows(page, 'details:has-text("running 240")').first();
    await rows(page, '.tool summary:has-text("printf")').first().click();
    await until('the body of an opened call', () => tests.locator('.ln').count().then((count) => count >= 100));
    const folded = await tests.locator('.ln').count();
    await tests.locator('.fold').click();
    await until('the folded lines', () => tests.locator('.fold').count().then((count) => count === 0));
    check((await tests.locator('.ln').count()) === 243 && folded < 120, 'long output is folded, and its lines can be fetched', `${folded} lines, then 243`);

    // Search.
    await page.fill('.log-search input', 'case_77 ');
    await until('the found line', () => page.locator('.ln.current-hit').innerText().then((text) => text.includes('case_77'), () => false));
    check((await page.locator('.log-search [role=status]').innerText()) === '1 of 1', 'the search counts what it finds', await page.locator('.log-search [role=status]').innerText());
    await page.fill('.log-search input', 'nowhere at all');
    await until('an empty result', () => page.locator('.log-search [role=status]').innerText().then((text) => text === 'none', () => false));
    await page.fill('.log-search input', '');

    await longLog(world, page);
    await liveLog(world, page);
    check(complaints.length === 0, 'the console has no errors', complaints.slice(0, 3).join(' | '));
    await context.close();
  } finally {
    world.down();
  }
}

async function longLog(world, page) {
  const attempts = join(world.dir, 'data/attempts');
  const attempt = readdirSync(attempts).filter((name) => /^A\d+$/.test(name) && name !== 'A1').sort()[0] ?? 'A1';
  const long = lengthenJournal(join(attempts, attempt), LONG_MB);
  const begun = Date.now();
  const task = attempt === 'A1' ? 'T1' : (await world.call('attempt.show', { id: attempt }).catch(() => ({ task: 'T1' }))).task;
  // The page is open, so only the log is measured: from the click to the last entry.
  await page.evaluate(([address]) => {
    history.pushState(null, '', address);
    dispatchEvent(new PopStateEvent('popstate'));
  }, [`/t/${task}?attempt=${attempt}&log=full`]);
  await until('the end of the long log', () => page.evaluate((last) => document.querySelector('.log-box')?.textContent?.includes(`package-${last}`), long.calls));
  const firstScreen = Date.now() - begun;
  // A latency on a busy machine says nothing about the program.
  if (loadBefore <= 1) budget(`first screen of a log of ${LONG_MB} MB`, firstScreen, 1_000, 'ms');
  else table.push([`first screen of a log of ${LONG_MB} MB`, `${firstScreen} ms`, '1000 ms', `not idle: load ${loadBefore.toFixed(1)}`]);
  await until('the index', () => page.locator('.log header .aside').first().innerText().then((text) => text.includes('entries')), 900_000);
  console.log(`     the index of ${long.records} records was complete after ${Date.now() - begun} ms`);

  // Scroll through the whole log, and jump to its beginning and its end.
  for (let step = 0; step <= 60; step += 1) {
    await page.evaluate((share) => {
      const box = document.querySelector('.log-box');
      box.scrollTop = share * box.scrollHeight;
    }, 1 - step / 60);
    await until('rows at the new place', () => page.evaluate(() => document.querySelectorAll('.log-box .entry:not(.absent)').length > 10));
  }
  await until('the first entry', () => page.evaluate(() => document.querySelector('.log-box .entry.turn') !== null));
  const cdp = await page.context().newCDPSession(page);
  await cdp.send('HeapProfiler.collectGarbage');
  const heap = (await cdp.send('Runtime.getHeapUsage')).usedSize;
  budget(`heap after scrolling through ${LONG_MB} MB`, Math.round((heap / MEGABYTE) * 10) / 10, 30, 'MB');
  const elements = await page.evaluate(() => document.querySelectorAll('*').length);
  budget('elements of a long log', elements, 3_000, 'elements');
  await page.fill('.log-search input', `finished call ${long.calls - 3}`);
  const searched = Date.now();
  await until('the found line', () => page.locator('.ln.current-hit').innerText().then((text) => text.includes(`finished call ${long.calls - 3}`), () => false));
  console.log(`     a search through ${LONG_MB} MB took ${Date.now() - searched} ms`);
  await page.fill('.log-search input', '');
}

/** The log of a command that runs: following, and reading while more output comes. */
async function liveLog(world, page) {
  await world.start('Run the slow tests', [{ subject: 'Slow tests', files: ['slow.txt'], agent: 'claude-1', script: [{ run: 'for n in $(seq 1 4000); do echo part $n; sleep 0.05; done' }] }]);
  const task = await until('the slow task', async () => (await world.call('task.list')).find((row) => row.subject === 'Slow tests' && row.attempt));
  await page.goto(`${world.url}/t/${task.id}?attempt=${task.attempt}&log=full`);
  const running = rows(page, '.call.running');
  await until('the output of the running command', () => running.locator('.ln').count().then((count) => count > 60));
  const distance = () => page.evaluate(() => {
    const box = document.querySelector('.log-box');
    return Math.round(box.scrollHeight - box.scrollTop - box.clientHeight);
  });
  await until('the end to be followed', async () => (await distance()) < 5);
  const topLine = () => page.evaluate(() => {
    const edge = document.querySelector('.log-box').getBoundingClientRect().top + 40;
    return [...document.querySelectorAll('.call.running .ln')].find((line) => line.getBoundingClientRect().top > edge)?.dataset.n;
  });
  await page.locator('.log-box').hover();
  await page.mouse.wheel(0, -300);
  await page.locator('.log-new').waitFor();
  const before = await topLine();
  const lines = () => running.locator('.call-facts').innerText();
  const counted = await lines();
  await until('more output', async () => (await lines()) !== counted);
  check((await topLine()) === before, 'a person who scrolled up keeps the place while more output comes', `line ${before}`);
  await page.keyboard.press('f');
  check(await until('the end again', async () => (await distance()) < 5), 'f follows the end again');
  await running.locator('summary').click();
  const closed = await lines();
  await until('more output of the closed call', async () => (await lines()) !== closed);
  check(!(await running.evaluate((details) => details.open)), 'a call that a person closed stays closed while it runs');
}
