import { type RedisClient, Redlock } from '@fenced/lock';
import { type LocalRedisNode, type LocalRedisService, startLocalRedis } from '@fenced/testbed';
import { GlideClusterClient, Logger } from '@valkey/valkey-glide';
import { Cluster } from 'ioredis';
import { Cluster as Cluster5 } from 'ioredis-5';
import { Cluster as ValkeyCluster } from 'iovalkey';
import { createCluster } from 'redis';
import { createCluster as createCluster5 } from 'redis-5';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { PreviousVersion } from './harness/previous-version.js';
import { CLUSTER_ARGS, formCluster, moveSlot, ownerOf } from './harness/redis-cluster.js';
import { Clients, until } from './harness/redlock-nodes.js';

// GLIDE prints every error reply, NOSCRIPT among them.
Logger.setLoggerConfig('off');

const host = '127.0.0.1';
/** So long that a message wakes a waiter, and not its own timer. */
const TTL_MS = 6_000;

let service: LocalRedisService;
let masters: readonly LocalRedisNode[];
let clients: Clients;
let owner: LocalRedisNode;
let stack: AsyncDisposableStack;
beforeAll(async () => {
  service = await startLocalRedis(2, { args: [...CLUSTER_ARGS, '--cluster-announce-ip', host] });
  masters = service.nodes;
  using forming = new Clients();
  await formCluster(forming, masters);
});
afterAll(async () => {
  await service.stop();
});
beforeEach(async () => {
  stack = new AsyncDisposableStack();
  clients = stack.use(new Clients());
  owner = await ownerOf(clients, masters, clients.keyPrefix);
});
afterEach(async () => {
  await stack.disposeAsync();
});

type Open = (port: number) => Promise<RedisClient>;

function ioredis(Client: typeof Cluster | typeof Cluster5 | typeof ValkeyCluster): Open {
  return async (port) => {
    const cluster = new Client([{ host, port }]);
    cluster.on('error', () => undefined);
    stack.defer(() => cluster.disconnect());
    return cluster;
  };
}

async function nodeRedis(
  cluster: ReturnType<typeof createCluster> | ReturnType<typeof createCluster5>,
): Promise<RedisClient> {
  cluster.on('error', () => undefined);
  stack.defer(() => cluster.destroy());
  await cluster.connect();
  return cluster;
}

const glide: Open = async (port) => {
  const cluster = await GlideClusterClient.createClient({ addresses: [{ host, port }] });
  stack.defer(() => cluster.close());
  return cluster;
};

const options = (port: number) => ({ rootNodes: [{ socket: { host, port } }] });

const CLUSTERS: [name: string, open: Open][] = [
  ['ioredis 6', ioredis(Cluster)],
  ['ioredis 5', ioredis(Cluster5)],
  ['iovalkey', ioredis(ValkeyCluster)],
  ['node-redis 6', (port) => nodeRedis(createCluster(options(port)))],
  ['node-redis 5', (port) => nodeRedis(createCluster5(options(port)))],
  ['Valkey GLIDE', glide],
];

function lockOver(client: RedisClient, maxTtlMs = TTL_MS, library = { Redlock }): Redlock {
  const { keyPrefix } = clients;
  const nodes = [{ name: 'cluster', client }];
  return stack.use(new library.Redlock({ nodes, keyPrefix, maxTtlMs }));
}

/** The number of messages of unsharded channels that the servers have sent to each other. */
async function broadcasts(): Promise<number> {
  let count = 0;
  for (const { port } of masters) {
    const info = String(await clients.connect(port).cluster('INFO'));
    count += Number(/cluster_stats_messages_publish_sent:(\d+)/.exec(info)?.[1] ?? 0);
  }
  return count;
}

/** The channels of the lock service that somebody listens to on this server. */
async function channels(kind: 'CHANNELS' | 'SHARDCHANNELS', { port }: LocalRedisNode) {
  const admin = clients.connect(port);
  const names = await admin.call('PUBSUB', kind, `${clients.keyPrefix}notify:*`);
  return (names as string[]).length;
}

const shardedOn = (server: LocalRedisNode): Promise<number> => channels('SHARDCHANNELS', server);

async function plain(): Promise<number> {
  let count = 0;
  for (const server of masters) count += await channels('CHANNELS', server);
  return count;
}

/** Returns the milliseconds from a release until the waiter has the lock. */
async function handOver(
  holder: Redlock,
  waiter: Redlock,
  { resource = 'x', ttlMs = TTL_MS, beforeRelease = async (): Promise<unknown> => undefined } = {},
): Promise<number> {
  const lease = await holder.acquire(resource, { ttlMs, waitMs: 20_000 });
  const waiting = waiter.acquire(resource, { ttlMs, waitMs: 20_000 });
  await until(async () => (await plain()) > 0);
  await beforeRelease();
  await lease.release();
  const releasedMs = performance.now();
  await (await waiting).release();
  return performance.now() - releasedMs;
}

const ROUNDS = 8;

/** Hands the lock over many times, fast. Without wake-ups, each would take 300 ms on average. */
async function handOverAtOnce(...[holder, waiter, options]: Parameters<typeof handOver>) {
  let tookMs = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    tookMs += await handOver(holder, waiter, options);
  }
  expect(tookMs).toBeLessThan(ROUNDS * 200);
}

test.each(CLUSTERS)('a wake-up reaches a waiter of %s, and no other server', async (_, open) => {
  const [holder, waiter] = [lockOver(await open(owner.port)), lockOver(await open(owner.port))];
  const before = await broadcasts();
  const beforeRelease = () => until(async () => (await shardedOn(owner)) === 1);
  await handOverAtOnce(holder, waiter, { beforeRelease });
  expect(await broadcasts()).toBe(before);
});

test('a wake-up goes to all servers if the sharded subscription is lost', async () => {
  const open = ioredis(Cluster);
  const [holder, waiter] = [lockOver(await open(owner.port)), lockOver(await open(owner.port))];
  const before = await broadcasts();
  const admin = clients.connect(owner.port);
  const beforeRelease = async (): Promise<void> => {
    await until(async () => (await shardedOn(owner)) === 1);
    const [, id = ''] = /^id=(\d+).* ssub=1/m.exec(String(await admin.client('LIST'))) ?? [];
    await admin.client('KILL', 'ID', id);
  };
  await handOver(holder, waiter, { beforeRelease });
  expect(await broadcasts()).toBeGreaterThan(before);
});

test('a wake-up goes to all servers if the user may not use sharded channels', async () => {
  const rules = 'on >secret ~* &* +@all -spublish -ssubscribe'.split(' ');
  for (const { port } of masters) await clients.connect(port).acl('SETUSER', 'plain', ...rules);
  const open = (): Redlock => {
    const redisOptions = { username: 'plain', password: 'secret' };
    const cluster = new Cluster([{ host, port: owner.port }], { redisOptions });
    stack.defer(() => cluster.disconnect());
    return lockOver(cluster);
  };
  const before = await broadcasts();
  await handOverAtOnce(open(), open());
  expect(await broadcasts()).toBeGreaterThanOrEqual(before + ROUNDS);
});

test('waiters of the previous version and the present one hand the lock to each other', async () => {
  await using previous = await PreviousVersion.unpack();
  const open = async (library?: typeof previous.library): Promise<Redlock> =>
    lockOver(await ioredis(Cluster)(owner.port), TTL_MS, library);
  const [present, old] = [await open(), await open(previous.library)];
  await handOverAtOnce(present, old);
  await handOverAtOnce(old, present);

  const lease = await present.acquire('x', { ttlMs: TTL_MS });
  const [admin, queue] = [clients.connect(owner.port), `${clients.keyPrefix}queue:x`];
  const tokens = [lease.token];
  const waiting: Promise<void>[] = [];
  for (let at = 0; at < ROUNDS; at += 1) {
    const lock = at % 2 === 0 ? old : present;
    const take = async (): Promise<void> => {
      const next = await lock.acquire('x', { ttlMs: TTL_MS, waitMs: 20_000 });
      tokens.push(next.token);
      await next.release();
    };
    waiting.push(take());
    await until(async () => (await admin.zcard(queue)) === at + 1);
  }
  await until(async () => (await plain()) === 2);
  await lease.release();
  const releasedMs = performance.now();
  await Promise.all(waiting);
  expect(performance.now() - releasedMs).toBeLessThan(ROUNDS * 200);
  expect(tokens).toEqual([...new Set(tokens)].toSorted((a, b) => Number(a - b)));
  expect(tokens).toHaveLength(ROUNDS + 1);
});

test('after the slot of a channel has moved, waiters listen on the new server of the slot', async () => {
  const ttlMs = 3_000;
  const [target] = masters.filter((master) => master !== owner) as [LocalRedisNode];
  const holder = lockOver(await ioredis(Cluster)(owner.port), ttlMs);
  const waiters = await Promise.all(
    CLUSTERS.map(async ([resource, open]) => ({
      resource,
      waiter: lockOver(await open(owner.port), ttlMs),
    })),
  );
  for (const { resource } of waiters) {
    await holder.acquire(resource, { ttlMs, waitMs: 20_000 });
  }
  const waiting = waiters.map(async ({ resource, waiter }) => {
    const lease = await waiter.acquire(resource, { ttlMs, waitMs: 20_000 });
    await lease.release();
  });
  await until(async () => (await shardedOn(owner)) === CLUSTERS.length);
  await moveSlot(clients, clients.keyPrefix, owner, target);
  await until(async () => (await shardedOn(target)) === CLUSTERS.length);
  // The new server votes when the longest lease is over. Then the waiters are served.
  await Promise.all(waiting);
  const before = await broadcasts();
  for (const { resource, waiter } of waiters) await handOver(holder, waiter, { resource, ttlMs });
  expect(await broadcasts()).toBe(before);
  await moveSlot(clients, clients.keyPrefix, target, owner);
});
