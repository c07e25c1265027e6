// The log of an attempt. Its code is loaded when a log is first shown.

import { lazy } from '../lazy';

export interface LogProps {
  attempt: string;
  /** Whether the attempt still runs. */
  live: boolean;
  /** Whether the log is the main content of the page, and gets the height of the window. */
  isTall?: boolean;
}

export const Log = lazy<LogProps>(() => import('./log-panel').then((module) => module.LogPanel));
