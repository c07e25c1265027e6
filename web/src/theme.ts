// Light or dark: as the system says, unless somebody chose.

import { effect, signal } from '@preact/signals';

const asked = matchMedia('(prefers-color-scheme: dark)');
const kept = signal(localStorage.getItem('regatta-theme') ?? '');
const system = signal(asked.matches);
asked.addEventListener('change', (it) => (system.value = it.matches));

effect(() => {
  document.documentElement.dataset['theme'] = kept.value || (system.value ? 'dark' : 'light');
});

export const theme = {
  turn(): void {
    const now = document.documentElement.dataset['theme'] === 'dark' ? 'light' : 'dark';
    kept.value = now;
    localStorage.setItem('regatta-theme', now);
  },
};
