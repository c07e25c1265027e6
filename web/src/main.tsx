import { effect, signal } from '@preact/signals';
import { render } from 'preact';
import { App } from './app';
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
  // The daemon no longer accepts the key.
  effect(() => {
    if (connection.value.state === 'unauthorized' && key.peek()) clearKey();
  });
  // A new code in the address signs in a page that is already open.
  addEventListener('hashchange', async () => {
    problem.value = await exchangeCode().catch(() => null);
  });
  let earlyKey: KeyboardEvent | undefined;
  const rememberKey = (event: KeyboardEvent) => (earlyKey = event);
  addEventListener('keydown', rememberKey);
  // The first view needs neither the keys nor the service worker.
  const startLater = () => {
    void import('./keys').then((module) => {
      removeEventListener('keydown', rememberKey);
      module.listenForKeys();
      // A key that was pressed while the module was loading counts.
      if (earlyKey && document.activeElement === document.body) dispatchEvent(new KeyboardEvent('keydown', earlyKey));
    });
    void import('./background').then((module) => module.startBackground());
  };
  if (document.readyState === 'complete') startLater();
  else addEventListener('load', startLater, { once: true });
  const root = document.getElementById('app');
  if (root) render(<Root />, root);
}

void start();
