// The page on a phone: every page fits, it can be installed, it says so when the daemon is down, and a notification takes
// an answer.

import { accessible, binary, check, dist, hasText, newContext, shoot, until } from './harness.mjs';
import { World, smallTeam } from './world.mjs';

const PAGES = ['/', '/inbox', '/tasks', '/tasks?view=board', '/queue', '/agents', '/agents/claude-1', '/files', '/cost', '/team', '/conversations', '/events', '/setup', '/t/T2', '/replay?mission=M1'];

async function everyPageFits(world, page) {
  await page.setViewportSize({ width: 390, height: 844 });
  const tooWide = [];
  for (const path of PAGES) {
    await page.goto(world.url + path);
    await until('the page', async () => (await page.locator('.tab-bar').count()) === 1 && !(await hasText(page, 'loading…')));
    if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)) tooWide.push(path);
  }
  check(tooWide.length === 0, `no page scrolls sideways on a phone (${PAGES.length} pages)`, tooWide.join(' '));
  await page.goto(`${world.url}/`);
  await until('the cards', async () => (await page.locator('.card').count()) >= 2);
  const small = await page.evaluate(() => [...document.querySelectorAll('.tab-bar a, .tab-bar summary, .card.active .do')].filter((element) => element.checkVisibility() && element.getBoundingClientRect().height < 44).length);
  check(small === 0, 'the bar and the answers have targets of at least 44 pixels', `${small} smaller`);
  await page.locator('.tab-bar summary').click();
  check((await page.locator('.tab-bar .more a').count()) === 7 && (await page.locator('.tab-bar .more a').first().isVisible()), 'More has the other pages');
  await accessible(page, 'Now on a phone, with More open');
  await page.locator('.tab-bar .more a', { hasText: 'Setup' }).click();
  await until('Setup', async () => new URL(page.url()).pathname === '/setup');
  check(!(await page.locator('.tab-bar .more a').first().isVisible()), 'More closes when a page opens');
  await page.goto(`${world.url}/`);
  await until('the cards', async () => (await page.locator('.card').count()) >= 2);
  await shoot(page, 'phone');
}

/** The manifest names icons that have the sizes that it says. */
async function installable(world, page) {
  const manifest = await page.evaluate(async () => (await fetch(document.querySelector('link[rel=manifest]').href)).json());
  const sizes = await page.evaluate(
    (icons) => Promise.all(icons.map(async (icon) => createImageBitmap(await (await fetch(icon.src)).blob()).then((image) => `${image.width}x${image.height}`))),
    manifest.icons,
  );
  check(manifest.display === 'standalone' && manifest.icons.every((icon, index) => icon.sizes === sizes[index]) && manifest.icons.some((icon) => icon.purpose === 'maskable'), 'the page can be installed', sizes.join(' '));
  const scope = await page.evaluate(async () => (await navigator.serviceWorker.ready).scope);
  check(scope === `${world.url}/`, 'the service worker controls the whole page', scope);
}

async function notifications(world, context, page) {
  await context.grantPermissions(['notifications'], { origin: world.url });
  await page.goto(`${world.url}/inbox`);
  await page.getByRole('button', { name: 'Notify me in this browser' }).click();
  await until('the switch', () => hasText(page, 'This browser notifies you'));
  await page.evaluate(() => (document.hasFocus = () => false)); // the person looks at another window
  await world.start('More', [{ subject: 'Needs a package', files: ['more.md'], agent: 'opencode-1', script: [{ permission: 'npm install left-pad' }, { write: { path: 'more.md', text: 'x\n' } }] }]);
  const shown = () => page.evaluate(async () => (await (await navigator.serviceWorker.ready).getNotifications()).map((notification) => ({ title: notification.title, body: notification.body, actions: notification.actions.map((action) => action.title) })));
  await until('the notification', async () => (await shown()).length === 1);
  const [notification] = await shown();
  check(notification.body.includes('npm install left-pad') && notification.actions.join() === 'Allow once,Deny', 'a new request is a notification with its answers', JSON.stringify(notification));
  const [worker] = context.serviceWorkers();
  await worker.evaluate(async () => {
    const [notification] = await self.registration.getNotifications();
    self.dispatchEvent(new NotificationEvent('notificationclick', { notification, action: 'answer-0' }));
  });
  await until('the answer', async () => !JSON.stringify(await world.call('inbox.list', {})).includes('left-pad'));
  check((await shown()).length === 0, 'a button of the notification answers with the session of the browser');
}

async function daemonIsDown(world, page) {
  world.run('down');
  await page.goto(`${world.url}/tasks`);
  check(await hasText(page, 'Regatta is not reachable'), 'a page says so when the daemon does not respond');
  await accessible(page, 'the page without a daemon');
  world.up();
  await until('the page again', async () => (await page.locator('.tab-bar').count()) === 1);
  check(new URL(page.url()).pathname === '/tasks', 'the page comes back by itself, at the same address');
}

export async function phone() {
  const world = new World(binary, dist);
  try {
    world.up();
    await world.setup({ agents: 4 });
    await world.start('Add login', smallTeam());
    const context = await newContext();
    const page = await context.newPage();
    await page.goto(world.open());
    await until('the page', () => hasText(page, 'Needs you'));
    await everyPageFits(world, page);
    await installable(world, page);
    await notifications(world, context, page);
    await daemonIsDown(world, page);
    await context.close();
  } finally {
    world.down();
  }
}
