// Authentication with the daemon. A one-time code from `regatta open` is exchanged for a browser session, and each
// request carries that session.
//
// The session has two parts. Scripts cannot read the cookie. The key is stored for this origin and sent as a header.
// The cookie alone is not enough, because the browser sends it to every port of this machine.

import { signal } from '@preact/signals';
import type { Verbs } from './api';

const STORAGE_KEY = 'regatta-key';

/** Why a request failed, and what to do next. */
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

/** The key of the browser session; empty before sign-in. */
export const key = signal(storedKey());
/** Whether this tab was signed in before. */
export const hadSession = signal(false);

function storedKey(): string {
  try {
    return localStorage.getItem(STORAGE_KEY) ?? '';
  } catch {
    return ''; // without storage, the session ends with the tab
  }
}

function storeKey(value: string): void {
  key.value = value;
  try {
    if (value) localStorage.setItem(STORAGE_KEY, value);
    else localStorage.removeItem(STORAGE_KEY);
  } catch {
    // without storage, the session ends with the tab
  }
}

// Another tab of this browser signed in or out.
globalThis.addEventListener?.('storage', (event) => {
  if (event.key === STORAGE_KEY || event.key === null) key.value = storedKey();
});

/** Returns the sign-in code at the end of a text, which is a code or an address that `regatta open` printed. */
export function codeIn(text: string): string | null {
  return /(?:^|#)([a-z2-9]{16})$/.exec(text.trim())?.[1] ?? null;
}

/** Removes the code from the address and the history, and exchanges it for a browser session. The path stays. */
export async function exchangeCode(address: Location = location): Promise<Problem | null> {
  const code = codeIn(address.hash);
  if (!code) return null;
  history.replaceState(history.state, '', address.pathname + address.search);
  return signIn(code);
}

/** Exchanges a one-time code for a browser session. */
export async function signIn(code: string): Promise<Problem | null> {
  const response = await fetch('/enter', { method: 'POST', body: JSON.stringify({ code }) });
  const body = await response.json().catch(() => ({}));
  if (!response.ok) return toProblem(response.status, body);
  storeKey(String(body.key));
  return null;
}

/** Forgets the key, because the daemon no longer accepts it. */
export function clearKey(): void {
  if (key.peek()) hadSession.value = true;
  storeKey('');
}

function toProblem(status: number, body: Partial<Problem>): Problem {
  return {
    status,
    code: String(body.code ?? 'unknown'),
    message: String(body.message ?? 'the daemon gave no reason'),
    hint: String(body.hint ?? ''),
  };
}

async function request(path: string, init: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers: { ...init.headers, 'x-regatta-page': key.value } });
  } catch {
    throw new RequestError({ status: 0, code: 'unreachable', message: 'the daemon does not respond', hint: 'regatta up' });
  }
  if (response.ok) return response;
  const failure = toProblem(response.status, await response.json().catch(() => ({})));
  if (response.status === 401) clearKey();
  throw new RequestError(failure);
}

/** Calls a verb of the API that an action of the server names. The idempotency key makes a repeated write harmless. */
export async function callNamed(verb: string, input: unknown): Promise<unknown> {
  const headers = { 'content-type': 'application/json', 'idempotency-key': crypto.randomUUID() };
  const response = await request(`/api/v1/${verb}`, { method: 'POST', headers, body: JSON.stringify(input) });
  return ((await response.json()) as { data: unknown }).data;
}

/** Calls a verb of the API. */
export async function call<Verb extends keyof Verbs>(verb: Verb, input: Verbs[Verb]['input']): Promise<Verbs[Verb]['answer']> {
  return (await callNamed(verb, input)) as Verbs[Verb]['answer'];
}

/** Fetches text or HTML that the daemon renders, such as a diff or a log. */
export async function fetchText(path: string): Promise<string> {
  return (await request(path, { method: 'GET' })).text();
}

/** Fetches a long text, which the browser stores outside the memory of the page. */
export async function fetchBlob(path: string): Promise<Blob> {
  return (await request(path, { method: 'GET' })).blob();
}
