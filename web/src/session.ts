// Who we are to the daemon: a one-time code becomes a pass, and every call shows it.
//
// The pass has two halves. The cookie is the browser's, kept from scripts; the key is ours, kept with this origin. A
// cookie alone would go to every port of this machine.

import { signal } from '@preact/signals';

const KEPT = 'regatta-key';

/** How a call was refused: what happened, and what to do. */
export interface Problem {
  status: number;
  code: string;
  message: string;
  hint: string;
}

export class Refused extends Error {
  constructor(readonly problem: Problem) {
    super(problem.message);
  }
}

/** The key's half of the pass; empty when nobody let us in. */
export const key = signal(stored());

function stored(): string {
  try {
    return localStorage.getItem(KEPT) ?? '';
  } catch {
    return ''; // a browser that keeps nothing forgets us with the tab
  }
}

function keep(value: string): void {
  key.value = value;
  try {
    if (value) localStorage.setItem(KEPT, value);
    else localStorage.removeItem(KEPT);
  } catch {
    // as above
  }
}

/** Takes the code out of the address, so that it is in no history, and trades it for a pass. */
export async function enter(place: Location = location): Promise<Problem | null> {
  const code = place.hash.slice(1);
  if (!/^[a-z2-9]{16}$/.test(code)) return null;
  history.replaceState(null, '', place.pathname + place.search);
  const answer = await fetch('/enter', { method: 'POST', body: JSON.stringify({ code }) });
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) return problem(answer.status, said);
  keep(String(said.key));
  return null;
}

/** The pass opens nothing any more. */
export function forget(): void {
  keep('');
}

function problem(status: number, said: Partial<Problem>): Problem {
  return {
    status,
    code: String(said.code ?? 'unknown'),
    message: String(said.message ?? 'the daemon did not say why'),
    hint: String(said.hint ?? ''),
  };
}

async function ask(path: string, init: RequestInit): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(path, { ...init, headers: { ...init.headers, 'x-regatta-page': key.value } });
  } catch {
    throw new Refused({ status: 0, code: 'unreachable', message: 'the daemon does not answer', hint: 'regatta up' });
  }
  if (answer.ok) return answer;
  const said = problem(answer.status, await answer.json().catch(() => ({})));
  if (answer.status === 401) forget();
  throw new Refused(said);
}

/** Calls a verb. A write carries a key, so that sending it again does nothing twice. */
export async function call<T = unknown>(verb: string, input: unknown = {}): Promise<T> {
  const headers = { 'content-type': 'application/json', 'idempotency-key': crypto.randomUUID() };
  const answer = await ask(`/api/v1/${verb}`, { method: 'POST', headers, body: JSON.stringify(input) });
  return ((await answer.json()) as { data: T }).data;
}

/** Fetches what is drawn by the daemon: markup of diffs and logs, or text. */
export async function read(path: string): Promise<string> {
  return (await ask(path, { method: 'GET' })).text();
}
