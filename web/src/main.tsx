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
  const root = document.getElementById('app');
  if (root) render(<Root />, root);
}

void start();
