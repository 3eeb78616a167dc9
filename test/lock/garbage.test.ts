import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { startRedis } from '@fenced/testbed';
import { expect, test } from 'vitest';

const CHILD = fileURLToPath(new URL('./harness/garbage-child.ts', import.meta.url));
/**
 * Bytes of each lease that may outlive two minor collections: they are about 350. If each lease
 * kept an earlier lease alive, they would be 2,100 and more.
 */
const BYTES_PER_CYCLE_MAX = 1_500;

test('nothing refers to a lease that is over, so minor garbage collections free it', async () => {
  await using redis = await startRedis(3);
  const order = { ports: redis.nodes.map(({ port }) => port), keyPrefix: `${randomUUID()}:` };
  // Fixes the size of the young generation, which otherwise depends on earlier collections.
  const flags = ['--expose-gc', '--min-semi-space-size=8', '--max-semi-space-size=8'];
  const args = [...flags, CHILD, JSON.stringify(order)];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  const { bytesPerCycle, majorCollections } = JSON.parse(stdout);
  // A major collection would hide the growth.
  expect(majorCollections).toBe(0);
  expect(bytesPerCycle).toBeLessThan(BYTES_PER_CYCLE_MAX);
});
