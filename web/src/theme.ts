// The light or dark theme: the system's, unless a person chose one here.

import { effect, signal } from '@preact/signals';

const darkQuery = matchMedia('(prefers-color-scheme: dark)');
const chosenTheme = signal(localStorage.getItem('regatta-theme') ?? '');
const systemIsDark = signal(darkQuery.matches);
darkQuery.addEventListener('change', (event) => (systemIsDark.value = event.matches));

effect(() => {
  document.documentElement.dataset['theme'] = chosenTheme.value || (systemIsDark.value ? 'dark' : 'light');
});

export const theme = {
  toggle(): void {
    const next = document.documentElement.dataset['theme'] === 'dark' ? 'light' : 'dark';
    chosenTheme.value = next;
    localStorage.setItem('regatta-theme', next);
  },
};
