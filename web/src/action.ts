// An action of the page. The server sends what an action does; the page adds what happens around its call.

import type { PageAction } from './api';

export interface Action extends PageAction {
  /** Called with the result after the call succeeded. */
  after?: (result: unknown) => void;
  /** The same action for the other items of a group. */
  also?: Action[] | undefined;
}
