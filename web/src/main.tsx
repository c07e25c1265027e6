import { effect, signal } from '@preact/signals';
import { render } from 'preact';
import { App } from './app';
import { listen } from './keys';
import { connect, link } from './live/client';
import { type Problem, enter, forget, key } from './session';
import './style.css';

const problem = signal<Problem | null>(null);

function Gate() {
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
  problem.value = await enter().catch(() => null);
  connect();
  listen();
  // The daemon does not know us any more.
  effect(() => {
    if (link.value.state === 'shut' && key.peek()) forget();
  });
  // A page that is open already is let in by a new code, too.
  addEventListener('hashchange', async () => {
    problem.value = await enter().catch(() => null);
  });
  const place = document.getElementById('app');
  if (place) render(<Gate />, place);
}

void start();
