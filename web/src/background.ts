// Starts the service worker, and the notifications if the person switched them on.

import { NOTIFY_STORAGE_KEY, registerWorker } from './service-worker-client';

export async function startBackground(): Promise<void> {
  try {
    await registerWorker();
    if (localStorage.getItem(NOTIFY_STORAGE_KEY) === 'on') (await import('./notify')).watchInbox();
  } catch (error) {
    console.warn(`could not start the service worker, so there are no notifications: ${String(error)}`);
  }
}
