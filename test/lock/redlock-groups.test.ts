import { setTimeout as sleep } from 'node:timers/promises';
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

/** The first of the names r0, r1, r2 … for which the condition is true. */
function nameWhere(isWanted: (resource: string) => boolean): string {
  for (let at = 0; ; at += 1) if (isWanted(`r${at}`)) return `r${at}`;
}

const inEast = nameWhere((name) => numberOf(name) < 32);
const inWest = nameWhere((name) => numberOf(name) >= 32);

/** The digest of the script that runs a single PROMISE. */
const { sha1: PROMISE } = scriptFor([{ command: { name: 'promise' } }]);

async function refusalOf(lock: Lock, resource: string): Promise<QuorumError> {
  const error: unknown = await lock.acquire(resource, { ttlMs: 5_000 }).catch((caught) => caught);
  if (error instanceof QuorumError) return error;
  throw new Error(`no refusal: ${String(error)}`);
}

/** Resolves when a client is queued for `inWest`. */
async function waiterInWest(): Promise<void> {
  const queue = `${clients.keyPrefix}${COUNT}/${numberOf(inWest)}:queue:${inWest}`;
  const admins = servers('west').map(({ port }) => clients.connect(port));
  await until(async () => {
    const found = await Promise.all(admins.map((admin) => admin.exists(queue)));
    return found.includes(1);
  });
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
    ['a move to the same group', { next: { east: '7' } }, /service 7 to east, which map does/],
    ['a move to two groups', { next: { east: '40', west: '40' } }, /40 to two groups/],
    ['a move to an unknown group', { next: { north: '7' } }, /unknown field north/],
  ])('is refused with %s', (_, config, message) => {
    const make = () => groups(config as Partial<RedlockGroupsConfig>);
    expect(make).toThrow(LockArgumentError);
    expect(make).toThrow(message);
  });

  test('is refused if two groups share a node under one key prefix', () => {
    const [east, again] = [nodesOf('east'), nodesOf('east')];
    const renamed = east.map(({ client }) => ({ name: 'other', client })).slice(1, 2);
    for (const west of [east, again, renamed]) {
      expect(() => groups({ groups: { east, west } })).toThrow(/groups east and west share node/);
    }
  });
});

describe('clients that are configured otherwise are refused by the nodes', () => {
  test('with another number of virtual services, even if they lock other resources', async () => {
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

  test('with virtual services, on nodes that were set up without them', async () => {
    const { keyPrefix } = clients;
    const plain = new Redlock({ nodes: nodesOf('west'), keyPrefix });
    await takenAndGivenBack(plain, inEast);
    const error = await refusalOf(groups(), inEast);
    expect(error.code).toBe('config-mismatch');
    expect(error.message).toContain('without virtual services, with [west-0, west-1, west-2]');
  });

  test('with another map, when they first use a virtual service that another group has already', async () => {
    await takenAndGivenBack(groups(), inEast);
    const other = groups({ map: { east: '32-63', west: '0-31' } });
    const error = await refusalOf(other, inEast);
    expect(error.code).toBe('config-mismatch');
    expect(error.message).toContain(
      `virtual service ${numberOf(inEast)} is in group east, and this client has it in group west`,
    );
    await using _ = await groups().acquire(inEast, { ttlMs: 5_000 });
  });

  test('with another map, even if both start at the same moment: at most one of the two gets each lock', async () => {
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

test('after a move has retired a Redlock, virtual services on its nodes issue higher tokens', async () => {
  const { keyPrefix } = clients;
  const east = nodesOf('east');
  const old = new Redlock({ nodes: east, keyPrefix });
  const token = await takenAndGivenBack(old, inEast);
  const retired = { nodes: east, keyPrefix: `${keyPrefix}retired:` };
  await using operator = new Redlock({ nodes: east, keyPrefix, next: retired });
  await until(async () => (await operator.move()).state === 'done');
  expect((await refusalOf(old, inEast)).code).toBe('config-mismatch');
  const map = { east: '0-63' };
  for (const prefix of [keyPrefix, retired.keyPrefix]) {
    const error = await refusalOf(groups({ groups: { east }, map, keyPrefix: prefix }), inEast);
    expect(error.code).toBe('config-mismatch');
  }
  const next = groups({ groups: { east }, map, keyPrefix: `${keyPrefix}2:` });
  expect(await takenAndGivenBack(next, inEast)).toBeGreaterThan(token);
});

test('of two clients with different maps, the one whose request for promises is late gets no lock', async () => {
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
  // Loads the scripts. So the delayed PROMISE is sent by EVALSHA, and the test can recognise it.
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

  test('is taken by a waiter that has to hold its first part for longer than a TTL', async () => {
    const [holder, waiter, third] = [groups(), groups(), groups()];
    // The waiter takes the part in east first, which is free. The part in west is held.
    const last = await holder.acquire(inWest, { ttlMs: 30_000 });
    const waiting = waiter.acquire([inEast, inWest], { ttlMs: 1_500, waitMs: 20_000 });
    waiting.catch(() => {});
    await waiterInWest();
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
  // One timer for ended leases, and one in each of the two groups for its subscriptions.
  await until(() => runtime.timers <= 3);
  await lock.close();
});

test('status has every virtual service with its group, and readmit lets all of them vote', async () => {
  const runtime = new CountedRuntime();
  const lock = groups({}, runtime);
  expect(await lock.readmit()).toEqual({ ok: true });
  const status = await lock.status();
  expect(status.map((one) => one.service)).toEqual(Array.from({ length: COUNT }, (_, at) => at));
  expect(status[40]).toMatchObject({ group: 'west', keyPrefix: `${clients.keyPrefix}64/40:` });
  expect(
    status.every(({ nodes }) => nodes.every((node) => node.reachable && node.noVote === null)),
  ).toBe(true);
  // A round of readmission is planned for each, also for those without a lock.
  expect(runtime.timers).toBeGreaterThanOrEqual(COUNT);
  await lock.close();
  expect(runtime.timers).toBe(0);
});

test('if a group is down, the virtual services of the other group go on', async () => {
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

test('a group that lost all memory begins again, and refuses clients with another number of virtual services', async () => {
  const lock = groups();
  const before = await takenAndGivenBack(lock, inWest);
  await restarted('west');
  expect(await takenAndGivenBack(lock, inWest)).toBeGreaterThan(before);
  const { keyPrefix } = clients;
  const plain = new Redlock({ nodes: nodesOf('west'), keyPrefix });
  expect(await refusalOf(plain, inWest)).toMatchObject({ code: 'config-mismatch' });
});

describe('a virtual service that moves to another group', () => {
  const moving = numberOf(inEast);
  const next = { west: String(moving) };
  const moved = {
    east: `${range(0, moving)}${moving + 1}-31`,
    west: `32-63,${moving}`,
  };
  /** Another resource of the same virtual service. */
  const sibling = nameWhere((name) => name !== inEast && numberOf(name) === moving);

  test('keeps its leases, and its tokens grow while clients acquire its locks', async () => {
    const acquiring = [groups({ next }), groups({ next }), groups({ next })];
    const kept = await groups({ next }).acquire(sibling, { ttlMs: 30_000 });
    const tokens: bigint[] = [];
    let isOver = false;
    const work = acquiring.map(async (lock, at) => {
      const names = at === 0 ? [inEast, inWest] : inEast;
      while (!isOver) {
        await using lease = await lock.acquire(names, { ttlMs: 10_000, waitMs: 20_000 });
        tokens.push(lease.token);
      }
    });
    await until(() => tokens.length > 20);
    const early = await refusalOf(groups({ map: moved }), inEast);
    expect(early.message).toContain(`virtual service ${moving} is in group east`);
    await moveAll(groups({ next }));
    const before = tokens.length;
    await until(() => tokens.length > before + 20);
    isOver = true;
    await Promise.all(work);
    expect(tokens).toEqual([...new Set(tokens)].toSorted((a, b) => (a < b ? -1 : 1)));
    const known = groups({ map: moved });
    expect(await known.tryAcquire(sibling, { ttlMs: 1_000 })).toMatchObject({ reason: 'held' });
    await kept.extend(30_000);
    expect(await kept.release()).toBe('released');
    expect(await takenAndGivenBack(known, sibling)).toBeGreaterThan(kept.token);
    expect((await acquiring[1]?.status())?.[moving]).toMatchObject({ group: 'west' });
    expect((await acquiring[1]?.status())?.[31]).toMatchObject({ group: 'east' });
    const error = await refusalOf(groups(), inEast);
    expect(error.code).toBe('config-mismatch');
    expect(error.message).toContain('this client has [east-0, east-1, east-2]');
    expect(error.message).toContain(
      `to [west-0, west-1, west-2] with the key prefix ${clients.keyPrefix}64/${moving}:`,
    );
  });

  test('takes a waiter along that holds one part of a set already', async () => {
    const [holder, waiter] = [groups(), groups({ next })];
    // The token of the part that the waiter holds is lower than that of the other part.
    const first = await takenAndGivenBack(holder, inEast);
    const last = await holder.acquire(inWest, { ttlMs: 30_000 });
    expect(last.token).toBeGreaterThan(first);
    const waiting = waiter.acquire([inEast, inWest], { ttlMs: 30_000, waitMs: 20_000 });
    waiting.catch(() => {});
    await waiterInWest();
    await moveAll(groups({ next }));
    await last.release();
    await using set = await waiting;
    expect(set.token).toBeGreaterThan(last.token);
  });

  test('starts again on its new group after a loss of memory, and never again on its old group', async () => {
    await moveAll(groups({ next }));
    const before = await takenAndGivenBack(groups({ map: moved }), inEast);
    await restarted('west');
    expect(await takenAndGivenBack(groups({ map: moved }), inEast)).toBeGreaterThan(before);
    await restarted('east');
    expect((await refusalOf(groups(), inEast)).message).toContain(
      `virtual service ${moving} is in group west`,
    );
  });

  test('may move to nodes of its own group, under another key prefix', async () => {
    const [east, west] = [nodesOf('east'), nodesOf('west')];
    const nodes = [...east.slice(1), ...west.slice(0, 1)];
    const all = { east, west, east2: { nodes, keyPrefix: `${clients.keyPrefix}2:` } };
    const lock = groups({ groups: all, next: { east2: '0-31' } });
    const before = await takenAndGivenBack(lock, inEast);
    expect(new Set((await lock.moveStatus()).map(({ state }) => state))).toEqual(
      new Set(['not-begun']),
    );
    await moveAll(lock);
    expect(await lock.moveStatus()).toHaveLength(32);
    expect(await takenAndGivenBack(lock, inEast)).toBeGreaterThan(before);
    const map = { east2: '0-31', west: '32-63' };
    expect(await takenAndGivenBack(groups({ groups: all, map }), inEast)).toBeGreaterThan(before);
  });

  test('may come back under another key prefix, and begins again there', async () => {
    const [east, west] = [nodesOf('east'), nodesOf('west')];
    const keyPrefix = `${clients.keyPrefix}2:`;
    const all = { east, west, east2: { nodes: east, keyPrefix } };
    await moveAll(groups({ groups: all, next }));
    await moveAll(groups({ groups: all, map: moved, next: { east2: String(moving) } }));
    const back = { ...moved, west: '32-63', east2: String(moving) };
    const before = await takenAndGivenBack(groups({ groups: all, map: back }), inEast);
    const key = `${keyPrefix}${COUNT}/${moving}:node`;
    await Promise.all(east.map(({ client }) => client.del(key, `${key}-before`)));
    const again = groups({ groups: all, map: back });
    expect(await takenAndGivenBack(again, inEast)).toBeGreaterThan(before);
  });

  test('is refused if the next group has another number of virtual services', async () => {
    const few = { virtualServices: 2, map: { west: '0-1' }, groups: { west: nodesOf('west') } };
    await takenAndGivenBack(groups(few), inEast);
    const lock = groups({ map: { east: '0-63' }, next });
    expect(await lock.move()).toMatchObject([
      { state: 'refused', reason: expect.stringContaining('virtual services differ') },
    ]);
  });
});

function range(from: number, to: number): string {
  return from === to ? '' : `${from}-${to - 1},`;
}

async function moveAll(lock: RedlockGroups): Promise<void> {
  for (;;) {
    const moves = await lock.move();
    expect(moves.filter(({ state }) => state === 'refused')).toEqual([]);
    if (moves.every(({ state }) => state === 'done')) return;
    await sleep(Math.max(...moves.map(({ retryAfterMs }) => retryAfterMs)));
  }
}

/** Restarts all nodes of a group, without their memory. */
async function restarted(group: 'east' | 'west'): Promise<void> {
  await Promise.all(
    servers(group).map(async (node) => {
      await node.kill();
      await node.start();
    }),
  );
}
