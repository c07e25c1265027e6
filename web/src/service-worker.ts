// The service worker: it shows a page that says so when the daemon does not respond, and it answers the buttons of
// notifications. It caches nothing else, so an update of the daemon is seen at once.

import type { NoticeData } from './notify';

interface WorkerClient {
  readonly url: string;
  focus(): Promise<WorkerClient>;
  navigate(url: string): Promise<WorkerClient | null>;
}

/** The parts of a service worker's scope that this file uses. The library of a page has no types for them. */
interface Scope {
  addEventListener(type: string, listener: (event: never) => void): void;
  readonly clients: { matchAll(options: object): Promise<WorkerClient[]>; openWindow(url: string): Promise<unknown>; claim(): Promise<void> };
  readonly registration: ServiceWorkerRegistration;
  skipWaiting(): Promise<void>;
}
interface WorkEvent {
  waitUntil(work: Promise<unknown>): void;
}
interface RequestEvent extends WorkEvent {
  readonly request: Request;
  respondWith(response: Promise<Response>): void;
}
interface ClickEvent extends WorkEvent {
  readonly action: string;
  readonly notification: Notification;
}

const scope = self as unknown as Scope;
const CACHE = 'regatta-offline-1';
const OFFLINE_PAGE = '/assets/offline.html';
const OFFLINE_FILES = [OFFLINE_PAGE, '/assets/offline.css', '/assets/offline.js'];

scope.addEventListener('install', (event: WorkEvent) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(OFFLINE_FILES)));
  void scope.skipWaiting();
});

scope.addEventListener('activate', (event: WorkEvent) => {
  const removeOld = caches.keys().then((names) => Promise.all(names.filter((name) => name !== CACHE).map((name) => caches.delete(name))));
  event.waitUntil(Promise.all([removeOld, scope.clients.claim()]));
});

async function cached(path: string): Promise<Response> {
  return (await caches.match(path)) ?? Response.error();
}

scope.addEventListener('fetch', (event: RequestEvent) => {
  const path = new URL(event.request.url).pathname;
  if (event.request.mode === 'navigate') event.respondWith(fetch(event.request).catch(() => cached(OFFLINE_PAGE)));
  else if (OFFLINE_FILES.includes(path)) event.respondWith(fetch(event.request).catch(() => cached(path)));
});

/** Shows the page of a notification: in an open tab, or else in a new one. */
async function show(path: string): Promise<void> {
  const tabs = await scope.clients.matchAll({ type: 'window', includeUncontrolled: true });
  const tab = tabs[0];
  if (!tab) {
    await scope.clients.openWindow(path);
    return;
  }
  await tab.focus();
  if (new URL(tab.url).pathname !== path) await tab.navigate(path);
}

/** Sends an answer with the session of this browser. If the daemon refuses it, shows why; a tap then opens the item. */
async function answer(data: NoticeData, index: number): Promise<void> {
  const chosen = data.answers[index];
  if (!chosen) return;
  let problem = 'the daemon does not respond';
  try {
    const headers = { 'content-type': 'application/json', 'idempotency-key': crypto.randomUUID(), 'x-regatta-page': data.key };
    const response = await fetch(`/api/v1/${chosen.verb}`, { method: 'POST', headers, body: JSON.stringify(chosen.input) });
    if (response.ok) return;
    problem = String(((await response.json().catch(() => ({}))) as { message?: unknown }).message ?? response.status);
  } catch {
    // the problem is already set
  }
  await scope.registration.showNotification(`Not done: ${chosen.label}`, { body: problem, tag: data.id, data: { ...data, answers: [] }, icon: '/assets/icon-192.png' });
}

scope.addEventListener('notificationclick', (event: ClickEvent) => {
  const data = event.notification.data as NoticeData;
  event.notification.close();
  event.waitUntil(event.action.startsWith('answer-') ? answer(data, Number(event.action.slice(7))) : show(data.path));
});
