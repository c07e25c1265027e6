// An action of the page. The server sends what an action does; the page adds what happens around its call.

import type { PageAction } from './api';

/** A question with other actions to choose instead. The first of them has the focus. */
export interface ActionQuestion {
  title: string;
  text: string;
  instead: Action[];
  /** The label of the button that performs the action anyway, or null if nothing may perform it now. */
  proceed: string | null;
}

export interface Action extends PageAction {
  /** Called with the result after the call succeeded. */
  after?: (result: unknown) => void;
  /** The same action for the other items of a group. */
  also?: Action[] | undefined;
  /** Called instead of the verb, for what happens only in the browser. */
  run?: () => void;
  /** What the dialog asks before the action, instead of its usual question. */
  question?: ActionQuestion;
}
