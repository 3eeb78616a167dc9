import { crc32 } from 'node:zlib';
import {
  type Lock,
  LockArgumentError,
  QuorumError,
  Redlock,
  RedlockGroups,
  type RedlockGroupsConfig,
  type Runtime,
} from '@fenced/lock';
import { type LocalRedisNode, startLocalRedis } from '@fenced/testbed';
import type { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { scriptFor } from '../../packages/lock/src/redis/scripts.js';
import { CountedRuntime } from './harness/counted-runtime.js';
import { Clients, until } from './harness/redlock-nodes.js';

const COUNT = 64;

let service: Awaited<ReturnType<typeof startLocalRedis>>;
let clients: Clients;
let locks: RedlockGroups[];
beforeAll(async () => {
  service = await startLocalRedis(6);
});
afterAll(async () => {
  await service?.stop();
});
beforeEach(() => {
  clients = new Clients();
  locks = [];
});
afterEach(async () => {
  await Promise.all(service.nodes.map((node) => node.wake()));
  await Promise.all(locks.map((lock) => lock.close()));
  clients[Symbol.dispose]();
});

const HALVES = { east: '0-31', west: '32-63' };

function servers(group: 'east' | 'west'): readonly LocalRedisNode[] {
  return group === 'east' ? service.nodes.slice(0, 3) : service.nodes.slice(3);
}

function nodesOf(group: 'east' | 'west'): { name: string; client: Redis }[] {
  return servers(group).map(({ port }, at) => ({
    name: `${group}-${at}`,
    client: clients.connect(port),
  }));
}

function groups(config: Partial<RedlockGroupsConfig> = {}, runtime?: Runtime): RedlockGroups {
  const all = { east: nodesOf('east'), west: nodesOf('west') };
  const { keyPrefix } = clients;
  const lock = new RedlockGroups(
    { virtualServices: COUNT, groups: all, map: HALVES, keyPrefix, ...config },
    runtime,
  );
  locks.push(lock);
  return lock;
}

const numberOf = (resource: string, count = COUNT): number => crc32(resource) % count;

/** The first resource for which this holds. */
function nameWhere(isWanted: (resource: string) => boolean): string {
  for (let at = 0; ; at += 1) if (isWanted(`r${at}`)) return `r${at}`;
}

const inEast = nameWhere((name) => numberOf(name) < 32);
const inWest = nameWhere((name) => numberOf(name) >= 32);

/** The script of PROMISE alone. */
const { sha1: PROMISE } = scriptFor([{ command: { name: 'promise' } }]);

async function refusalOf(lock: Lock, resource: string): Promise<QuorumError> {
  const error: unknown = await lock.acquire(resource, { ttlMs: 5_000 }).catch((caught) => caught);
  if (error instanceof QuorumError) return error;
  throw new Error(`no refusal: ${String(error)}`);
}

async function takenAndGivenBack(
  lock: Lock,
  resource: string | readonly string[],
): Promise<bigint> {
  await using lease = await lock.acquire(resource, { ttlMs: 5_000, waitMs: 10_000 });
  return lease.token;
}

describe('a map', () => {
  test.each<[string, unknown, RegExp]>([
    ['a service without group', { map: { east: '0-30', west: '32-63' } }, /service 31 no group/],
    ['a service with two', { map: { east: '0-32', west: '32-63' } }, /service 32 to two groups/],
    ['an unknown group', { map: { ...HALVES, north: '1' } }, /unknown field north .* east, west/],
    ['a number out of range', { map: { east: '0-31', west: '32-64' } }, /0 to 63 west=32-64/],
    ['a range backwards', { map: { east: '31-0', west: '32-63' } }, /out of range/],
    ['no numbers', { map: { east: '', west: '0-63' } }, /numbers and ranges as 0-31,40/],
    ['no map', { map: undefined }, /map must be an object/],
    ['one virtual service', { virtualServices: 1 }, /from 2 to 4096 .*for 1, use Redlock/],
    ['no groups', { groups: {} }, /groups must be an object/],
  ])('is refused with %s', (_, config, message) => {
    const make = () => groups(config as Partial<RedlockGroupsConfig>);
    expect(make).toThrow(LockArgumentError);
    expect(make).toThrow(message);
  });

  test('is refused if two groups share a client', () => {
    const east = nodesOf('east');
    expect(() => groups({ groups: { east, west: east } })).toThrow(/one of another group/);
  });
});

describe('clients that are configured otherwise are refused by the nodes', () => {
  test('with another number of virtual services, also where they share none', async () => {
    const lock = groups();
    await takenAndGivenBack(lock, inEast);
    const other = groups({ virtualServices: 32, map: { east: '0-15', west: '16-31' } });
    const elsewhere = nameWhere((name) => numberOf(name, 32) >= 16);
    const error = await refusalOf(other, elsewhere);
    expect(error.code).toBe('config-mismatch');
    expect(error.message).toMatch(
      /virtual services differ: this client has 32, node east-. of group east was set up with 64/,
    );
    expect(await other.tryAcquire(elsewhere, { ttlMs: 1_000 })).toMatchObject({
      reason: 'config-mismatch',
    });
    await takenAndGivenBack(lock, elsewhere);
  });

  test('without virtual services', async () => {
    await takenAndGivenBack(groups(), inEast);
    const { keyPrefix } = clients;
    const plain = new Redlock({ nodes: nodesOf('west'), keyPrefix });
    const error = await refusalOf(plain, inEast);
    expect(error.code).toBe('config-mismatch');
    expect(error.message).toContain('set up with [64 virtual services]');
  });

  test('with virtual services on nodes that were used without', async () => {
    const { keyPrefix } = clients;
    const plain = new Redlock({ nodes: nodesOf('west'), keyPrefix });
    await takenAndGivenBack(plain, inEast);
    const error = await refusalOf(groups(), inEast);
    expect(error.code).toBe('config-mismatch');
    expect(error.message).toContain('without virtual services, with [west-0, west-1, west-2]');
  });

  test('with another map, on the first use of a virtual service that another group has', async () => {
    await takenAndGivenBack(groups(), inEast);
    const other = groups({ map: { east: '32-63', west: '0-31' } });
    const error = await refusalOf(other, inEast);
    expect(error.code).toBe('config-mismatch');
    expect(error.message).toContain(
      `virtual service ${numberOf(inEast)} is in group east, and this client has it in group west`,
    );
    await using _ = await groups().acquire(inEast, { ttlMs: 5_000 });
  });

  test('with another map at the same moment: at most one of two gets each lock', async () => {
    for (const map of [HALVES, { east: '32-63', west: '0-31' }]) {
      const both = [groups(), groups({ map })];
      const names = Array.from({ length: 20 }, (_, at) => `at-once-${at}`);
      const won = await Promise.all(
        names.map(async (name) => {
          const results = await Promise.all(
            both.map((lock) => lock.tryAcquire(name, { ttlMs: 10_000 })),
          );
          return results.filter(({ ok }) => ok).length;
        }),
      );
      expect(Math.max(...won)).toBeLessThan(2);
    }
  });
});

test('of two clients with another map, the one that promises late gets nothing', async () => {
  const late = Promise.withResolvers<void>();
  const reached = Promise.withResolvers<void>();
  const own = `${clients.keyPrefix}${COUNT}/${numberOf(inEast)}:`;
  const west = nodesOf('west');
  for (const { client } of west) {
    const send = client.evalsha.bind(client);
    client.evalsha = async (...values: unknown[]): Promise<unknown> => {
      if (values[0] === PROMISE && String(values[2]).startsWith(own)) {
        reached.resolve();
        await late.promise;
      }
      return Reflect.apply(send, client, values);
    };
  }
  const other = groups({
    groups: { east: nodesOf('east'), west },
    map: { east: '32-63', west: '0-31' },
  });
  // Load the scripts, so the promise below is an EVALSHA.
  await takenAndGivenBack(
    other,
    nameWhere((name) => numberOf(name) === 0),
  );
  const refused = refusalOf(other, inEast);
  await reached.promise;
  await using _ = await groups().acquire(inEast, { ttlMs: 30_000 });
  late.resolve();
  expect((await refused).message).toContain('is in group east');
});

describe('a set of resources in two groups', () => {
  test('has a token between those of all earlier and all later leases', async () => {
    const lock = groups();
    // One group is far ahead of the other.
    for (let i = 0; i < 20; i += 1) await takenAndGivenBack(lock, inWest);
    const before = [await takenAndGivenBack(lock, inEast), await takenAndGivenBack(lock, inWest)];
    const set = await takenAndGivenBack(groups(), [inEast, inWest]);
    const after = [await takenAndGivenBack(lock, inEast), await takenAndGivenBack(lock, inWest)];
    for (const token of before) expect(token).toBeLessThan(set);
    for (const token of after) expect(token).toBeGreaterThan(set);
  });

  test('is taken by a waiter that holds one part for longer than its TTL', async () => {
    const [holder, waiter, third] = [groups(), groups(), groups()];
    // The part that is taken first is free, the other is held.
    const last = await holder.acquire(inWest, { ttlMs: 30_000 });
    const waiting = waiter.acquire([inEast, inWest], { ttlMs: 1_500, waitMs: 20_000 });
    waiting.catch(() => {});
    const queue = `${clients.keyPrefix}${COUNT}/${numberOf(inWest)}:queue:${inWest}`;
    const admins = servers('west').map(({ port }) => clients.connect(port));
    await until(async () => {
      const found = await Promise.all(admins.map((admin) => admin.exists(queue)));
      return found.includes(1);
    });
    const startedMs = performance.now();
    while (performance.now() - startedMs < 2_400) {
      expect(await third.tryAcquire(inEast, { ttlMs: 5_000 })).toMatchObject({ reason: 'held' });
    }
    await last.release();
    const set = await waiting;
    expect(set.remainingMs()).toBeGreaterThan(100);
    expect(set.token).toBeGreaterThan(last.token);
    await set.extend(5_000);
    expect(set.remainingMs()).toBeGreaterThan(4_000);
    expect(await set.release()).toBe('released');
    await takenAndGivenBack(third, inEast);
  });

  test('leaves nothing behind if the second part is held', async () => {
    const [holder, other] = [groups(), groups()];
    await using _ = await holder.acquire(inWest, { ttlMs: 30_000 });
    const attempt = await other.tryAcquire([inEast, inWest], { ttlMs: 30_000 });
    expect(attempt).toMatchObject({ ok: false, reason: 'held' });
    const timeout = other.acquire([inEast, inWest], { ttlMs: 30_000, waitMs: 200 });
    await expect(timeout).rejects.toMatchObject({ code: 'timeout' });
    await (await holder.acquire(inEast, { ttlMs: 5_000, waitMs: 5_000 })).release();
  });
});

test('virtual services of a group share connections, subscriptions and timers', async () => {
  const runtime = new CountedRuntime();
  const lock = groups({}, runtime);
  const names = Array.from({ length: COUNT }, (_, number) =>
    nameWhere((name) => numberOf(name) === number),
  );
  const ttlMs = 30_000;
  const leases = await Promise.all(
    names.map((name) => lock.acquire(name, { ttlMs, waitMs: ttlMs })),
  );
  const subscribers = async (): Promise<number[]> =>
    Promise.all(
      service.nodes.map(async ({ port }) => {
        const list = await clients.connect(port).client('LIST', 'TYPE', 'PUBSUB');
        return String(list).split('\n').filter(Boolean).length;
      }),
    );
  const waiting = names.map((name) => lock.acquire(name, { ttlMs, waitMs: ttlMs }));
  await until(async () => (await subscribers()).every((count) => count > 0));
  expect(await subscribers()).toEqual([1, 1, 1, 1, 1, 1]);
  for (const lease of leases) await lease.release();
  for (const lease of await Promise.all(waiting)) await lease.release();
  // One for ended leases, and one of each group for its subscriptions.
  await until(() => runtime.timers <= 3);
  await lock.close();
});

test('status has every virtual service with its group, and readmit lets all of them vote', async () => {
  const lock = groups();
  expect(await lock.readmit()).toEqual({ ok: true });
  const status = await lock.status();
  expect(status.map((one) => one.service)).toEqual(Array.from({ length: COUNT }, (_, at) => at));
  expect(status[40]).toMatchObject({ group: 'west', keyPrefix: `${clients.keyPrefix}64/40:` });
  expect(
    status.every(({ nodes }) => nodes.every((node) => node.reachable && node.noVote === null)),
  ).toBe(true);
});

test('a group that is down stops its own virtual services only, and comes back', async () => {
  const lock = groups();
  await lock.readmit();
  const [first, second] = servers('west');
  await Promise.all([first?.pause(), second?.pause()]);
  await takenAndGivenBack(lock, inEast);
  expect(await refusalOf(lock, inWest)).toMatchObject({ code: 'no-quorum' });
  await expect(lock.acquire([inEast, inWest], { ttlMs: 1_000 })).rejects.toMatchObject({
    code: 'no-quorum',
  });
  await Promise.all([first?.wake(), second?.wake()]);
  await takenAndGivenBack(lock, inWest);
});

test('a group that lost all memory begins again, and still refuses other numbers', async () => {
  const lock = groups();
  const before = await takenAndGivenBack(lock, inWest);
  await Promise.all(
    servers('west').map(async (node) => {
      await node.kill();
      await node.start();
    }),
  );
  expect(await takenAndGivenBack(lock, inWest)).toBeGreaterThan(before);
  const { keyPrefix } = clients;
  const plain = new Redlock({ nodes: nodesOf('west'), keyPrefix });
  expect(await refusalOf(plain, inWest)).toMatchObject({ code: 'config-mismatch' });
});
