// Offers the tour once to each browser.

import { effect, signal } from '@preact/signals';
import { overlay } from './navigation';

const STORAGE_KEY = 'regatta-tour';

/** Whether the person took or dismissed the tour in this browser. */
export const tourSeen = signal(localStorage.getItem(STORAGE_KEY) === 'seen');
effect(() => {
  if (tourSeen.value) localStorage.setItem(STORAGE_KEY, 'seen');
});

export function TourOffer() {
  if (tourSeen.value || overlay.value === 'tour') return null;
  return (
    <p class="tour-offer">
      New here? Four steps show the page.
      <button type="button" class="do" onClick={() => (overlay.value = 'tour')}>
        Take the tour
      </button>
      <button type="button" class="plain" onClick={() => (tourSeen.value = true)}>
        Dismiss
      </button>
    </p>
  );
}
