import { readdir, readFile } from 'node:fs/promises';
import { type NodeConfig, Redlock } from '@fenced/lock';
import { type LocalRedisNode, startLocalRedis, startSentinel } from '@fenced/testbed';
import { Cluster, Redis } from 'ioredis';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { majorityOf } from '../../packages/lock/src/core/quorum.js';
import { inScript } from '../../packages/lock/src/redis/batch-encoding.js';
import { Command } from '../../packages/lock/src/redis/command.js';
import { nodeKeys } from '../../packages/lock/src/redis/node-keys.js';
import { scriptFor } from '../../packages/lock/src/redis/scripts.js';
import { LockTable } from './harness/lock-table.js';
import { CLUSTER_ARGS, formCluster, ownerOf } from './harness/redis-cluster.js';
import { Clients, until } from './harness/redlock-nodes.js';

let clients: Clients;
beforeEach(() => {
  clients = new Clients();
});
afterEach(() => {
  clients[Symbol.dispose]();
});

async function tokenOf(lock: Redlock, resource: string | readonly string[]): Promise<bigint> {
  const lease = await lock.acquire(resource, { ttlMs: 300, waitMs: 20_000 });
  await lease.release();
  return lease.token;
}

describe.each([1, 2, 4])('%i nodes', (count) => {
  test.each(['kept', 'none'] as const)(
    'give tokens that grow, also after one of them was restarted with its data %s',
    async (data) => {
      await using service = await startLocalRedis(count, { persistence: 'aof' });
      const [first] = service.nodes;
      const lock = clients.lock(service.nodes);
      const before = [await tokenOf(lock, 'x'), await tokenOf(lock, ['x', 'y'])];
      await first?.kill();
      await first?.start(data);
      const after = [await tokenOf(lock, 'x'), await tokenOf(lock, ['x', 'y'])];
      // Services of one or two nodes need every vote, so the nodes vote already. Of four nodes, one
      // may be absent for a while.
      while (!(await votesEverywhere(service.nodes))) await tokenOf(lock, 'z');
      const all = [...before, ...after, await tokenOf(lock, 'x')];
      expect(all).toEqual(all.toSorted((a, b) => Number(a - b)));
      expect(new Set(all).size).toBe(all.length);
    },
  );

  test('give nothing if half of them, or the only one, does not answer', async () => {
    await using service = await startLocalRedis(count);
    const lock = clients.lock(service.nodes);
    await tokenOf(lock, 'x');
    await Promise.all(service.nodes.slice(0, Math.ceil(count / 2)).map((node) => node.pause()));
    expect(await lock.tryAcquire('x', { ttlMs: 300 })).toMatchObject({
      ok: false,
      reason: 'no-quorum',
    });
  });
});

/** Starts two plain servers, and a lock over them and the given third node. */
async function withTwoOthers(
  third: NodeConfig,
): Promise<
  AsyncDisposable & { readonly lock: Redlock; readonly others: readonly LocalRedisNode[] }
> {
  const service = await startLocalRedis(2);
  const { keyPrefix } = clients;
  const others = service.nodes.map(({ name, port }) => ({ name, client: clients.connect(port) }));
  const lock = new Redlock({ nodes: [...others, third], keyPrefix });
  const stop = async (): Promise<void> => {
    await lock.close();
    await service.stop();
  };
  return { lock, others: service.nodes, [Symbol.asyncDispose]: stop };
}

test('a master that Sentinel replaces votes again after the failover, above every token', async () => {
  await using servers = await startLocalRedis(2, { args: ['--repl-diskless-sync-delay', '0'] });
  await using watcher = await startSentinel();
  const [master, replica] = servers.nodes as unknown as readonly [LocalRedisNode, LocalRedisNode];
  const [sentinel] = watcher.nodes as unknown as readonly [LocalRedisNode];
  await clients.connect(replica.port).replicaof(master.host, master.port);
  await untilInfo(replica, 'master_link_status:up');
  const admin = clients.connect(sentinel.port);
  await admin.call('SENTINEL', 'MONITOR', 'third', master.host, master.port, 1);
  await admin.call('SENTINEL', 'SET', 'third', 'down-after-milliseconds', 300);
  await untilKnown(admin, replica.port);

  const client = new Redis({
    sentinels: [{ host: sentinel.host, port: sentinel.port }],
    name: 'third',
    sentinelRetryStrategy: () => 50,
    retryStrategy: () => 20,
  });
  client.on('error', () => {});
  await using world = await withTwoOthers({ name: 'third', client });
  const { lock, others } = world;
  const before = await tokenOf(lock, 'x');
  await clients.untilVoting(master);
  await master.kill();
  await untilInfo(replica, 'role:master');
  while (!(await votesEverywhere([replica]))) await tokenOf(lock, 'x');
  await others[0]?.pause();
  expect(await tokenOf(lock, 'x')).toBeGreaterThan(before);
  client.disconnect();
});

test('a Redis Cluster is one node: all keys lie in one slot, and a failover of its shard is noticed', async () => {
  await using service = await startLocalRedis(4, { args: CLUSTER_ARGS });
  const [one, two, three, replica] = service.nodes as unknown as LocalRedisNode[] &
    readonly [LocalRedisNode, LocalRedisNode, LocalRedisNode, LocalRedisNode];
  const masters = [one, two, three];
  await formCluster(clients, masters);
  const owner = await ownerOf(clients, masters, clients.keyPrefix);
  await joinAsReplica(replica, owner, masters);

  const client = new Cluster([{ host: one.host, port: one.port }]);
  client.on('error', () => {});
  await using world = await withTwoOthers({ name: 'cluster', client });
  const { lock, others } = world;
  const before = [await tokenOf(lock, 'x'), await tokenOf(lock, ['x', 'y', 'ü €'])];
  await clients.untilVoting(owner);
  const keys = await Promise.all(masters.map(({ port }) => clients.connect(port).dbsize()));
  expect(keys.filter((count) => count > 0)).toHaveLength(1);

  await clients.connect(owner.port).flushall();
  while (!(await votesEverywhere([owner]))) await tokenOf(lock, 'y');
  await clients.connect(replica.port).cluster('FAILOVER');
  await untilInfo(replica, 'role:master');
  while (!(await votesEverywhere([replica]))) await tokenOf(lock, 'z');
  await others[0]?.pause();
  const all = [...before, await tokenOf(lock, ['x', 'y'])];
  expect(all).toEqual(all.toSorted((a, b) => Number(a - b)));
  client.disconnect();
});

test('a replica has no vote, though it has the data of its master', async () => {
  await using service = await startLocalRedis(2);
  const [master, replica] = service.nodes as unknown as readonly LocalRedisNode[];
  if (!master || !replica) throw new Error('two servers are needed');
  const admin = clients.connect(replica.port);
  await admin.replicaof('127.0.0.1', master.port);
  while (!(await admin.info('replication')).includes('master_link_status:up')) await admin.ping();
  const { keyPrefix } = clients;
  const open = ({ port }: LocalRedisNode) =>
    new Redlock({ nodes: [{ name: 'a', client: clients.connect(port) }], keyPrefix });
  await using lease = await open(master).acquire('x', { ttlMs: 20_000, waitMs: 10_000 });
  const lockTable = new LockTable(admin, keyPrefix);
  while ((await lockTable.ownerOf('x')) !== lease.owner) await admin.ping();
  // A replica can only refuse writes. This extension is shorter than the remaining time, so a node
  // would write nothing.
  const held = { resource: 'x', owner: lease.owner, token: lease.token };
  await expect(open(replica).extend(held, 10_000)).rejects.toThrow(
    /a: not-master, its server is a slave/,
  );
});

/** The commands of Redis in the scripts. */
async function used(): Promise<Set<string>> {
  const folder = new URL('../../packages/lock/src/redis/scripts/', import.meta.url);
  const files = await readdir(folder);
  const texts = await Promise.all(files.map((file) => readFile(new URL(file, folder), 'utf8')));
  const calls = texts.join('\n').matchAll(/redis\.p?call\('(\w+)'/g);
  return new Set([...calls].map(([, name = '']) => name.toLowerCase()));
}

/** The ACL rules that the documentation gives for a user of the locks. */
async function documentedRules(): Promise<string> {
  const page = new URL('../../docs/redis-servers.md', import.meta.url);
  const [, rules = ''] = /ACL SETUSER locks (.+)/.exec(await readFile(page, 'utf8')) ?? [];
  return rules;
}

/** Connects as a user with these rules, for the keys of the test. */
async function clientOfUser({ port }: LocalRedisNode, rules: string): Promise<Redis> {
  const own = rules.replaceAll('{fenced}:', clients.keyPrefix).split(' ');
  await clients.connect(port).acl('SETUSER', 'locks', ...own);
  const password = rules.match(/>(\S+)/)?.[1] ?? '';
  return clients.connect(port, { username: 'locks', password });
}

test('a user needs no more than the commands and keys that the documentation lists', async () => {
  const rules = await documentedRules();
  // The list includes the command for several calls in one script. A user without it sends the
  // calls one after the other.
  const listed = [...rules.matchAll(/\+(\w+)/g)].map(([, name]) => name);
  const inCluster = ['spublish', 'ssubscribe'];
  expect([...listed, ...inCluster].toSorted()).toEqual(
    ['eval', 'evalsha', 'subscribe', 'ssubscribe', ...(await used())].toSorted(),
  );
  await using service = await startLocalRedis(1);
  const [server] = service.nodes as unknown as readonly [LocalRedisNode];
  const client = await clientOfUser(server, rules);
  await using lock = new Redlock({ nodes: [{ name: 'a', client }], keyPrefix: clients.keyPrefix });
  await using lease = await lock.acquire('x', { ttlMs: 1_000 });
  await lease.extend(2_000);
  const waiting = lock.acquire('x', { ttlMs: 2_000, waitMs: 20_000 });
  const admin = clients.connect(server.port);
  const listens = async (): Promise<boolean> =>
    String(await admin.call('CLIENT', 'LIST', 'TYPE', 'pubsub')).includes('user=locks');
  await until(listens);
  const queue = `${clients.keyPrefix}queue:x`;
  await until(async () => (await admin.zcard(queue)) > 0);
  await lease.release();
  await (await waiting).release();
  // A loss of memory, a clock that has gone back and an old lock table make scripts use rare
  // commands.
  await admin.hdel(`${clients.keyPrefix}node`, 'history');
  await admin.hset(`${clients.keyPrefix}node`, 'opened', '1');
  expect(await tokenOf(lock, 'y')).toBeGreaterThan(lease.token);
  expect(await admin.exists(`${clients.keyPrefix}node-before`)).toBe(1);
  await expect(client.flushall()).rejects.toThrow(/NOPERM/);
});

test.each(['rename', 'unlink'])(
  'a node whose user may not %s loses no lease and no token when its lock table is full',
  async (command) => {
    await using service = await startLocalRedis(1);
    const [server] = service.nodes as unknown as readonly [LocalRedisNode];
    const rules = await documentedRules();
    const client = await clientOfUser(server, rules.replace(` +${command}`, ''));
    const { keyPrefix } = clients;
    await using lock = new Redlock({ nodes: [{ name: 'a', client }], keyPrefix });
    const before = await tokenOf(lock, 'x');
    const admin = clients.connect(server.port);
    // The second rotation replaces an earlier table, which the first one has made.
    for (let turns = 0; turns < 2; turns += 1) {
      const held = await lock.acquire('held', { ttlMs: 60_000 });
      await admin.hset(`${keyPrefix}node`, 'opened', '1', 'rotated', '1');
      expect(await tokenOf(lock, 'y')).toBeGreaterThan(before);
      expect(Number(await admin.hget(`${keyPrefix}node`, 'opened'))).toBeGreaterThan(1);
      expect(await lock.tryAcquire('held', { ttlMs: 1_000 })).toMatchObject({ reason: 'held' });
      await held.extend(60_000);
      expect(await held.release()).toBe('released');
    }
    expect(await tokenOf(lock, 'x')).toBeGreaterThan(before);
  },
);

test('with full memory, leases are extended and released, and no others are granted', async () => {
  await using service = await startLocalRedis(1);
  const [server] = service.nodes as unknown as readonly [LocalRedisNode];
  await using lock = clients.lock(service.nodes);
  const names = ['alone', 'u', 'v', 'w'];
  const leases = await Promise.all(names.map((name) => lock.acquire(name, { ttlMs: 10_000 })));
  const admin = clients.connect(server.port);
  await admin.config('SET', 'maxmemory', '1');
  await Promise.all(leases.map((lease) => lease.extend(20_000)));
  const [alone, ...others] = leases;
  expect(await alone?.release()).toBe('released');
  expect(await Promise.all(others.map((lease) => lease.release()))).toEqual(
    others.map(() => 'released'),
  );
  await expect(lock.acquire('x', { ttlMs: 1_000 })).rejects.toThrow(/OOM/);
  await admin.config('SET', 'maxmemory', '0');
  expect((await lock.acquire('alone', { ttlMs: 1_000 })).token).toBeGreaterThan(alone?.token ?? 0n);
});

test('with full memory, the head of the queue is refused, and keeps its position', async () => {
  await using service = await startLocalRedis(1);
  const [server] = service.nodes as unknown as readonly [LocalRedisNode];
  await using lock = clients.lock(service.nodes);
  await tokenOf(lock, 'x');
  const admin = clients.connect(server.port);
  const { keyPrefix } = clients;
  const members = (await admin.hget(`${keyPrefix}node`, 'members')) ?? '';
  const keys = [`${keyPrefix}queue:x`, `${keyPrefix}waiter:o`];
  const ask = (name: 'enqueue' | 'acquire', values: (string | number)[]): Promise<unknown> => {
    const calls = [{ command: new Command(name, keys, values) }];
    const [keyCount, ...rest] = inScript(nodeKeys(keyPrefix), members, calls);
    return admin.eval(scriptFor(calls).source, keyCount, ...rest);
  };
  const position = [1, 'channel', 20_000];
  expect(await ask('enqueue', ['o', ...position])).toMatch(/"head"/);
  await admin.config('SET', 'maxmemory', '1');
  const acquire = (): Promise<unknown> =>
    ask('acquire', ['o', 1_000, 60_000, ...position, 0, `${keyPrefix}waiter:`, 50]);
  await expect(acquire()).rejects.toThrow(/OOM/);
  expect(await admin.zrange(`${keyPrefix}queue:x`, '0', '-1')).toEqual([`${keyPrefix}waiter:o`]);
  await admin.config('SET', 'maxmemory', '0');
  expect(await acquire()).toMatch(/"granted"/);
});

test('if the record of a node is lost, its earlier table brings no token back', async () => {
  await using service = await startLocalRedis(1);
  const [server] = service.nodes as unknown as readonly [LocalRedisNode];
  await using lock = clients.lock(service.nodes);
  const admin = clients.connect(server.port);
  await tokenOf(lock, ['x', 'y']);
  await admin.hset(`${clients.keyPrefix}node`, 'opened', '1');
  const before = await tokenOf(lock, ['x', 'y']);
  expect(await admin.hkeys(`${clients.keyPrefix}node-before`)).toContain(
    `${clients.keyPrefix}queue:x`,
  );
  // The lost record is that of a single resource, of one of a set, and of one of several in a
  // script.
  await admin.del(`${clients.keyPrefix}node`);
  expect(await tokenOf(lock, 'x')).toBeGreaterThan(before);
  await admin.del(`${clients.keyPrefix}node`);
  expect(await tokenOf(lock, ['x', 'y'])).toBeGreaterThan(before + 1n);
  await admin.del(`${clients.keyPrefix}node`);
  const both = ['x', 'y'].map((name) => tokenOf(lock, name));
  for (const token of await Promise.all(both)) expect(token).toBeGreaterThan(before + 2n);
});

test.each([1, 3])(
  'if a majority of %i nodes loses only the older lock table, no held lock is granted again',
  async (count) => {
    await using service = await startLocalRedis(count);
    await using lock = clients.lock(service.nodes);
    const held = await lock.acquire('x', { ttlMs: 2_000 });
    const admins = service.nodes.map(({ port }) => clients.connect(port));
    const old = `${clients.keyPrefix}node-before`;
    for (const admin of admins) await admin.hset(`${clients.keyPrefix}node`, 'opened', '1');
    let losing: readonly Redis[] = [];
    let before = 0n;
    await until(async () => {
      before = await tokenOf(lock, 'y');
      const have = await Promise.all(admins.map((admin) => admin.exists(old)));
      losing = admins.filter((_, at) => have[at] === 1).slice(0, majorityOf(count));
      return losing.length === majorityOf(count);
    });
    for (const admin of losing) await admin.del(old);
    // The record of y in the present table does not help: the node has no vote.
    for (const name of ['x', 'y']) {
      expect(await lock.tryAcquire(name, { ttlMs: 1_000 })).toMatchObject({ ok: false });
    }
    const voting = (await lock.status()).filter((node) => node.reachable && node.noVote === null);
    expect(voting).toHaveLength(count - majorityOf(count));
    const next = await lock.acquire('x', { ttlMs: 1_000, waitMs: 20_000 });
    expect(held.remainingMs()).toBe(0);
    expect(next.token).toBeGreaterThan(before);
  },
);

async function joinAsReplica(
  replica: LocalRedisNode,
  owner: LocalRedisNode,
  masters: readonly LocalRedisNode[],
): Promise<void> {
  await clients.connect(owner.port).cluster('MEET', replica.host, replica.port);
  const admin = clients.connect(replica.port);
  const ownerId = String(await clients.connect(owner.port).cluster('MYID'));
  await until(async () => String(await admin.cluster('NODES')).includes(ownerId));
  await admin.cluster('REPLICATE', ownerId);
  await untilInfo(replica, 'master_link_status:up');
  // The masters elect a replica only if they know it.
  const isReplica = new RegExp(`^${await admin.cluster('MYID')} .* slave ${ownerId} `, 'm');
  for (const { port } of masters) {
    const master = clients.connect(port);
    await until(async () => isReplica.test(String(await master.cluster('NODES'))));
  }
}

async function untilInfo({ port }: LocalRedisNode, text: string): Promise<void> {
  const admin = clients.connect(port);
  await until(async () => (await admin.info('replication').catch(() => '')).includes(text));
}

async function untilKnown(sentinel: Redis, replicaPort: number): Promise<void> {
  const replicas = () => sentinel.call('SENTINEL', 'REPLICAS', 'third');
  await until(async () => JSON.stringify(await replicas()).includes(`"${replicaPort}"`));
}

async function votesEverywhere(nodes: readonly LocalRedisNode[]): Promise<boolean> {
  const memories = await Promise.all(nodes.map((node) => clients.memory(node)));
  return memories.every(({ isVoting }) => isVoting);
}
