import { defineConfig } from 'vitest/config';

const TESTS = ['packages/*/src/**/*.test.ts', 'test/**/*.test.ts'];
const NEVER = ['**/node_modules/**', 'test/docker/**'];

/** Tests without servers. All others may start some. */
const UNIT = [
  'packages/!(testbed)/src/**/*.test.ts',
  'test/repository/*.test.ts',
  'test/simulation/{simulation,mutant-list}.test.ts',
];

export default defineConfig({
  test: {
    testTimeout: 30_000,
    hookTimeout: 120_000,
    reporters: ['default', './tools/plain-summary.ts'],
    projects: [
      { extends: true, test: { name: 'unit', include: UNIT, exclude: NEVER } },
      {
        extends: true,
        // Apart from the unit tests, one file at a time: most pause processes and watch the clock.
        test: {
          name: 'servers',
          include: TESTS,
          exclude: [...NEVER, ...UNIT],
          fileParallelism: false,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
