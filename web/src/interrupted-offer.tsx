// Offers the action again that a person pressed when the session had ended.

import './gate.css';
import { plain } from './format';
import { interrupted, setInterrupted } from './interrupted';
import { perform } from './ui';

/** Returns what the person pressed, as they saw it: the label of the button and its shell command. */
export function InterruptedOffer() {
  const offered = interrupted.value;
  if (!offered) return null;
  const doNow = () => {
    setInterrupted(null);
    void perform(offered.action, offered.text);
  };
  return (
    <section class="panel interrupted" role="alert" aria-label="Action that was not performed">
      <p>
        You pressed <b>{plain(offered.action.label.replace('…', ''), 80)}</b> when your session had ended, so nothing happened. <code>{plain(offered.action.cli, 200)}</code>
      </p>
      {offered.text && <p class="what">{plain(offered.text, 300)}</p>}
      <div class="row">
        <button type="button" class="do first" onClick={doNow}>
          Do it now
        </button>
        <button type="button" class="do" onClick={() => setInterrupted(null)}>
          Discard
        </button>
      </div>
    </section>
  );
}
