import { defineConfig } from 'vitest/config';

const TESTS = ['packages/*/src/**/*.test.ts', 'test/**/*.test.ts'];
const NEVER = ['**/node_modules/**', 'test/{docker,chart}/**'];

/** Tests without servers. All others may start some. */
const UNIT = [
  'packages/!(testbed)/src/**/*.test.ts',
  'test/repository/*.test.ts',
  'test/simulation/{draws,simulation,readmissions,mutant-list}.test.ts',
  'test/torture/{exclusion,judge}.test.ts',
];

/** Tests that mostly wait for processes and time limits, or use one core. Two files run at once. */
const WAITING = [
  'packages/testbed/src/*.test.ts',
  'test/{client,docs,examples,fenced,gateway,packages,proof,spec,store}/*.test.ts',
  'test/conformance/*.test.ts',
  'test/lock/{etcd,postgres,s3,zookeeper}-*.test.ts',
  'test/scenarios/{lock-services,ratchet-off,wait-off}.test.ts',
  'test/simulation/node-model.test.ts',
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
        test: { name: 'waiting', include: WAITING, maxWorkers: 2, sequence: { groupOrder: 1 } },
      },
      {
        extends: true,
        // One file at a time, because most watch the clock closely, or use both cores.
        test: {
          name: 'servers',
          include: TESTS,
          exclude: [...NEVER, ...UNIT, ...WAITING],
          fileParallelism: false,
          maxConcurrency: 2,
          sequence: { groupOrder: 2 },
        },
      },
    ],
  },
});
