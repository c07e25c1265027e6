import { effect, signal } from '@preact/signals';
import { render } from 'preact';
import { App } from './app';
import { listenForKeys } from './keys';
import { lazy } from './lazy';
import { connect, connection } from './live/client';
import { type Problem, clearKey, exchangeCode, key } from './session';
import './style.css';

const Gate = lazy<{ problem: Problem | null }>(() => import('./gate').then((module) => module.Gate));
const problem = signal<Problem | null>(null);

function Root() {
  return key.value ? <App /> : <Gate problem={problem.value} />;
}

async function start(): Promise<void> {
  problem.value = await exchangeCode().catch(() => null);
  connect();
  listenForKeys();
  // The daemon no longer accepts the key.
  effect(() => {
    if (connection.value.state === 'unauthorized' && key.peek()) clearKey();
  });
  // A new code in the address signs in a page that is already open.
  addEventListener('hashchange', async () => {
    problem.value = await exchangeCode().catch(() => null);
  });
  // The service worker and the notifications are not needed for the first view.
  const startNotifications = () => void import('./notify').then((module) => (module.watchInbox(), module.registerWorker())).catch((error: unknown) => console.warn(`could not start the service worker: ${String(error)}`));
  if (document.readyState === 'complete') startNotifications();
  else addEventListener('load', startNotifications, { once: true });
  const root = document.getElementById('app');
  if (root) render(<Root />, root);
}

void start();
