import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { LeaseLostError, Redlock } from '@fenced/lock';
import { type RedisService, startRedis } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';

const CHILD = fileURLToPath(new URL('./harness/many-child.ts', import.meta.url));

let redis: RedisService;
beforeAll(async () => {
  redis = await startRedis(3);
});
afterAll(() => redis?.stop());

test('a short lease costs a process no more work if the process also holds 10,000 long leases', async () => {
  const ports = redis.nodes.map(({ port }) => port);
  const order = { ports, keyPrefix: `{${randomUUID()}}:`, held: 10_000 };
  const { stdout } = await promisify(execFile)(process.execPath, [CHILD, JSON.stringify(order)]);
  const { alone, besideMany, held } = JSON.parse(stdout);
  expect(held).toBe(10_000);
  expect(alone).toBeGreaterThan(0);
  // The factor 2 allows for late nodes: then the client asks the remaining nodes, too.
  expect(besideMany).toBeLessThan(2 * alone);
}, 120_000);

test('a lease whose fake timer never fires does not keep other leases from ending', async () => {
  const clients = redis.nodes.map(({ port }) => new Redis(port));
  const nodes = clients.map((client, at) => ({ name: `node-${at}`, client }));
  await using redlock = new Redlock({ nodes, keyPrefix: `{${randomUUID()}}:` });
  await (await redlock.acquire('warm-up', { ttlMs: 1_000, waitMs: 5_000 })).release();
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const faked = await redlock.acquire('a', { ttlMs: 300 });
  vi.useRealTimers();
  const { signal } = await redlock.acquire('b', { ttlMs: 400 });
  await new Promise((resolve) => signal.addEventListener('abort', resolve));
  expect(signal.reason).toBeInstanceOf(LeaseLostError);
  expect(faked.remainingMs()).toBe(0);
  for (const client of clients) client.disconnect();
});
