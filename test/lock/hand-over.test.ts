import { setTimeout as sleep } from 'node:timers/promises';
import { AcquireTimeoutError, type Lease } from '@fenced/lock';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { until } from './harness/redlock-nodes.js';
import { LockWorld, type Side } from './harness/world.js';

/** Far longer than a test may last, so leftovers show. */
const TTL_MS = 60_000;
/** A waiter of another process is served first if it came so much earlier than the local one. */
const TOGETHER_MS = 50;

describe.each([1, 3, 4, 5])('of %i nodes', (count) => {
  let world: LockWorld;
  beforeAll(async () => {
    world = await LockWorld.start(count);
  });
  afterAll(() => world?.[Symbol.asyncDispose]());
  beforeEach(() => world.renew());

  interface Waiting {
    readonly side: Side;
    readonly ttlMs?: number;
    readonly waitMs?: number;
    readonly signal?: AbortSignal;
  }

  /** Enqueues waiters in this order behind a lease of another program, and releases that lease. */
  async function served(...waiting: readonly Waiting[]): Promise<Promise<Lease>[]> {
    const holder = await world.connected();
    const before = await holder.lock.acquire('x', { ttlMs: TTL_MS });
    const leases: Promise<Lease>[] = [];
    for (const { side, ...options } of waiting) {
      const lease = side.lock.acquire('x', { ttlMs: TTL_MS, waitMs: TTL_MS, ...options });
      // If a test fails before it awaits this lease, only the failure of the test is reported.
      lease.catch(() => {});
      leases.push(lease);
      await world.untilWaiting(leases.length);
    }
    await before.release();
    await leases[0];
    return leases;
  }

  /** The owner ids under which the nodes hold the lock. */
  async function owners(): Promise<string[]> {
    const held = await Promise.all(world.lockTables.map((lockTable) => lockTable.ownerOf('x')));
    return held.filter((owner) => owner !== null);
  }

  test('a waiter behind the holder in its own process gets the lock without a round trip', async () => {
    const side = await world.connected();
    // Only a bare majority answers, so each of these nodes knows all waiters.
    for (const door of side.doors.slice(world.majority)) door.hold('toServer');
    const leases = await served(...Array(5).fill({ side }));
    for (const door of side.doors) door.hold('toServer');
    const tokens: bigint[] = [];
    for (const next of leases) {
      const lease = await next;
      expect(lease.remainingMs()).toBeGreaterThan(TTL_MS * 0.89);
      tokens.push(lease.token);
      if (tokens.length < leases.length) expect(await lease.release()).toBe('released');
    }
    expect(tokens).toEqual([...new Set(tokens)].toSorted((a, b) => Number(a - b)));

    const other = await world.connected();
    const refused = await other.lock.tryAcquire('x', { ttlMs: TTL_MS });
    expect(refused).toMatchObject({ reason: 'held' });
    side.heal();
    const last = await leases.at(-1);
    expect(await last?.release()).toBe('released');
    const releasedMs = performance.now();
    await world.untilClean();
    // The waiters have left the queue by themselves: no position had to expire.
    expect(performance.now() - releasedMs).toBeLessThan(1_000);
    const lease = await other.lock.acquire('x', { ttlMs: TTL_MS });
    expect(lease.token).toBeGreaterThan(last?.token ?? 0n);
  });

  test('a client that puts a prefix of its own before each key hands the lock over as well', async () => {
    const [own, ours] = [world.keyPrefix.slice(0, 9), world.keyPrefix.slice(9)];
    const side = await world.connected({ client: { keyPrefix: own }, config: { keyPrefix: ours } });
    for (const door of side.doors.slice(world.majority)) door.hold('toServer');
    const [one, two] = await served({ side }, { side });
    for (const door of side.doors) door.hold('toServer');
    expect(await (await one)?.release()).toBe('released');
    const next = await two;
    side.heal();
    expect(await next?.release()).toBe('released');
    await world.untilClean();
  });

  test('a lease that was handed over can be extended, released by its owner id, and released', async () => {
    const [side, other] = [await world.connected(), await world.connected()];
    const [one, two, three] = await served({ side }, { side }, { side });
    const first = await one;
    expect(await first?.release()).toBe('released');
    const second = await two;
    if (!first || !second || !three) throw new Error('all are served');
    // Before the hand-over, no process had read `first.owner`. The id read now holds no lock.
    const { owner } = first;
    expect(owner).not.toBe(second.owner);
    expect(await other.lock.release({ resource: 'x', owner })).toBe('expired');
    await second.extend(TTL_MS);
    // Another process releases the lease by its owner id, and the next waiter gets the lock.
    expect(await other.lock.release({ resource: 'x', owner: second.owner })).toBe('released');
    const third = await three;
    expect(third.owner).not.toBe(second.owner);
    expect(third.token).toBeGreaterThan(second.token);
    expect(await second.release()).toBe('expired');
    await third.extend(TTL_MS);
    expect(await third.release()).toBe('released');
    await world.untilClean();
  });

  test('a waiter that gives up is passed over, even if it gives up at the moment of the hand-over', async () => {
    const side = await world.connected();
    const [before, then] = [new AbortController(), new AbortController()];
    const [one, two, three, four, five] = await served(
      { side },
      { side, waitMs: 1_000 },
      { side, signal: before.signal },
      { side, signal: then.signal },
      { side },
    );
    const reason = new Error('enough');
    const ends = [expect(three).rejects.toBe(reason), expect(four).rejects.toBe(reason)];
    await expect(two).rejects.toThrow(AcquireTimeoutError);
    before.abort(reason);
    const released = (await one)?.release();
    then.abort(reason);
    await Promise.all(ends);
    expect(await released).toBe('released');
    expect(await (await five)?.release()).toBe('released');
    await world.untilClean();
  });

  test.each<[string, number, (lease: Lease) => unknown]>([
    ['its owner is known to others', TTL_MS, (lease) => lease.owner],
    ['it was extended', TTL_MS, (lease) => lease.extend(2 * TTL_MS)],
    ['a tenth of its time is over', 2_000, () => sleep(250)],
    ['the next wants it for longer', TTL_MS / 2, () => {}],
  ])('a lease is not handed over if %s: the next one is new', async (_, ttlMs, use) => {
    await world.renew({ maxTtlMs: 2 * TTL_MS });
    const side = await world.connected({ config: { maxTtlMs: 2 * TTL_MS } });
    const nextTtlMs = ttlMs === TTL_MS / 2 ? TTL_MS : ttlMs;
    const [one, two] = await served({ side, ttlMs }, { side, ttlMs: nextTtlMs });
    const first = await one;
    if (!first) throw new Error('it was served');
    await use(first);
    const before = await owners();
    expect(await first.release()).toBe('released');
    const next = await two;
    expect(next?.token).toBeGreaterThan(first.token);
    await until(async () => !(await owners()).some((owner) => before.includes(owner)));
    await next?.extend(nextTtlMs);
    expect(await next?.release()).toBe('released');
    await world.untilClean();
  });

  test('a service that is closed releases a lock that was handed over, and leaves all queues', async () => {
    const side = await world.connected();
    const [one, two, three] = await served({ side }, { side }, { side });
    const closed = expect(three).rejects.toMatchObject({ code: 'closed' });
    await (await one)?.release();
    const lease = await two;
    await side.lock.close();
    await closed;
    expect(lease?.signal.aborted).toBe(true);
    await world.untilClean();
  });

  test('a service that is closed during a hand-over has released the lock when `close` resolves', async () => {
    const side = await world.connected();
    const [one, two] = await served({ side }, { side });
    const closed = expect(two).rejects.toMatchObject({ code: 'closed' });
    await (await one)?.release();
    await side.lock.close();
    for (const client of side.clients) client.disconnect();
    await closed;
    await world.untilClean();
  });

  test('a waiter of another process that came earlier is served before', async () => {
    const [side, other] = [await world.connected(), await world.connected()];
    const order: string[] = [];
    const note = async (name: string, lease: Promise<Lease>): Promise<void> => {
      const held = await lease;
      order.push(name);
      await held.release();
    };
    const holder = await world.connected();
    const before = await holder.lock.acquire('x', { ttlMs: TTL_MS });
    const runs: Promise<void>[] = [];
    for (const [name, { lock }] of [
      ['first', side],
      ['second', other],
      ['third', side],
    ] as const) {
      runs.push(note(name, lock.acquire('x', { ttlMs: TTL_MS, waitMs: TTL_MS })));
      await world.untilWaiting(runs.length);
      await sleep(2 * TOGETHER_MS);
    }
    await before.release();
    await Promise.all(runs);
    expect(order).toEqual(['first', 'second', 'third']);
    await world.untilClean();
  });
});
