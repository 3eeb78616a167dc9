import { randomUUID } from 'node:crypto';
import { NoQuorumError, type RedisClient, Redlock } from '@fenced/lock';
import { type LocalRedisService, startLocalRedis, TcpProxy } from '@fenced/testbed';
import { Decoder, GlideClient, GlideClusterClient } from '@valkey/valkey-glide';
import { Redis } from 'ioredis';
import { Cluster as Cluster5 } from 'ioredis-5';
import { createClient, createClientPool, createCluster, RESP_TYPES } from 'redis';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { CLIENTS, type Open } from './harness/redis-clients.js';
import { until } from './harness/redlock-nodes.js';

/** The longest lease, and so the recovery wait of a node that lost its memory. */
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

/**
 * Returns a function that starts one more program of the same lock service, with its own clients.
 */
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

/** Connections that are subscribed, over all nodes. */
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

const host = '127.0.0.1';
const portOf = (at = 0): number => service.nodes[at]?.port ?? 0;

async function nodeRedis(options: Parameters<typeof createClient>[0] = {}) {
  const client = createClient({ socket: { host, port: portOf() }, ...options });
  client.on('error', () => undefined);
  stack.defer(() => client.destroy());
  await client.connect();
  return client;
}

describe('the owner of a client may', () => {
  test('use three kinds of clients in one lock service', async () => {
    const opened = [CLIENTS[0], CLIENTS[3], CLIENTS[5]];
    const clients = await Promise.all(
      opened.map(async (kind, at) => {
        const client = await kind?.[1](portOf(at));
        if (!client) throw new Error('no such client');
        stack.defer(() => client.close());
        return client.client;
      }),
    );
    const lock = lockOver(clients);
    const before = await tokenOf(lock);
    expect(await tokenOf(lock)).toBe(before + 1n);
  });

  test('give ioredis and node-redis the same key prefix: both see one lock', async () => {
    const old = new Redis(portOf(), { keyPrefix: 'app:' });
    stack.defer(() => old.disconnect());
    const keyPrefix = `{${randomUUID()}}:`;
    const one = lockOver([old], keyPrefix);
    const two = lockOver([await nodeRedis({ keyPrefix: 'app:' })], keyPrefix);
    const lease = await one.acquire('x', { ttlMs: TTL_MS });
    const waiting = two.acquire('x', { ttlMs: TTL_MS, waitMs: 5_000 });
    await until(async () => (await listeners()).length === 1);
    await lease.release();
    expect((await waiting).token).toBe(lease.token + 1n);
    expect(await admins[0]?.keys(`${keyPrefix}*`)).toEqual([]);
  });

  test.each<[string, () => Promise<RedisClient>]>([
    ['RESP2 in node-redis', () => nodeRedis({ RESP: 2 })],
    [
      'buffers in place of strings in node-redis',
      () => nodeRedis({ commandOptions: { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } } }),
    ],
    [
      'no queue for a node-redis client that is offline',
      () => nodeRedis({ disableOfflineQueue: true }),
    ],
    [
      'a pool of node-redis, which cannot listen',
      async () => {
        const pool = createClientPool({ socket: { host, port: portOf() } });
        stack.defer(() => pool.destroy());
        await pool.connect();
        return pool;
      },
    ],
    [
      'RESP3 in ioredis',
      async () => {
        const client = new Redis(portOf(), { protocol: 3 });
        stack.defer(() => client.disconnect());
        return client;
      },
    ],
    [
      'bytes in GLIDE, and connecting later',
      async () => {
        const addresses = [{ host, port: portOf() }];
        const options = { addresses, defaultDecoder: Decoder.Bytes, lazyConnect: true };
        const client = await GlideClient.createClient(options);
        stack.defer(() => client.close());
        return client;
      },
    ],
  ])('choose %s', async (_, open) => {
    const keyPrefix = `{${randomUUID()}}:`;
    const lock = lockOver([await open()], keyPrefix);
    await tokenOf(lock);
    const other = lockOver([await nodeRedis()], keyPrefix);
    const lease = await other.acquire('x', { ttlMs: TTL_MS });
    const waiting = lock.acquire('x', { ttlMs: TTL_MS, waitMs: 5_000 });
    await until(async () => (await admins[0]?.exists(`${keyPrefix}queue:x`)) === 1);
    await lease.release();
    expect((await waiting).token).toBeGreaterThan(lease.token);
  });
});

test('a node-redis client that is not connected is an error at once, which says so', async () => {
  const client = createClient({ socket: { host, port: portOf() } });
  const lock = new Redlock({ nodes: [client] });
  const startedMs = performance.now();
  await expect(lock.acquire('x', { ttlMs: TTL_MS })).rejects.toThrow(
    /the node-redis client is not open: await its connect\(\) first/,
  );
  expect(performance.now() - startedMs).toBeLessThan(1_000);
});

test('a node-redis client that has given up names the reason, without a listener of its owner', async () => {
  const socket = { host, port: portOf(), reconnectStrategy: false as const };
  const client = createClient({ socket });
  await client.connect();
  const lock = stack.use(new Redlock({ nodes: [client] }));
  await service.nodes[0]?.kill();
  await until(() => !client.isOpen);
  const refused = lock.acquire('x', { ttlMs: TTL_MS });
  await expect(refused).rejects.toThrow(/not open: it has given up: Socket closed unexpectedly/);
});

test('a closed GLIDE client is an error at once', async () => {
  const client = await GlideClient.createClient({ addresses: [{ host, port: portOf() }] });
  client.close();
  await expect(lockOver([client]).acquire('x', { ttlMs: TTL_MS })).rejects.toThrow(
    /the client is closed/,
  );
});

test.each<[string, (port: number) => Promise<RedisClient>]>([
  [
    'ioredis 5',
    async (port) => {
      const cluster = new Cluster5([{ host, port }]);
      stack.defer(() => cluster.disconnect());
      return cluster;
    },
  ],
  [
    'node-redis 6',
    async (port) => {
      const cluster = createCluster({ rootNodes: [{ socket: { host, port } }] });
      stack.defer(() => cluster.destroy());
      await cluster.connect();
      return cluster;
    },
  ],
  [
    'Valkey GLIDE',
    async (port) => {
      const cluster = await GlideClusterClient.createClient({ addresses: [{ host, port }] });
      stack.defer(() => cluster.close());
      return cluster;
    },
  ],
])('a Cluster of %s is one node, on which waiters are called', async (_, open) => {
  const args = ['--cluster-enabled', 'yes', '--cluster-announce-ip', host];
  await using shard = await startLocalRedis(1, { args });
  const { port } = shard.nodes[0] ?? { port: 0 };
  const admin = new Redis(port);
  stack.defer(() => admin.disconnect());
  await admin.call('CLUSTER', 'ADDSLOTSRANGE', 0, 16_383);
  await until(async () => String(await admin.cluster('INFO')).includes('cluster_state:ok'));
  const keyPrefix = `{${randomUUID()}}:`;
  const [one, two] = [
    lockOver([await open(port)], keyPrefix),
    lockOver([await open(port)], keyPrefix),
  ];
  const lease = await one.acquire(['x', 'y'], { ttlMs: TTL_MS, waitMs: 5_000 });
  const waiting = two.acquire('x', { ttlMs: TTL_MS, waitMs: 5_000 });
  const listening = async () =>
    String(await admin.call('CLIENT', 'LIST', 'TYPE', 'pubsub')).includes('id=');
  await until(listening);
  await lease.release();
  await (await waiting).release();
  await Promise.all([one.close(), two.close()]);
  await stack.disposeAsync();
  stack = new AsyncDisposableStack();
});
