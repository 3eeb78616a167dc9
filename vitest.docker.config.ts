import { defineConfig } from 'vitest/config';

// Needs a Docker engine, so it is not part of `npm test`. On Debian as root it installs one.
export default defineConfig({
  test: {
    include: ['test/docker/**/*.test.ts'],
    testTimeout: 300_000,
    hookTimeout: 600_000,
    reporters: ['default', './tools/plain-summary.ts'],
  },
});
