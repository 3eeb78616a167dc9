import { defineConfig } from 'vitest/config';

// Needs a Docker engine, or Helm, so it is not part of `npm test`.
export default defineConfig({
  test: {
    include: ['test/{docker,chart}/**/*.test.ts'],
    testTimeout: 300_000,
    hookTimeout: 600_000,
    reporters: ['default', './tools/plain-summary.ts'],
  },
});
