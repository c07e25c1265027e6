// Large fleets: the demo with many agents, and outside agents whose load is measured.

import { readFileSync } from 'node:fs';
import { DemoWorld } from './demo-world.mjs';
import { TIMEOUT_MS, accessible, binary, budget, check, collectComplaints, dist, hasText, loadBefore, minutes, newContext, shoot, table, takesBothThemes, text, totals, until } from './harness.mjs';
import { World, outsideAgents } from './world.mjs';

/** Runs the demo with `size` agents and checks its page while they work. */
export async function demo(size) {
  const demoWorld = new DemoWorld(binary, dist, size);
  try {
    const context = await newContext();
    const page = collectComplaints(await context.newPage(), []);
    await page.goto(await demoWorld.page());
    await until('the lanes', () => hasText(page, `${size} agents`));
    const landed = async () => Number(/(\d+) of \d+ landed/.exec(await text(page, '.sentence'))?.[1] ?? 0);
    const before = await until('the first to land', landed);
    await until('more to land', async () => (await landed()) > before + 2);
    check(true, `demo --size ${size}: landings appear live`, `${await landed()} so far`);
    await until('a group of equal requests', async () => (await page.locator('.card .many').count()) > 0, 3 * TIMEOUT_MS);
    await shoot(page, `now-${size}`);
    if (size === 30) {
      await page.goto(`${demoWorld.url}/queue`);
      await until('the queue', async () => (await page.locator('tbody tr').count()) > 3);
      await shoot(page, 'queue');
      if (takesBothThemes) {
        await page.goto(`${demoWorld.url}/files`);
        await until('the files', async () => (await page.locator('main .panel').count()) > 0);
        await shoot(page, 'files');
      }
      await page.goto(demoWorld.url);
      await until('the group of requests', async () => (await page.locator('.card .many').count()) > 0);
    }
    await accessible(page, `the demo with ${size} agents`);
    budget(`elements of Now, demo --size ${size}`, await page.evaluate(() => document.querySelectorAll('*').length), 3000, '');
    const countPermissions = async () => (await demoWorld.call('inbox.list')).filter((item) => item.kind === 'permission').length;
    const requestCount = await countPermissions();
    await page.locator('.card', { has: page.locator('.many') }).first().getByRole('button', { name: /Allow for this task ×/ }).click();
    await until('the group to be answered', async () => (await countPermissions()) < requestCount);
    check(true, `demo --size ${size}: a group is answered at once`, `${requestCount} requests`);
    const memory = Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${demoWorld.pid}/status`, 'utf8'))[1]) / 1024;
    table.push([`the daemon's memory, demo --size ${size}`, `${memory.toFixed(0)} MB`, '', '']);
    await context.close();
  } finally {
    await demoWorld.end();
  }
}

export async function fleet(size) {
  const world = new World(binary, dist);
  try {
    world.up();
    await world.setup({ agents: size, runtime: 'outside' });
    const attempts = await outsideAgents(world, size === 30 ? { asks: 4, review: 2 } : {});
    const context = await newContext();
    const page = await context.newPage();
    await page.goto(world.open());
    await until('the lanes', () => hasText(page, `${size} agents`));
    if (size === 30) await keepBusy(world, attempts);
    if (size === 300) {
      await until('a cell per agent', async () => (await page.locator('.cell').count()) === size);
      await shoot(page, `now-${size}`);
    }
    await accessible(page, `Now with ${size} agents`);
    const elements = await page.evaluate(() => document.querySelectorAll('*').length);
    budget(`elements of Now with ${size} agents`, elements, 3000, '');
    if (size === 300) await measure(world, context, page, attempts);
    await context.close();
  } finally {
    world.down();
  }
}

/** Lets some agents ask questions and answers them, so that the lanes change. */
async function keepBusy(world, attempts) {
  for (let round = 0; round < 10; round += 1) {
    const asking = attempts.filter((_, index) => index % 5 === round % 5);
    for (const attempt of asking) await world.call('attempt.ask', { ...attempt, question: `Go on with step ${round}?`, choices: ['yes', 'no'] });
    await new Promise((done) => setTimeout(done, 500));
    const open = (await world.call('inbox.list')).filter((item) => item.subject.startsWith('Go on with step'));
    for (const item of open) await world.call('inbox.answer', { id: item.id, answer: { say: 'text', text: 'yes' } });
    await new Promise((done) => setTimeout(done, 500));
  }
}

async function measure(world, context, page, attempts) {
  // CPU time until a new page is ready.
  const freshPage = await context.newPage();
  const session = await context.newCDPSession(freshPage);
  await session.send('Performance.enable', { timeDomain: 'threadTicks' });
  await freshPage.goto(`${world.url}/`);
  await freshPage.waitForFunction(() => document.querySelectorAll('.cell').length === 300, null, { polling: 'raf' });
  const busy = (await session.send('Performance.getMetrics')).metrics.find((metric) => metric.name === 'ThreadTime').value * 1000;
  budget('Now with 300 agents ready, main-thread CPU', Math.round(busy), 400, 'ms');
  await freshPage.close();

  // Send fifty updates a second. Measure the latency from the call to the screen, and the growth of the heap.
  await page.evaluate(() => {
    globalThis.seen = [];
    const recordDelay = (node) => {
      const sent = /sent(\d{13})/.exec(node.getAttribute?.('title') ?? '')?.[1];
      if (sent) requestAnimationFrame(() => globalThis.seen.length < 5000 && globalThis.seen.push(Date.now() - Number(sent)));
    };
    globalThis.frames = 0;
    const onMutations = (mutations) => {
      globalThis.frames += 1;
      mutations.forEach((mutation) => recordDelay(mutation.target));
    };
    new MutationObserver(onMutations).observe(document.body, { subtree: true, attributes: true, attributeFilter: ['title'] });
  });
  const cdp = await context.newCDPSession(page);
  await cdp.send('HeapProfiler.enable');
  const heap = async () => {
    await cdp.send('HeapProfiler.collectGarbage');
    return (await cdp.send('Runtime.getHeapUsage')).usedSize / 1e6;
  };
  const pid = JSON.parse(readFileSync(`${world.dir}/data/daemon.json`, 'utf8')).pid;
  const memory = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) / 1024;
  let sent = 0;
  const sendUpdates = async (ms) => {
    const end = Date.now() + ms;
    while (Date.now() < end) {
      const next = Date.now() + 100;
      await Promise.all(
        [0, 1, 2, 3, 4].map(() => {
          const attempt = attempts[(sent += 1) % attempts.length];
          return world.call('task.progress', { ...attempt, text: `sent${Date.now()} step ${sent}` }).catch(() => {});
        }),
      );
      await new Promise((done) => setTimeout(done, Math.max(0, next - Date.now())));
    }
  };
  await cdp.send('Performance.enable', { timeDomain: 'threadTicks' });
  const pageCpuMs = async () => (await cdp.send('Performance.getMetrics')).metrics.find((metric) => metric.name === 'ThreadTime').value * 1000;
  // User and kernel time, in ticks of 10 ms.
  const daemonCpuMs = () => {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
    return (Number(fields[11]) + Number(fields[12])) * 10;
  };
  await sendUpdates(10_000);
  const [first, server] = [await heap(), memory()];
  await page.evaluate(() => {
    globalThis.seen = [];
    globalThis.frames = 0;
  });
  const before = sent;
  const [pageCpuBefore, daemonCpuBefore, startedAt] = [await pageCpuMs(), daemonCpuMs(), Date.now()];
  await sendUpdates(minutes * 60_000);
  const [pageCpu, daemonCpu, frames] = [(await pageCpuMs()) - pageCpuBefore, daemonCpuMs() - daemonCpuBefore, await page.evaluate(() => globalThis.frames)];
  const share = (ms) => `${((100 * ms) / (Date.now() - startedAt)).toFixed(1)} % of a core`;
  // CPU time per frame and per update is meaningful even if the machine is busy.
  table.push([`main thread of the page during the updates, ${frames} frames`, share(pageCpu), '', `${(pageCpu / Math.max(1, frames)).toFixed(1)} ms per frame`]);
  table.push(['the daemon during the updates', share(daemonCpu), '', `${(daemonCpu / Math.max(1, sent - before)).toFixed(1)} ms per update`]);
  const [last, after] = [await heap(), memory()];
  const delays = (await page.evaluate(() => globalThis.seen)).sort((a, b) => a - b);
  const rate = ((sent - before) / (minutes * 60)).toFixed(0);
  budget(`heap growth over ${minutes} min at ${rate} updates per second`, Math.round((last - first) * 10) / 10, 5, 'MB');
  budget(`the daemon's growth over that time, from ${server.toFixed(0)} MB`, Math.round((after - server) * 10) / 10, 20, 'MB');
  const p95 = delays[Math.floor(delays.length * 0.95)] ?? Infinity;
  const idle = loadBefore <= 1;
  const verdict = p95 <= 250 ? 'ok' : !idle ? `not idle: load ${loadBefore.toFixed(1)}` : 'OVER';
  table.push(['latency from call to screen, p95', `${p95} ms`, '250 ms', verdict], ['  median', `${delays[Math.floor(delays.length / 2)]} ms`, '', `${delays.length} seen`]);
  if (verdict === 'OVER') totals.failures += 1;
  await page.close();
}
