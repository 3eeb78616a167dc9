import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redlock, type RedlockConfig } from '@fenced/lock';
import { type RedisService, startRedis } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { scriptFor } from '../../packages/lock/src/redis/scripts.js';
import { until } from './harness/redlock-nodes.js';

const TTL_MS = 10_000;

let service: RedisService;
let id: string;
const connections: Redis[] = [];
const locks: Redlock[] = [];
beforeAll(async () => {
  service = await startRedis(5);
});
afterAll(() => service?.stop());
beforeEach(() => {
  id = randomUUID();
});
afterEach(async () => {
  await Promise.all(service.nodes.map((node) => node.wake()));
  await Promise.all(locks.splice(0).map((lock) => lock.close()));
  for (const client of connections.splice(0)) client.disconnect();
});

interface SetPlan {
  readonly keyPrefix: string;
  readonly servers: readonly number[];
}

const first = (): SetPlan => ({ keyPrefix: `{${id}/1}:`, servers: [0, 1, 2] });
/** Two of the three servers are nodes of both sets. */
const second = (): SetPlan => ({ keyPrefix: `{${id}/2}:`, servers: [1, 2, 3] });
const five = (): SetPlan => ({ keyPrefix: `{${id}/5}:`, servers: [0, 1, 2, 3, 4] });

function connect(at: number): Redis {
  const client = new Redis(service.nodes[at]?.port ?? 0, { retryStrategy: () => 20 });
  client.on('error', () => {});
  connections.push(client);
  return client;
}

function nodesOf({ servers, keyPrefix }: SetPlan, wrap = (client: Redis): Redis => client) {
  return { keyPrefix, nodes: servers.map((at) => ({ name: `n${at}`, client: wrap(connect(at)) })) };
}

/** A client that is configured with one node set, or with a set and the next one. */
function lockOf(present: SetPlan, next?: SetPlan, config: Partial<RedlockConfig> = {}): Redlock {
  const sets = next ? { ...nodesOf(present), next: nodesOf(next) } : nodesOf(present);
  const lock = new Redlock({ ...sets, ...config });
  locks.push(lock);
  return lock;
}

async function move(lock: Redlock): Promise<void> {
  for (;;) {
    const { state, reason, retryAfterMs } = await lock.move();
    if (state === 'done') return;
    expect(state, reason).toBe('begun');
    await sleep(retryAfterMs);
  }
}

async function tokenOf(lock: Redlock, resource = 'x'): Promise<bigint> {
  const lease = await lock.acquire(resource, { ttlMs: TTL_MS, waitMs: 10_000 });
  await lease.release();
  return lease.token;
}

describe('a move to other nodes', () => {
  test('keeps a lease: the holder extends and releases it on the next nodes, and no other client gets the lock', async () => {
    const client = lockOf(first(), second());
    const lease = await client.acquire('x', { ttlMs: TTL_MS });
    const others = await client.acquire(['a', 'b'], { ttlMs: TTL_MS });
    await move(lockOf(first(), second()));
    const late = lockOf(second());
    expect(await late.tryAcquire('x', { ttlMs: TTL_MS })).toMatchObject({ reason: 'held' });
    expect(await client.tryAcquire('x', { ttlMs: TTL_MS })).toMatchObject({ reason: 'held' });
    await lease.extend(TTL_MS);
    expect(lease.remainingMs()).toBeGreaterThan(TTL_MS / 2);
    expect(
      await late.extend({ resource: ['a', 'b'], owner: others.owner, token: others.token }, TTL_MS),
    ).toBeGreaterThan(0);
    expect(await lease.release()).toBe('released');
    expect(await tokenOf(late)).toBeGreaterThan(lease.token);
    expect(await late.tryAcquire('b', { ttlMs: TTL_MS })).toMatchObject({ reason: 'held' });
    expect(await others.release()).toBe('released');
    expect(await tokenOf(late, 'b')).toBeGreaterThan(others.token);
  });

  test('to more nodes, and then to fewer, takes waiters along, while tokens grow', async () => {
    const sets = [first(), five(), { keyPrefix: `{${id}/3}:`, servers: [2, 3, 4] }];
    const tokens: bigint[] = [];
    let holders = 0;
    for (const [at, next] of sets.slice(1).entries()) {
      const present = sets[at] ?? next;
      const clients = [lockOf(present, next), lockOf(present, next), lockOf(present, next)];
      let isOver = false;
      const begun = tokens.length;
      const work = clients.map(async (lock) => {
        while (!isOver) {
          const lease = await lock.acquire('x', { ttlMs: TTL_MS, waitMs: 20_000 });
          holders += 1;
          expect(holders).toBe(1);
          tokens.push(lease.token);
          await sleep(1);
          holders -= 1;
          await lease.release();
        }
      });
      await until(() => tokens.length > begun + 20);
      await move(lockOf(present, next));
      const moved = tokens.length;
      await until(() => tokens.length > moved + 20);
      isOver = true;
      await Promise.all(work);
    }
    expect(tokens).toEqual(tokens.toSorted((a, b) => (a < b ? -1 : 1)));
    expect(new Set(tokens).size).toBe(tokens.length);
  });

  test('is finished by another process, at whatever request the first one ends', async () => {
    const states = new Set<string>();
    for (let calls = 0, isDone = false; !isDone; calls += 3) {
      id = randomUUID();
      const client = lockOf(first(), second());
      const lease = await client.acquire('x', { ttlMs: TTL_MS });
      await client.readmit();
      const dead = Promise.withResolvers<void>();
      const dying = new Redlock(mortal(calls, dead.resolve));
      const ended = await Promise.race([dying.move(), dead.promise]);
      isDone = ended?.state === 'done';
      const { state } = await client.moveStatus();
      states.add(state);
      // Before a node is sealed, the move has not begun, and the present set serves.
      if (state === 'not-begun') expect((await tokenOf(client, 'y')) > 0n).toBe(true);
      else if (state === 'begun') expect(await tokenOf(client, 'y')).toBeGreaterThan(lease.token);
      await move(lockOf(first(), second()));
      await lease.extend(TTL_MS);
      expect(await lease.release()).toBe('released');
      expect(await tokenOf(client)).toBeGreaterThan(lease.token);
    }
    expect([...states].sort()).toEqual(['begun', 'done', 'not-begun']);
  });

  test('refuses a client that knows only the old set, and says where the locks are now', async () => {
    const client = lockOf(first());
    await tokenOf(client);
    await move(lockOf(first(), second()));
    const error = await client.acquire('x', { ttlMs: TTL_MS, waitMs: 500 }).catch((one) => one);
    expect(error).toMatchObject({ code: 'config-mismatch' });
    expect(error.message).toContain('this client has [n0, n1, n2]');
    expect(error.message).toContain(`to [n1, n2, n3] with the key prefix ${second().keyPrefix}`);
    // Even an operator cannot start the old set again.
    expect(await client.readmit({ force: true })).toMatchObject({ ok: false });
    const [status] = await client.status();
    expect(status).toMatchObject({ noVote: 'sealed' });
  });

  test('is refused if the next set votes already, does not answer, or is not the one that was begun', async () => {
    await tokenOf(lockOf(first()));
    await tokenOf(lockOf(five()));
    expect(await lockOf(first(), five()).move()).toMatchObject({
      state: 'refused',
      reason: expect.stringContaining('votes already'),
    });
    await service.nodes[3]?.pause();
    const silent = await lockOf(first(), second()).move();
    expect(silent).toMatchObject({
      state: 'refused',
      reason: expect.stringContaining('n3 (no answer'),
    });
    await service.nodes[3]?.wake();
    await move(lockOf(first(), second()));
    const elsewhere = { keyPrefix: `{${id}/4}:`, servers: [2, 3, 4] };
    expect(await lockOf(first(), elsewhere).move()).toMatchObject({
      state: 'refused',
      reason: expect.stringContaining('moves to'),
    });
    expect(() => lockOf(first(), { ...second(), keyPrefix: first().keyPrefix })).toThrow(
      /needs a key prefix/,
    );
  });

  test('does not keep a lease if its late release reaches a node that is sealed already', async () => {
    const late = Promise.withResolvers<void>();
    const hold = (client: Redis): Redis => {
      if (client.options.port !== service.nodes[2]?.port) return client;
      const send = client.evalsha.bind(client);
      client.evalsha = async (...values: unknown[]): Promise<unknown> => {
        if (values[0] === RELEASE) await late.promise;
        return Reflect.apply(send, client, values);
      };
      return client;
    };
    const client = lockOf(first(), undefined, {
      ...nodesOf(first(), hold),
      next: nodesOf(second()),
    });
    await client.readmit();
    await tokenOf(lockOf(first()), 'loads the scripts');
    const lease = await client.acquire('x', { ttlMs: 60_000 });
    await lease.extend(60_000);
    expect(await lease.release()).toBe('released');
    // The release has not reached n2, and n0 is silent: the lease may be valid, so it is carried.
    await service.nodes[0]?.pause();
    await move(lockOf(first(), second()));
    const other = lockOf(second());
    expect(await other.tryAcquire('x', { ttlMs: TTL_MS })).toMatchObject({ reason: 'held' });
    late.resolve();
    expect(await tokenOf(other)).toBeGreaterThan(lease.token);
  });

  test('can follow another move: clients reach the last set, even one that was idle during all moves', async () => {
    const sets = [first(), second(), five(), { keyPrefix: `{${id}/3}:`, servers: [2, 3, 4] }];
    const chain = (): RedlockConfig => {
      const [present, ...following] = sets.map((plan) => nodesOf(plan));
      const next = following.reduceRight((after, set) => ({
        ...set,
        ...(after && { next: after }),
      }));
      return { nodes: [], ...present, next };
    };
    const [busy, idle] = [lockOf(first(), undefined, chain()), lockOf(first(), undefined, chain())];
    const lease = await idle.acquire('x', { ttlMs: 60_000 });
    let last = await tokenOf(busy, 'y');
    for (const [at, next] of sets.slice(1).entries()) {
      await move(lockOf(sets[at] ?? next, next));
      const token = await tokenOf(busy, 'y');
      expect(token).toBeGreaterThan(last);
      last = token;
    }
    await lease.extend(TTL_MS);
    expect(await lease.release()).toBe('released');
    expect(await tokenOf(idle, 'y')).toBeGreaterThan(last);
    // The first move counts as done, although the locks have moved on since.
    expect(await lockOf(first(), second()).move()).toMatchObject({ state: 'done' });
    expect(() => lockOf(first(), undefined, { ...chain(), keyPrefix: `{${id}/3}:` })).toThrow(
      /key prefix that was never used/,
    );
  });

  test('goes on if a rival move has sealed a minority of the nodes, and then the rival is refused', async () => {
    const token = await tokenOf(lockOf(first()));
    const third = await sealedByRivals();
    await move(lockOf(first(), second()));
    expect(await lockOf(first(), third).move({ force: true })).toMatchObject({
      state: 'refused',
      reason: expect.stringContaining('moves to'),
    });
    expect(await tokenOf(lockOf(first(), second()))).toBeGreaterThan(token);
  });

  test('cannot be forced while a node is sealed for a rival move, because that node may know more tokens and leases', async () => {
    await lockOf(first()).readmit();
    await sealedByRivals();
    // Without memory, n0 has no vote. So only one node has voted when it was sealed for this move.
    await connect(0).del(`${first().keyPrefix}node`);
    expect(await lockOf(first(), second()).move({ force: true })).toMatchObject({
      state: 'begun',
      reason: expect.stringContaining('too few nodes of the present set are sealed'),
    });
  });

  test('goes on if a program announces the next set between two of its steps', async () => {
    await tokenOf(lockOf(first()));
    const { keyPrefix, servers } = second();
    const announce = async (): Promise<void> => {
      await tokenOf(lockOf(first(), second()));
      for (const at of servers) {
        const client = connect(at);
        await until(async () => (await client.hexists(`${keyPrefix}node`, 'awaits')) === 1);
      }
    };
    let announced: Promise<void> | null = null;
    const wrap = (client: Redis): Redis => {
      const send = client.evalsha.bind(client);
      client.evalsha = async (...values: unknown[]): Promise<unknown> => {
        if (values.includes('prepare')) {
          announced ??= announce();
          await announced;
        }
        return Reflect.apply(send, client, values);
      };
      return client;
    };
    const mover = new Redlock({ ...nodesOf(first()), next: nodesOf(second(), wrap) });
    locks.push(mover);
    await move(mover);
    expect(announced).not.toBeNull();
  });

  test('that has not sealed a node yet keeps the next set from granting locks by itself', async () => {
    await tokenOf(lockOf(first()));
    const reached = Promise.withResolvers<void>();
    void new Redlock(mortal(Number.POSITIVE_INFINITY, reached.resolve)).move();
    await reached.promise;
    const early = await lockOf(second()).tryAcquire('x', { ttlMs: TTL_MS });
    expect(early).toMatchObject({ ok: false, hint: expect.stringContaining('wait for a move') });
  });
});

const { sha1: RELEASE } = scriptFor([{ command: { name: 'release' } }]);
const { sha1: SEAL } = scriptFor([{ command: { name: 'seal' } }]);

/**
 * Begins two moves of the first set, one to the second set and one to a third set. Each seals one
 * node, and none seals n0. Returns the third set.
 */
async function sealedByRivals(): Promise<SetPlan> {
  const third = { keyPrefix: `{${id}/4}:`, servers: [1, 2, 4] };
  const late = Promise.withResolvers<void>();
  /**
   * Loses every SEAL to n0, and delays those to the node `at`. So each move seals one node first.
   */
  const far = (at: number) => (client: Redis) => {
    const send = client.evalsha.bind(client);
    const portOf = (server: number) => service.nodes[server]?.port;
    client.evalsha = async (...values: unknown[]): Promise<unknown> => {
      if (values[0] === SEAL && client.options.port === portOf(0)) throw new Error('lost');
      if (values[0] === SEAL && client.options.port === portOf(at)) await late.promise;
      return Reflect.apply(send, client, values);
    };
    return client;
  };
  const moving = [
    lockOf(first(), second(), nodesOf(first(), far(2))).move(),
    lockOf(first(), third, nodesOf(first(), far(1))).move(),
  ];
  const admins = [connect(1), connect(2)];
  await until(async () => {
    const key = `${first().keyPrefix}node`;
    const sealed = await Promise.all(admins.map((admin) => admin.hexists(key, 'next_set')));
    return sealed.every((one) => one === 1);
  });
  late.resolve();
  expect(await Promise.all(moving)).toMatchObject([{ state: 'begun' }, { state: 'begun' }]);
  return third;
}

/**
 * The configuration of a process that ends after this number of requests; if that is infinite, at
 * the first SEAL.
 *
 * @param onEnd called in place of the next request
 */
function mortal(calls: number, onEnd: () => void): RedlockConfig {
  let left = calls;
  const wrap = (client: Redis): Redis => {
    for (const name of ['evalsha', 'eval'] as const) {
      const send = client[name].bind(client);
      client[name] = (...values: unknown[]): Promise<unknown> => {
        left = calls === Number.POSITIVE_INFINITY && values[0] === SEAL ? -1 : left - 1;
        if (left >= 0) return Promise.resolve(Reflect.apply(send, client, values));
        onEnd();
        return new Promise(() => {});
      };
    }
    return client;
  };
  return { ...nodesOf(first(), wrap), next: nodesOf(second(), wrap) };
}
