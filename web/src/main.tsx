import { effect, signal } from '@preact/signals';
import { render } from 'preact';
import { App } from './app';
import { listenForKeys } from './keys';
import { connect, connection } from './live/client';
import { type Problem, exchangeCode, clearKey, key } from './session';
import './style.css';

const problem = signal<Problem | null>(null);

function SignInGate() {
  if (key.value) return <App />;
  return (
    <main class="gate">
      <h1>This browser is not let in</h1>
      <p>{problem.value ? `${problem.value.message}.` : 'The page opens with a code that works once.'} In a shell on the daemon’s machine:</p>
      <pre>regatta open</pre>
      <p>prints an address. Open it here.</p>
    </main>
  );
}

async function start(): Promise<void> {
  problem.value = await exchangeCode().catch(() => null);
  connect();
  listenForKeys();
  // The daemon does not know us any more.
  effect(() => {
    if (connection.value.state === 'shut' && key.peek()) clearKey();
  });
  // A page that is open already is let in by a new code, too.
  addEventListener('hashchange', async () => {
    problem.value = await exchangeCode().catch(() => null);
  });
  const root = document.getElementById('app');
  if (root) render(<SignInGate />, root);
}

void start();
