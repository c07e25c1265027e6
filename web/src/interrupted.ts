// The action that a person pressed when the session had ended. The page offers it again after the sign-in, and never
// performs it by itself, because the state of the fleet may have changed in the meantime.

import { signal } from '@preact/signals';
import type { Action } from './action';

export interface InterruptedAction {
  action: Action;
  /** The text that the person gave with the action. */
  text?: string | undefined;
}

const STORAGE_KEY = 'regatta-interrupted';

function stored(): InterruptedAction | null {
  try {
    return JSON.parse(sessionStorage.getItem(STORAGE_KEY) ?? 'null') as InterruptedAction | null;
  } catch {
    return null; // without storage, a reload forgets the action
  }
}

/** The action that was not performed, or null. It survives a reload of this tab. */
export const interrupted = signal<InterruptedAction | null>(stored());

export function setInterrupted(value: InterruptedAction | null): void {
  interrupted.value = value;
  try {
    if (value) sessionStorage.setItem(STORAGE_KEY, JSON.stringify(value));
    else sessionStorage.removeItem(STORAGE_KEY);
  } catch {
    // without storage, a reload forgets the action
  }
}
