import { defineConfig } from 'vitest/config';

export default defineConfig({
  // Compile JSX without a plugin, to avoid a dependency.
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    target: 'es2022',
    // Inline nothing, because the page's security policy allows only scripts from files (S12).
    assetsInlineLimit: 0,
    modulePreload: false,
    sourcemap: false,
    emptyOutDir: true,
    rolldownOptions: {
      input: { index: 'index.html', 'service-worker': 'src/service-worker.ts' },
      output: {
        // Browsers know a service worker by its address, so its name has no hash.
        entryFileNames: (chunk) => (chunk.name === 'service-worker' ? 'assets/service-worker.js' : 'assets/[name]-[hash].js'),
      },
    },
  },
  worker: { format: 'es' },
  test: { environment: 'happy-dom', include: ['src/**/*.test.{ts,tsx}'], testTimeout: 60_000 },
});
