import { setImmediate as turn } from 'node:timers/promises';
import { LeaseLostError, type NodeConfig, Redlock } from '@fenced/lock';
import fc from 'fast-check';
import type { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { scriptFor } from '../../packages/lock/src/redis/scripts.js';
import { until } from './harness/redlock-nodes.js';
import { LockWorld, nameOf, type Side } from './harness/world.js';

/** Far longer than a test may last, so leftovers show. */
const TTL_MS = 60_000;
const seed = Number(process.env.FENCED_SEED ?? Date.now() % 2 ** 31);

describe.each([1, 3, 4, 5])('of %i nodes', (count) => {
  let world: LockWorld;
  beforeAll(async () => {
    world = await LockWorld.start(count);
  });
  afterAll(() => world?.[Symbol.asyncDispose]());
  beforeEach(() => world.renew());

  /**
   * Starts an acquisition, and aborts it while its requests, or their answers, are on their way.
   */
  async function giveUp(
    side: Side,
    direction: 'toServer' | 'toClient',
    before: () => Promise<void> = async () => {},
  ): Promise<void> {
    const controller = new AbortController();
    for (const door of side.doors) door.hold(direction);
    const attempt = side.lock.tryAcquire('x', { ttlMs: TTL_MS, signal: controller.signal });
    await Promise.all(side.doors.map((door) => door.untilHeld(direction)));
    await before();
    controller.abort();
    expect(await attempt).toMatchObject({ ok: false, reason: 'aborted' });
  }

  test('a grant whose answer comes after the acquisition was given up is released (redlock-rb#3, dynamolock#280)', async () => {
    const side = await world.connected();
    await giveUp(side, 'toClient', async () => {
      // The nodes have granted the lock, and the client has not received their answers.
      expect(await world.holders('x')).toBe(count);
    });
    side.heal();
    await world.untilClean();
  });

  test('a request that arrives after the acquisition was given up leaves nothing (redlock-rb#3)', async () => {
    const side = await world.connected();
    await giveUp(side, 'toServer');
    side.heal();
    await world.untilClean();
    await using lease = await side.lock.acquire('x', { ttlMs: TTL_MS });
    expect(lease.remainingMs()).toBeGreaterThan(0);
  });

  test('an acquisition that is given up is released again, even if the nodes have forgotten its script', async () => {
    const side = await world.connected();
    await Promise.all(world.admins.map((node) => node.script('FLUSH')));
    await giveUp(side, 'toServer');
    side.heal();
    await Promise.all(world.admins.map((node) => until(() => isKnown(node))));
    await side.untilAnswered();
    await world.untilClean();
  });

  test('if a client delivers a request only after its release, the lock is released once more', async () => {
    const side = await world.connected();
    const { promise: released, resolve } = Promise.withResolvers<void>();
    const [nodes, acquired]: [NodeConfig[], Promise<unknown>[]] = [[], []];
    for (const [at, client] of side.clients.entries()) {
      const evalsha = async (...values: Parameters<typeof client.evalsha>): Promise<unknown> => {
        const isAcquire = values.includes('acquire');
        if (isAcquire) await released;
        const reply = client.evalsha(...values);
        if (isAcquire) acquired.push(reply);
        return reply;
      };
      const own = { evalsha, eval: client.eval.bind(client) };
      nodes.push({ name: nameOf(at), client: own });
    }
    await using lock = new Redlock({ nodes, keyPrefix: world.keyPrefix });
    const controller = new AbortController();
    const attempt = lock.tryAcquire('x', { ttlMs: TTL_MS, signal: controller.signal });
    await turn();
    controller.abort();
    expect(await attempt).toMatchObject({ reason: 'aborted' });
    await side.untilAnswered();
    resolve();
    await until(() => acquired.length === count);
    for (const reply of acquired) expect(String(await reply)).toContain('"granted"');
    await world.untilClean();
  });

  test('acquisitions that were given up in the offline queue of a client lock no other client out later', async () => {
    const client = { maxRetriesPerRequest: null } as const;
    const late = await world.side({ client, before: (door) => door.refuse() });
    const controller = new AbortController();
    const attempts = ['x', 'y', 'z'].map((name) =>
      late.lock.tryAcquire(name, { ttlMs: TTL_MS, signal: controller.signal }),
    );
    await turn();
    controller.abort();
    for (const attempt of attempts) expect(await attempt).toMatchObject({ reason: 'aborted' });
    const other = await world.connected();
    const lease = await other.lock.acquire('x', { ttlMs: TTL_MS });
    late.heal();
    await until(() => late.clients.every(({ status }) => status === 'ready'));
    await late.untilAnswered();
    await until(async () => (await world.keys(/lock:[yz]/)).length === 0);
    expect(await other.lock.tryAcquire('x', { ttlMs: TTL_MS })).toMatchObject({ reason: 'held' });
    expect(await lease.release()).toBe('released');
    await world.untilClean();
  });

  test(`an abort at any time leaves a lease or no key, and ends with the caller's reason (redlock#85, redlock#86; FENCED_SEED=${seed})`, async () => {
    const [holder, side] = [await world.connected(), await world.connected()];
    const plan = fc.record({
      turns: fc.nat(30),
      isHeld: fc.boolean(),
      waits: fc.boolean(),
      resources: fc.constantFrom('x', ['x', 'y']),
      releasedAfter: fc.nat(30),
    });
    const property = fc.asyncProperty(plan, async (given) => {
      const { turns, isHeld, waits, resources, releasedAfter } = given;
      const lease = isHeld ? await holder.lock.acquire('x', { ttlMs: TTL_MS }) : null;
      const controller = new AbortController();
      const { signal } = controller;
      const waitMs = waits ? TTL_MS : 0;
      const run = side.lock
        .acquire(resources, { ttlMs: TTL_MS, waitMs, signal })
        .catch((error: unknown) => error);
      const reason = new Error('enough');
      for (let now = 0; now <= Math.max(turns, releasedAfter); now += 1) {
        if (now === turns) controller.abort(reason);
        if (now === releasedAfter) await lease?.release();
        await turn();
      }
      const outcome = await run;
      if (outcome instanceof Error) {
        expect([reason, expect.objectContaining({ code: 'held' })]).toContainEqual(outcome);
      } else {
        const won = outcome as Awaited<ReturnType<typeof side.lock.acquire>>;
        expect(won.remainingMs()).toBeGreaterThan(0);
        expect(await won.release()).toBe('released');
      }
      // A request that was sent before the abort may arrive only now.
      await turn();
      await side.untilAnswered();
      await world.untilClean();
    });
    await fc.assert(property, { seed, numRuns: 40 });
  });

  test('no extension brings back a lease that is over, neither by its holder nor by another process (RedLock.net#48, redis-semaphore#175)', async () => {
    const [side, elsewhere] = [await world.connected(), await world.connected()];
    const lease = await side.lock.acquire('x', { ttlMs: 500 });
    const held = { resource: 'x', owner: lease.owner, token: lease.token };
    await world.untilClean();
    await expect(elsewhere.lock.extend(held, TTL_MS)).rejects.toThrow(LeaseLostError);
    await expect(lease.extend(TTL_MS)).rejects.toThrow(LeaseLostError);
    expect(await world.keys()).toEqual([]);

    const half = await side.lock.acquire('x', { ttlMs: TTL_MS });
    await until(async () => (await world.holders('x')) === count);
    await side.untilAnswered();
    const lost = world.lockTables.slice(0, world.majority);
    await Promise.all(lost.map((lockTable) => lockTable.free('x')));
    await expect(half.extend(TTL_MS)).rejects.toThrow(LeaseLostError);
    expect(half.signal.reason).toBeInstanceOf(LeaseLostError);
    // The failed extension also releases the lock on the minority that still held it.
    await world.untilClean();
  });

  test('an extension that arrives after the release does not bring the lock back (redisson#7272, redis-semaphore#205)', async () => {
    const [side, elsewhere] = [await world.connected(), await world.connected()];
    const lease = await side.lock.acquire('x', { ttlMs: TTL_MS });
    await until(async () => (await world.holders('x')) === count);
    for (const door of side.doors) door.hold('toServer');
    const extension = lease.extend(TTL_MS).catch((error: unknown) => error);
    await Promise.all(side.doors.map((door) => door.untilHeld('toServer')));
    expect(await elsewhere.lock.release({ resource: 'x', owner: lease.owner })).toBe('released');
    await world.untilClean();
    side.heal();
    expect(await extension).toBeInstanceOf(LeaseLostError);
    await side.untilAnswered();
    expect(await world.keys()).toEqual([]);
  });

  test("a release after the end is 'expired', is no error, and leaves the next holder's lock alone (redlock#65, redlock#168, redlock#362, etcd#22082)", async () => {
    const [side, elsewhere] = [await world.connected(), await world.connected()];
    const lease = await side.lock.acquire('x', { ttlMs: 500 });
    // Waits for all nodes: one may end the lease later than a majority, and refuse the next holder.
    await until(async () => (await world.holders('x')) === 0);
    await using _ = await elsewhere.lock.acquire('x', { ttlMs: TTL_MS });
    await until(async () => (await world.holders('x')) === count);
    expect(lease.signal.reason).toBeInstanceOf(LeaseLostError);
    expect(await lease.release()).toBe('expired');
    expect(await lease.release()).toBe('expired');
    expect(await elsewhere.lock.release({ resource: 'x', owner: lease.owner })).toBe('expired');
    expect(await world.holders('x')).toBe(count);
  });
});

async function isKnown(node: Redis): Promise<boolean> {
  const [known] = (await node.script(
    'EXISTS',
    scriptFor([{ command: { name: 'acquire' } }]).sha1,
  )) as [number];
  return known === 1;
}
