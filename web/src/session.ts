// Who we are to the daemon: a one-time code becomes a pass, and every call shows it.
//
// The pass has two halves. The cookie is the browser's, kept from scripts; the key is ours, kept with this origin. A
// cookie alone would go to every port of this machine.

import { signal } from '@preact/signals';

const STORAGE_KEY = 'regatta-key';

/** How a call was refused: what happened, and what to do. */
export interface Problem {
  status: number;
  code: string;
  message: string;
  hint: string;
}

export class RequestError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.message);
  }
}

/** The key's half of the pass; empty when nobody let us in. */
export const key = signal(storedKey());

function storedKey(): string {
  try {
    return localStorage.getItem(STORAGE_KEY) ?? '';
  } catch {
    return ''; // a browser that keeps nothing forgets us with the tab
  }
}

function storeKey(value: string): void {
  key.value = value;
  try {
    if (value) localStorage.setItem(STORAGE_KEY, value);
    else localStorage.removeItem(STORAGE_KEY);
  } catch {
    // as above
  }
}

/** Takes the code out of the address, so that it is in no history, and trades it for a pass. */
export async function exchangeCode(address: Location = location): Promise<Problem | null> {
  const code = address.hash.slice(1);
  if (!/^[a-z2-9]{16}$/.test(code)) return null;
  history.replaceState(null, '', address.pathname + address.search);
  const response = await fetch('/enter', { method: 'POST', body: JSON.stringify({ code }) });
  const body = await response.json().catch(() => ({}));
  if (!response.ok) return toProblem(response.status, body);
  storeKey(String(body.key));
  return null;
}

/** The pass opens nothing any more. */
export function clearKey(): void {
  storeKey('');
}

function toProblem(status: number, body: Partial<Problem>): Problem {
  return {
    status,
    code: String(body.code ?? 'unknown'),
    message: String(body.message ?? 'the daemon did not say why'),
    hint: String(body.hint ?? ''),
  };
}

async function request(path: string, init: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers: { ...init.headers, 'x-regatta-page': key.value } });
  } catch {
    throw new RequestError({ status: 0, code: 'unreachable', message: 'the daemon does not answer', hint: 'regatta up' });
  }
  if (response.ok) return response;
  const failure = toProblem(response.status, await response.json().catch(() => ({})));
  if (response.status === 401) clearKey();
  throw new RequestError(failure);
}

/** Calls a verb. A write carries a key, so that sending it again does nothing twice. */
export async function call<T = unknown>(verb: string, input: unknown = {}): Promise<T> {
  const headers = { 'content-type': 'application/json', 'idempotency-key': crypto.randomUUID() };
  const response = await request(`/api/v1/${verb}`, { method: 'POST', headers, body: JSON.stringify(input) });
  return ((await response.json()) as { data: T }).data;
}

/** Fetches what is drawn by the daemon: markup of diffs and logs, or text. */
export async function fetchText(path: string): Promise<string> {
  return (await request(path, { method: 'GET' })).text();
}
