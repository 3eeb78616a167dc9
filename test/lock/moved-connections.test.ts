import { randomUUID } from 'node:crypto';
import { Redlock } from '@fenced/lock';
import { type LocalRedisNode, startLocalRedis, TcpProxy } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { CLIENTS, type Open } from './harness/redis-clients.js';
import { until } from './harness/redlock-nodes.js';

const KINDS: typeof CLIENTS = [...CLIENTS, ['ioredis 6 with commandTimeout', limited]];
/** The longest lease, and so the recovery wait of a node that was promoted. */
const TTL_MS = 1_000;
/** The lock replaces a connection within 2 s. The rest is for the recovery wait. */
const BACK_WITHIN_MS = 8_000;
/** Pauses of 100, 200, 400 and 800 ms lie between the tries. GLIDE may connect twice in each. */
const TRIES_MAX = 8;
/** Without pauses, each of them would make a connection. */
const REQUESTS = 40;

let stack: AsyncDisposableStack;
beforeEach(() => {
  stack = new AsyncDisposableStack();
});
afterEach(() => stack.disposeAsync());

async function limited(port: number): ReturnType<Open> {
  const client = new Redis(port, { commandTimeout: 300 });
  client.on('error', () => undefined);
  return { client, close: () => client.disconnect() };
}

/** A master with a replica, and one address that leads to the master. */
async function pair() {
  const args = ['--repl-diskless-sync-delay', '0'];
  const { nodes } = stack.use(await startLocalRedis(2, { args }));
  const [one, two] = nodes as unknown as readonly [LocalRedisNode, LocalRedisNode];
  const [first, second] = [admin(one), admin(two)];
  const door = stack.use(await TcpProxy.start(one));
  await second.replicaof(one.host, one.port);
  await until(async () => (await second.info('replication')).includes('master_link_status:up'));
  /** The replica becomes the master, and the master its replica. No connection ends. */
  const switchRoles = async (): Promise<void> => {
    await second.replicaof('NO', 'ONE');
    await first.replicaof(two.host, two.port);
  };
  return { one, two, first, second, door, switchRoles };
}

function admin({ port }: LocalRedisNode): Redis {
  const client = new Redis(port);
  stack.defer(() => client.disconnect());
  return client;
}

/** A lock of each kind of client, each under a key prefix of its own, over one node. */
async function locks(port: number) {
  return Promise.all(
    KINDS.map(async ([name, open]) => {
      const opened = await open(port);
      let isOpen = true;
      const close = (): void => {
        if (isOpen) opened.close();
        isOpen = false;
      };
      stack.defer(close);
      const { client } = opened;
      const nodes = [{ name: 'only', client }];
      const lock = new Redlock({ nodes, keyPrefix: `{${randomUUID()}}:`, maxTtlMs: TTL_MS });
      stack.use(lock);
      return { name, client, close, lock };
    }),
  );
}

/** The outcome of `use` for each kind of client: `back`, or the message of the error. */
async function outcomes(
  all: Awaited<ReturnType<typeof locks>>,
  use: (lock: Redlock) => Promise<unknown>,
) {
  const outcome = ({ name, lock }: (typeof all)[number]) =>
    use(lock).then(
      () => [name, 'back'],
      (error: Error) => [name, error.message],
    );
  return Object.fromEntries(await Promise.all(all.map(outcome)));
}

const everyKind = Object.fromEntries(KINDS.map(([name]) => [name, 'back']));
const acquired = async (lock: Redlock): Promise<void> => {
  const lease = await lock.acquire('x', { ttlMs: TTL_MS, waitMs: BACK_WITHIN_MS });
  await lease.release();
};

/** The connections of programs to this server, without that of the test. */
async function connectionsTo(server: Redis): Promise<number> {
  const list = String(await server.call('CLIENT', 'LIST', 'TYPE', 'normal'));
  return list.trim().split('\n').length - 1;
}

test('after a failover behind one address, every client reaches the new master', async () => {
  const { door, two, first, second, switchRoles } = await pair();
  const all = await locks(door.port);
  expect(await outcomes(all, acquired)).toEqual(everyKind);
  const owned = await connectionsTo(first);
  await switchRoles();
  // While the address leads to the demoted master, a few new connections are tried.
  const before = door.connections;
  await Promise.all(
    all.map(async ({ lock }) => {
      for (let at = 0; at < REQUESTS; at += 1) {
        expect((await lock.tryAcquire('x', { ttlMs: TTL_MS })).ok).toBe(false);
      }
    }),
  );
  expect(door.connections - before).toBeGreaterThanOrEqual(all.length);
  expect(door.connections - before).toBeLessThanOrEqual(TRIES_MAX * all.length);
  door.lead(two);
  expect(await outcomes(all, acquired)).toEqual(everyKind);
  // The owners' connections were left alone, and those of the lock end with it.
  await until(async () => (await connectionsTo(first)) === owned);
  expect(await connectionsTo(second)).toBeGreaterThan(0);
  await Promise.all(all.map(({ lock }) => lock.close()));
  await until(async () => (await connectionsTo(second)) === 0);
});

test('a node that is paused gets few new connections, and serves again when it wakes', async () => {
  const { door, one } = await pair();
  const all = await locks(door.port);
  expect(await outcomes(all, acquired)).toEqual(everyKind);
  await one.pause();
  const before = door.connections;
  const refusals = await outcomes(all, async (lock) => {
    await lock.acquire('x', { ttlMs: TTL_MS, waitMs: 1_000 });
  });
  await one.wake();
  for (const [name] of KINDS) expect(refusals[name]).toContain('too few nodes voted');
  expect(door.connections - before).toBeLessThanOrEqual(TRIES_MAX * all.length);
  expect(await outcomes(all, acquired)).toEqual(everyKind);
});

test('leases outlast connections that carry nothing any more, with every client', async () => {
  const { door, first } = await pair();
  const all = await locks(door.port);
  const isKept = async (lock: Redlock): Promise<void> => {
    const options = { ttlMs: TTL_MS, waitMs: BACK_WITHIN_MS };
    await lock.using('x', options, async (lease) => {
      await reached();
      const endMs = performance.now() + 2 * TTL_MS;
      await until(() => performance.now() > endMs || lease.signal.aborted);
    });
  };
  let arrived = 0;
  const { promise, resolve } = Promise.withResolvers<void>();
  const reached = (): Promise<void> => {
    arrived += 1;
    if (arrived === all.length) {
      door.forget();
      resolve();
    }
    return promise;
  };
  expect(await outcomes(all, isKept)).toEqual(everyKind);
  expect(await outcomes(all, acquired)).toEqual(everyKind);
  // Valkey GLIDE does not report that its owner has closed it. So there, the lock is closed first.
  for (const { name, lock, close } of all) {
    if (name === 'Valkey GLIDE') await lock.close();
    close();
  }
  await until(async () => (await connectionsTo(first)) <= all.length);
});
