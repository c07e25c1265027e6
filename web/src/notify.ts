// Notifications of this browser: one for each new item of the inbox, with buttons for the answers. They are shown while a
// tab of the page lives; the daemon's `notify.command` reaches a person without one.

import { effect, signal } from '@preact/signals';
import type { Action } from './action';
import type { InboxItemView } from './api';
import { plain } from './format';
import { setUrgentTopics, subscribe, topic } from './live/client';
import { key } from './session';
import { NOTIFY_STORAGE_KEY } from './service-worker-client';

/** The data of a notification, from which the service worker answers. */
export interface NoticeData {
  id: string;
  /** The page of the item. */
  path: string;
  answers: { label: string; verb: string; input: unknown }[];
  /** The key of the browser session; see session.ts. */
  key: string;
}

/** Whether the person switched notifications on in this browser. */
export const notifies = signal(storedChoice());

function storedChoice(): boolean {
  try {
    return localStorage.getItem(NOTIFY_STORAGE_KEY) === 'on' && Notification.permission === 'granted';
  } catch {
    return false; // without notifications or storage, they are off
  }
}

export function canNotify(): boolean {
  return 'Notification' in globalThis && 'serviceWorker' in navigator;
}

/** Asks the person for the permission. Call it only from a click. */
export async function switchOn(): Promise<boolean> {
  notifies.value = (await Notification.requestPermission()) === 'granted';
  localStorage.setItem(NOTIFY_STORAGE_KEY, notifies.value ? 'on' : 'off');
  watchInbox();
  return notifies.value;
}

export function switchOff(): void {
  notifies.value = false;
  localStorage.setItem(NOTIFY_STORAGE_KEY, 'off');
}

/** Returns the answers that a button of a notification may give: one permission or denial, or the choices of a question.
 * Work lands only from the page, where a person sees the change. */
export function quickAnswers(item: Pick<InboxItemView, 'kind' | 'actions'>, max: number): Action[] {
  const say = (action: Action) => (action.input['answer'] as { say?: string } | undefined)?.say;
  const plainAnswers = item.actions.filter((action) => action.verb === 'inbox.answer' && action.words === undefined && !action.grave);
  if (item.kind !== 'permission') return item.kind === 'question' ? plainAnswers.slice(0, max) : [];
  const once = plainAnswers.find((action) => say(action) === 'allow' && action.input['reach'] === 'once');
  const deny = plainAnswers.find((action) => say(action) === 'deny');
  return [once, deny].filter((action) => action !== undefined).slice(0, max);
}

/** Shows the notification of one item. A newer notification of the same item replaces it, also from another tab. */
export async function notify(item: InboxItemView): Promise<void> {
  const registration = await navigator.serviceWorker.ready;
  const maxActions = (Notification as unknown as { maxActions?: number }).maxActions ?? 2;
  const answers = quickAnswers(item, maxActions);
  const data: NoticeData = {
    id: item.id,
    path: item.task ? `/t/${item.task}` : '/inbox',
    answers: answers.map(({ label, verb, input }) => ({ label, verb, input })),
    key: key.peek(),
  };
  const actions = answers.map((action, index) => ({ action: `answer-${index}`, title: plain(action.label, 40) }));
  if (actions.length < maxActions) actions.push({ action: 'open', title: 'Open' });
  await registration.showNotification([item.task, item.agent].filter(Boolean).join(' ') + ` · ${item.kind}`, {
    body: plain(item.subject, 200),
    tag: item.id,
    data,
    icon: '/assets/icon-192.png',
    badge: '/assets/badge-96.png',
    actions,
  } as NotificationOptions);
}

let isWatching = false;

/** Notifies of new items while nobody looks at this tab. Items that were there at the start are not new. */
export function watchInbox(): void {
  if (isWatching) return;
  isWatching = true;
  let seen: Set<string> | null = null;
  let unsubscribe = () => {};
  effect(() => {
    unsubscribe();
    unsubscribe = notifies.value ? subscribe(['inbox']) : () => {};
    setUrgentTopics(notifies.value ? ['inbox'] : []);
  });
  effect(() => {
    const inbox = topic('inbox');
    const items = inbox.all();
    if (!inbox.known.value) return;
    const before = seen;
    seen = new Set(items.map((item) => item.id));
    if (!before || !notifies.peek() || (!document.hidden && document.hasFocus())) return;
    for (const item of items) if (!before.has(item.id)) void notify(item);
  });
}
