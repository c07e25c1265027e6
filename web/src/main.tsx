import { effect, signal } from '@preact/signals';
import { render } from 'preact';
import { App } from './app';
import { listenForKeys } from './keys';
import { connect, connection } from './live/client';
import { type Problem, clearKey, exchangeCode, key } from './session';
import './style.css';

const problem = signal<Problem | null>(null);

function SignInGate() {
  if (key.value) return <App />;
  return (
    <main class="gate">
      <h1>This browser is not signed in</h1>
      <p>{problem.value ? `${problem.value.message}.` : 'Signing in needs a one-time code.'} On the daemon’s machine, run:</p>
      <pre>regatta open</pre>
      <p>Open the address that it prints in this browser.</p>
    </main>
  );
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
  if (root) render(<SignInGate />, root);
}

void start();
