// A shell command with a button that copies it.

import './command.css';
import { useSignal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import { plain } from './format';

/** Copies the text of an element. Returns false if the browser refuses, for example on a page without TLS. */
async function copy(element: HTMLElement | null): Promise<boolean> {
  if (!element) return false;
  try {
    await navigator.clipboard.writeText(element.textContent ?? '');
    return true;
  } catch {
    // Select the text, so that the person can copy it.
    getSelection()?.selectAllChildren(element);
    return false;
  }
}

export function Command({ text }: { text: string }) {
  const code = useRef<HTMLElement>(null);
  const answer = useSignal('');
  const onClick = async () => {
    answer.value = (await copy(code.current)) ? 'Copied' : 'Selected';
    setTimeout(() => (answer.value = ''), 3_000);
  };
  return (
    <span class="command">
      <code ref={code} tabIndex={0}>{plain(text, 400)}</code>
      <button type="button" class="do" aria-label={`Copy the command ${plain(text, 100)}`} onClick={() => void onClick()}>
        {answer.value || 'Copy'}
      </button>
      <span class="sr" role="status">
        {answer.value}
      </span>
    </span>
  );
}
