// The page's side of the service worker.

import { scriptUrl } from './trusted';

const WORKER_URL = '/assets/service-worker.js';

/** The name of the person's choice about notifications in the storage of the browser. */
export const NOTIFY_STORAGE_KEY = 'regatta-notify';

/** Registers the service worker. Its script lies below /assets, but the daemon lets it control all addresses. */
export async function registerWorker(): Promise<void> {
  if ('serviceWorker' in navigator) await navigator.serviceWorker.register(scriptUrl(WORKER_URL) as unknown as string, { scope: '/' });
}
