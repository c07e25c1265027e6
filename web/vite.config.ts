import { defineConfig } from 'vitest/config';

export default defineConfig({
  // JSX without a plugin: one dependency less.
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    target: 'es2022',
    // Nothing inline, nothing but files: the page's policy lets no other script run (S12).
    assetsInlineLimit: 0,
    modulePreload: false,
    sourcemap: false,
    emptyOutDir: true,
  },
  worker: { format: 'es' },
  test: { environment: 'happy-dom', include: ['src/**/*.test.{ts,tsx}'], testTimeout: 60_000 },
});
