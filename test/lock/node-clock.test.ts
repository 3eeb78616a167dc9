import { Redlock } from '@fenced/lock';
import { startLocalRedis } from '@fenced/testbed';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Clients, until } from './harness/redlock-nodes.js';

const HOUR_MS = 3_600_000;
const TTL_MS = 2_000;

let clients: Clients;
beforeEach(() => {
  clients = new Clients();
});
afterEach(() => {
  clients[Symbol.dispose]();
});

test('after the clock of a node was set back by an hour, a crashed holder and a crashed waiter hold up others for one TTL', async () => {
  await using service = await startLocalRedis(1, { hasMovableClock: true });
  const lock = clients.lock(service.nodes);
  const [dead, alive] = [
    await lock.acquire('dead', { ttlMs: TTL_MS }),
    await lock.acquire('alive', { ttlMs: TTL_MS }),
  ];
  // The holder of `queue` releases it. Its waiter crashes before.
  const held = await lock.acquire('queue', { ttlMs: TTL_MS });
  const [server] = service.nodes;
  const connection = clients.connect(server?.port ?? 0);
  const crashing = new Redlock({
    nodes: [{ name: 'n0', client: connection }],
    keyPrefix: clients.keyPrefix,
  });
  const waiting = crashing.acquire('queue', { ttlMs: TTL_MS, waitMs: 60_000 }).catch(() => null);
  const admin = clients.connect(server?.port ?? 0);
  await until(async () => (await admin.zcard(`${clients.keyPrefix}queue:queue`)) === 1);
  connection.disconnect();
  await held.release();

  await server?.setClock(-HOUR_MS);
  const setMs = performance.now();
  const extending = until(async () => {
    await alive.extend(TTL_MS);
    expect(await lock.tryAcquire('alive', { ttlMs: TTL_MS })).toMatchObject({ reason: 'held' });
    return performance.now() - setMs > 2 * TTL_MS;
  });
  const next = await Promise.all(
    ['dead', 'queue'].map((name) => lock.acquire(name, { ttlMs: TTL_MS, waitMs: 10_000 })),
  );
  expect(dead.remainingMs()).toBe(0);
  expect(next[0]?.token).toBeGreaterThan(dead.token);
  await extending;
  expect(await alive.release()).toBe('released');
  await crashing.close();
  await waiting;
}, 30_000);
