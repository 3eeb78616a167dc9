import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { startRedis } from '@fenced/testbed';
import { expect, test } from 'vitest';

const CHILD = fileURLToPath(new URL('./harness/garbage-child.ts', import.meta.url));
/**
 * Objects that outlive two collections take about 350 bytes. If each lease is reachable from an
 * earlier one, it is 2,100 bytes and more.
 */
const BYTES_PER_CYCLE_MAX = 1_500;

test('a lease that is over is no work for the garbage collector: minor collections find nothing of it', async () => {
  await using redis = await startRedis(3);
  const order = { ports: redis.nodes.map(({ port }) => port), keyPrefix: `${randomUUID()}:` };
  // A fixed size, independent of earlier collections.
  const flags = ['--expose-gc', '--min-semi-space-size=8', '--max-semi-space-size=8'];
  const args = [...flags, CHILD, JSON.stringify(order)];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  const { bytesPerCycle, majorCollections } = JSON.parse(stdout);
  // A major collection would hide the growth.
  expect(majorCollections).toBe(0);
  expect(bytesPerCycle).toBeLessThan(BYTES_PER_CYCLE_MAX);
});
