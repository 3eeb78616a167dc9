import { createRequire } from 'node:module';
import { join } from 'node:path';
import { queryObjects } from 'node:v8';
import { Redlock } from '@fenced/lock';
import { startRedis } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { until } from '../lock/harness/redlock-nodes.js';
import { gatewayRequests } from './gateway.ts';
import { growthIn, type Sample } from './growth.ts';
import { soak } from './soak.ts';

/** A short soak. The TTL is short, so nodes forget a name after a second or two. */
const SHORT = {
  durationMs: 7_000,
  samples: 12,
  ttlMs: 1_000,
  namesPerSecond: 100,
  clientsPerSecond: 6,
  held: 50,
  waiters: 20,
  holdMs: 5,
};

test('churn of names, leases, waiters and clients lets nothing grow', async () => {
  const { growth, acquired, samples } = await soak(SHORT);
  expect(growth).toEqual([]);
  expect(acquired).toBeGreaterThan(100);
  expect(samples).toHaveLength(SHORT.samples);
});

test('waiters that were served are freed while others wait', async () => {
  const entry = createRequire(import.meta.url).resolve('@fenced/lock');
  const { QueuedWaiter } = await import(join(entry, '../queue/queued-waiter.js'));
  await using redis = await startRedis(3);
  const clients = redis.nodes.map(({ port }) => new Redis(port));
  const lock = new Redlock({ nodes: clients });
  let served = 0;
  let isOver = false;
  const waiters = Array.from({ length: 5 }, async () => {
    while (!isOver) {
      const lease = await lock.acquire('x', { ttlMs: 10_000, waitMs: 10_000 });
      served += 1;
      await lease.release();
    }
  });
  await until(() => served >= 2_000);
  const kept = queryObjects(QueuedWaiter, { format: 'count' });
  isOver = true;
  await Promise.all(waiters);
  for (const client of clients) client.disconnect();
  expect(kept).toBeLessThan(500);
});

test('a leak of connections is found', async () => {
  const { growth } = await soak({ ...SHORT, waiters: 1, clientsPerSecond: 20, leaks: true });
  expect(growth.join()).toContain('descriptors grew');
  expect(growth.join()).toContain('connections grew');
});

test('a leak of a gateway is found, and each request has the answer that it should have', {
  timeout: 120_000,
}, async () => {
  const kept: string[] = [];
  const onRequest = () =>
    void kept.push(Buffer.alloc(40_000, `${kept.length} `).toString('latin1'));
  const { growth, statuses } = await gatewayRequests(450, { onRequest });
  expect(statuses).toEqual({ 200: 270, 201: 90, 401: 90, 404: 90 });
  expect(growth.join()).toMatch(/^heapBytes grew from \d+ to \d+, more than \d/);
});

test('each figure that grows is named, and a warm-up is not', () => {
  const flat: Sample = {
    atMs: 0,
    heapBytes: 50e6,
    residentBytes: 90e6,
    descriptors: 40,
    timers: 30,
    nodeBytes: 5e6,
    keys: 90,
    names: 900,
    connections: 40,
  };
  const samples = (change: (at: number) => Partial<Sample>): Sample[] =>
    Array.from({ length: 30 }, (_, at) => ({ ...flat, ...change(at) }));
  expect(growthIn(samples((at) => ({ heapBytes: Math.min(at, 10) * 5e6 })))).toEqual([]);
  for (const field of ['heapBytes', 'timers', 'nodeBytes', 'keys', 'names'] as const) {
    const [sentence, ...more] = growthIn(samples((at) => ({ [field]: flat[field] * (1 + at) })));
    expect(sentence).toContain(`${field} grew from`);
    expect(more).toEqual([]);
  }
  expect(() => growthIn(samples(() => ({})).slice(0, 8))).toThrow('samples=8');
});
