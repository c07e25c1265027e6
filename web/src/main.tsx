import { render } from 'preact';
import { enter, key } from './session';
import './style.css';

const problem = await enter();

function Gate() {
  if (key.value) return <main>in</main>;
  return (
    <main class="gate">
      <h1>This browser is not let in yet</h1>
      <p>{problem ? `${problem.message}.` : 'The page opens with a code that works once.'} In a shell on the daemon’s machine:</p>
      <pre>regatta open</pre>
      <p>prints an address. Open it here.</p>
    </main>
  );
}

const place = document.getElementById('app');
if (place) render(<Gate />, place);
