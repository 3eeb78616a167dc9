import { defineConfig } from 'vitest/config';

// One run for everything. Files run one after the other: most of them start processes, pause them and watch the clock.
export default defineConfig({
  test: {
    include: ['packages/*/src/**/*.test.ts', 'test/**/*.test.ts'],
    exclude: ['**/node_modules/**', 'test/docker/**'],
    fileParallelism: false,
    testTimeout: 30_000,
    hookTimeout: 120_000,
    reporters: ['default', './tools/plain-summary.ts'],
  },
});
