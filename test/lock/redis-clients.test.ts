import { randomUUID } from 'node:crypto';
import { NoQuorumError, type RedisClient, Redlock } from '@fenced/lock';
import { type LocalRedisService, startLocalRedis, TcpProxy } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { CLIENTS, type Open } from './harness/redis-clients.js';
import { until } from './harness/redlock-nodes.js';

/** The longest lease: as long does a node that lost its memory stay out. */
const TTL_MS = 500;

let service: LocalRedisService;
let admins: Redis[];
beforeAll(async () => {
  service = await startLocalRedis(3);
  admins = service.nodes.map(({ port }) => new Redis(port, { retryStrategy: () => 20 }));
  for (const admin of admins) admin.on('error', () => undefined);
});
afterAll(async () => {
  for (const admin of admins) admin.disconnect();
  await service.stop();
});

let stack = new AsyncDisposableStack();
afterEach(async () => {
  await stack.disposeAsync();
  stack = new AsyncDisposableStack();
  for (const node of service.nodes) if (node.pid === undefined) await node.start();
});

/** Programs that use the same lock service, over clients of their own. */
function programs(open: Open, ports: readonly number[]): () => Promise<Redlock> {
  const keyPrefix = `{${randomUUID()}}:`;
  return async () => {
    const clients = await Promise.all(ports.map((port) => open(port)));
    for (const client of clients) stack.defer(() => client.close());
    return lockOver(
      clients.map(({ client }) => client),
      keyPrefix,
    );
  };
}

function lockOver(clients: readonly RedisClient[], keyPrefix = `{${randomUUID()}}:`): Redlock {
  const nodes = clients.map((client, at) => ({ name: `n${at}`, client }));
  return stack.use(new Redlock({ nodes, keyPrefix, maxTtlMs: TTL_MS }));
}

const ports = (): number[] => service.nodes.map(({ port }) => port);

async function tokenOf(lock: Redlock, waitMs = 5_000): Promise<bigint> {
  const lease = await lock.acquire('ü €😀', { ttlMs: TTL_MS, waitMs });
  await lease.release();
  return lease.token;
}

/** Connections that listen, over all nodes. */
async function listeners(): Promise<string[]> {
  const lists = await Promise.all(
    admins.map(async (admin) => String(await admin.call('CLIENT', 'LIST', 'TYPE', 'pubsub'))),
  );
  return lists.flatMap((list, at) =>
    [...list.matchAll(/^id=(\d+)/gm)].map(([, id]) => `${at}-${id}`),
  );
}

describe.each(CLIENTS)('%s', (_, open) => {
  test('a dead node is outvoted, two are reported, and restarted ones vote again', async () => {
    const lock = await programs(open, ports())();
    const before = await tokenOf(lock);
    await service.nodes[0]?.kill();
    expect(await tokenOf(lock)).toBeGreaterThan(before);
    await service.nodes[1]?.kill();
    const startedMs = performance.now();
    const refused = await lock.acquire('x', { ttlMs: TTL_MS }).catch((error: unknown) => error);
    expect(performance.now() - startedMs).toBeLessThan(3_000);
    expect(refused).toBeInstanceOf(NoQuorumError);
    expect(refused).toMatchObject({ nodes: [{ answer: 'error' }, { answer: 'error' }, {}] });
    for (const node of service.nodes.slice(0, 2)) await node.start();
    expect(await tokenOf(lock, 20_000)).toBeGreaterThan(before);
  });

  test('scripts that a node has forgotten are sent again', async () => {
    const lock = await programs(open, ports())();
    const lease = await lock.acquire('x', { ttlMs: TTL_MS });
    const flush = () => Promise.all(admins.map((admin) => admin.script('FLUSH')));
    await flush();
    await lease.extend(TTL_MS);
    await flush();
    expect(await lease.release()).toBe('released');
    await flush();
    expect(await tokenOf(lock)).toBe(lease.token + 1n);
  });

  test('a waiter whose subscriptions are cut listens again, and is served', async () => {
    const start = programs(open, ports());
    const [holder, waiter] = [await start(), await start()];
    let lease = await holder.acquire('x', { ttlMs: TTL_MS });
    const waiting = holder.using('y', { ttlMs: TTL_MS }, async () => {
      const served = waiter.acquire('y', { ttlMs: TTL_MS, waitMs: 20_000 });
      await until(async () => (await listeners()).length === 3);
      const old = await listeners();
      for (const admin of admins) await admin.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
      await until(async () => {
        const now = await listeners();
        return now.length === 3 && now.every((id) => !old.includes(id));
      });
      return { served };
    });
    const { served } = await waiting;
    await (await served).release();
    await lease.release().catch(() => undefined);
    lease = await waiter.acquire('x', { ttlMs: TTL_MS, waitMs: 5_000 });
    await lease.release();
    await waiter.close();
    await until(async () => (await listeners()).length === 0);
  });

  test('lost replies give no lease, and leave none behind', async () => {
    const doors = await Promise.all(service.nodes.map((node) => TcpProxy.start(node)));
    for (const door of doors) stack.use(door);
    const start = programs(
      open,
      doors.map(({ port }) => port),
    );
    const lock = await start();
    await tokenOf(lock);
    for (const door of doors.slice(0, 2)) door.swallow('toClient');
    await expect(lock.acquire('x', { ttlMs: TTL_MS })).rejects.toThrow(NoQuorumError);
    for (const door of doors) {
      door.heal();
      door.cut();
    }
    await (await lock.acquire('x', { ttlMs: TTL_MS, waitMs: 10_000 })).release();
  });

  test('close leaves the clients to their owner', async () => {
    const opened = await Promise.all(ports().map((port) => open(port)));
    for (const client of opened) stack.defer(() => client.close());
    const clients = opened.map(({ client }) => client);
    const keyPrefix = `{${randomUUID()}}:`;
    const first = lockOver(clients, keyPrefix);
    const token = await tokenOf(first);
    await first.close();
    expect(await tokenOf(lockOver(clients, keyPrefix))).toBe(token + 1n);
  });
});
