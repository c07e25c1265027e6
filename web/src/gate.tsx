// The page before the sign-in. The address stays, so that the sign-in leads to the page that the person asked for.

import './gate.css';
import { useSignal } from '@preact/signals';
import { Command } from './command';
import { plain } from './format';
import { interrupted } from './interrupted';
import { route } from './route';
import { type Problem, codeIn, hadSession, signIn } from './session';

export function Gate({ problem }: { problem: Problem | null }) {
  const text = useSignal('');
  const failure = useSignal('');
  const busy = useSignal(false);
  const send = async (event: Event) => {
    event.preventDefault();
    // A phone may write the first letter as a capital.
    const code = codeIn(text.peek().toLowerCase());
    if (!code) {
      failure.value = 'A code has 16 letters and digits. Paste the code, or the whole address that the command printed.';
      return;
    }
    busy.value = true;
    failure.value = (await signIn(code).catch(() => ({ message: 'the daemon does not respond' })))?.message ?? '';
    busy.value = false;
  };
  const { path, query } = route.value;
  const target = path + (query.size > 0 ? `?${query.toString()}` : '');
  const command = /[^\w/.-]/.test(target) ? `regatta open '${target.replace(/'/g, '%27')}'` : `regatta open ${target}`;
  const pressed = interrupted.value?.action.label.replace('…', '');
  return (
    <main class="gate">
      <p class="brand">regatta</p>
      <h1>{hadSession.value ? 'Your session has ended' : 'Sign in'}</h1>
      {problem && <p class="error">{plain(problem.message, 300)}.</p>}
      {pressed && (
        <p class="interrupted">
          You pressed <b>{plain(pressed, 80)}</b>. Nothing has happened. After the sign-in you can do or discard it.
        </p>
      )}
      <ol>
        <li>
          On the daemon’s machine, run:
          <Command text={target === '/' ? 'regatta open' : command} />
        </li>
        <li>
          Open the address that it prints, or paste it here:
          <form onSubmit={(event) => void send(event)}>
            <input type="text" aria-label="Code or address" placeholder="http://…#code" autocomplete="off" autocapitalize="off" spellcheck={false} value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
            <button type="submit" class="do first" disabled={busy.value || !text.value.trim()}>
              Sign in
            </button>
          </form>
          {failure.value && <p class="error" role="alert">{plain(failure.value, 300)}</p>}
        </li>
      </ol>
      {target !== '/' && (
        <p class="dim">
          The sign-in leads to <code>{plain(target, 120)}</code>.
        </p>
      )}
      <p class="dim">The code works once, for ten minutes. A browser stays signed in for 30 days.</p>
    </main>
  );
}
