import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import { type Lease, LeaseLostError, Redlock } from '@fenced/lock';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Runtime, systemRuntime } from '../../packages/lock/src/runtime/runtime.js';
import { until } from './harness/redlock-nodes.js';
import { connect, LockWorld, nameOf, type Side } from './harness/world.js';

/** Far longer than a test may last, so leftovers show. */
const TTL_MS = 60_000;
/** Milliseconds after which the client asks the remaining nodes if the first have not answered. */
const PATIENCE_MS = 20;
const CYCLES = 100;

/** A runtime under which the client never asks the remaining nodes because the first are late. */
const patient: Runtime = {
  ...systemRuntime,
  after: (delayMs, callback, background) =>
    background && delayMs <= PATIENCE_MS
      ? () => {}
      : systemRuntime.after(delayMs, callback, background),
};

describe.each([3, 4, 5])('of %i nodes', (count) => {
  let world: LockWorld;
  beforeAll(async () => {
    world = await LockWorld.start(count);
  });
  afterAll(() => world?.[Symbol.asyncDispose]());
  beforeEach(() => world.renew());

  const majority = Math.floor(count / 2) + 1;
  const x = 'x';
  const isEverywhere = async (): Promise<boolean> => (await world.holders(x)) === count;

  /**
   * A program with the patient runtime, and a lease that only a majority holds. Several tries may
   * be needed: at first, a node may not count as one that votes in time.
   */
  async function barelyHeld(ttlMs = TTL_MS): Promise<{ side: Side; lease: Lease }> {
    const side = await world.busy({ runtime: patient });
    for (;;) {
      const lease = await side.lock.acquire(x, { ttlMs });
      // Afterwards, no request to any node is on its way.
      await side.untilAnswered();
      if ((await world.holders(x)) === majority) return { side, lease };
      await lease.release();
    }
  }

  /** @returns the number of cycles that had to wait for a node */
  async function cycles({ lock }: Side): Promise<number> {
    let late = 0;
    for (let cycle = 0; cycle < CYCLES; cycle += 1) {
      const startedMs = performance.now();
      const lease = await lock.acquire(x, { ttlMs: TTL_MS });
      expect(await lease.release()).toBe('released');
      if (performance.now() - startedMs >= PATIENCE_MS) late += 1;
    }
    return late;
  }

  /** The number of scripts that each node runs for `CYCLES` cycles. */
  async function scriptsOf(side: Side): Promise<number[]> {
    const before = await world.scripts();
    await cycles(side);
    return (await world.scripts()).map((number, at) => number - (before[at] ?? 0));
  }

  test('a lease that is soon released is on a majority only, and one that is kept is on all nodes', async () => {
    const side = await world.busy();
    // Repeats, because the remaining nodes are also asked once a second, if a node is late, or if a
    // lease is kept for longer.
    await until(async () => {
      const ran = await scriptsOf(side);
      const [most, least] = [ran.slice(0, majority), ran.slice(majority)];
      return Math.min(...most) > CYCLES && Math.max(...least) < CYCLES;
    });

    const kept = await side.lock.acquire(x, { ttlMs: TTL_MS });
    await until(isEverywhere);
    expect(await kept.release()).toBe('released');
    await world.untilClean();
  });

  test('a program that stood still first reads the answers that have come, and so takes no node for late', async () => {
    // Connects without proxies, because the proxies of this process would stand still, too.
    using clients = new DisposableStack();
    const nodes = world.servers.map(({ port }, at) => {
      const client = clients.adopt(connect(port), (one) => one.disconnect());
      return { name: nameOf(at), client };
    });
    await using lock = new Redlock({ nodes, keyPrefix: world.keyPrefix });
    const cycle = async (standStill: () => void): Promise<number | undefined> => {
      const before = await world.scripts();
      const attempt = lock.acquire(x, { ttlMs: TTL_MS });
      // After this turn of the event loop, the request was sent.
      await setImmediate();
      standStill();
      await (await attempt).release();
      return ((await world.scripts()).at(-1) ?? 0) - (before.at(-1) ?? 0);
    };
    const block = (): void => {
      const untilMs = performance.now() + 3 * PATIENCE_MS;
      while (performance.now() < untilMs);
    };
    // Repeats, because the last node is also asked once a second, and if another node is late.
    await until(async () => (await cycle(() => {})) === 0 && (await cycle(block)) === 0);
  });

  test('an acquisition that is given up while it asks a majority leaves nothing', async () => {
    const side = await world.busy();
    const controller = new AbortController();
    const asked = side.doors.slice(0, majority);
    for (const door of asked) door.hold('toClient');
    const attempt = side.lock.tryAcquire(x, { ttlMs: TTL_MS, signal: controller.signal });
    await Promise.all(asked.map((door) => door.untilHeld('toClient')));
    controller.abort();
    expect(await attempt).toMatchObject({ ok: false, reason: 'aborted' });
    side.heal();
    await world.untilClean();
  });

  test('a client waits once for a node that hangs, and asks it again when it answers', async () => {
    const side = await world.busy();
    const [node] = world.servers;
    await node?.pause();
    // Some cycles may be late for other reasons.
    await until(async () => (await cycles(side)) < CYCLES / 10);
    await node?.wake();
    await until(async () => {
      const ran = await scriptsOf(side);
      return (ran[0] ?? 0) > CYCLES && (ran.at(-1) ?? 0) < CYCLES;
    });
    await world.untilClean();
  });

  test('a client leaves out a node that does not answer, and asks a majority of the others', async () => {
    const side = await world.busy();
    side.doors[0]?.hold('toServer');
    await until(async () => {
      const [first = 0, ...ran] = await scriptsOf(side);
      const seldom = Math.max(first, ...ran.slice(majority));
      return Math.min(...ran.slice(0, majority)) > CYCLES && seldom < CYCLES;
    });
    side.heal();
    await world.untilClean();
  });

  test('a client does not wait for a node that is slow, but not late, if the others decide without it', async () => {
    const side = await world.connected();
    const slowMs = (PATIENCE_MS * 3) / 4;
    side.doors[0]?.delay('toClient', slowMs);
    await until(async () => {
      const durationsMs: number[] = [];
      for (let cycle = 0; cycle < CYCLES; cycle += 1) {
        const startedMs = performance.now();
        const lease = await side.lock.acquire(`slow ${cycle % 7}`, { ttlMs: TTL_MS });
        await lease.release();
        durationsMs.push(performance.now() - startedMs);
      }
      const median = durationsMs.toSorted((a, b) => a - b)[CYCLES / 2] ?? 0;
      return median < slowMs;
    });
    side.heal();
    await world.untilClean();
  });

  test('if the lock is on a bare majority, a release does not wait for one of its nodes that is silent', async () => {
    const side = await world.busy({ runtime: { ...systemRuntime } });
    side.doors.at(-1)?.hold('toServer');
    const lease = await side.lock.acquire(x, { ttlMs: TTL_MS });
    side.doors[0]?.hold('toClient');
    const startedMs = performance.now();
    expect(await lease.release()).toBe('released');
    expect(performance.now() - startedMs).toBeLessThan(1_000);
    side.heal();
    await world.untilClean();
  });

  test('the release of a lease that is over reports `released` only if a majority still held it', async () => {
    const { side, lease } = await barelyHeld(2_000);
    const [lockTable] = world.lockTables;
    await lockTable?.take(x, (await lockTable.ownerOf(x)) ?? '', TTL_MS);
    await until(async () => (await world.holders(x)) === 1);
    for (const door of side.doors.slice(1)) door.hold('toClient');
    const released = lease.release();
    await side.clients[0]?.ping();
    side.heal();
    expect(await released).toBe('expired');
    await world.untilClean();
  });

  test('a node that has lost its record lets no other client get a lock that a bare majority holds', async () => {
    const { lease } = await barelyHeld();
    await world.admins[0]?.del(`${world.keyPrefix}node`);
    const other = await world.connected();
    await until(async () => {
      const attempt = await other.lock.tryAcquire(x, { ttlMs: TTL_MS });
      expect(attempt).toMatchObject({ ok: false });
      return attempt.nodes[0]?.answer === 'not-voting';
    });
    await lease.release();
    await world.untilClean();
  });

  test('a lease that is kept outlives the loss of a node that granted it', async () => {
    const side = await world.busy();
    const lease = await side.lock.acquire(x, { ttlMs: TTL_MS });
    await until(isEverywhere);
    await world.admins[0]?.del(`${world.keyPrefix}node`);
    await lease.extend(TTL_MS);
    expect(await lease.release()).toBe('released');
    await world.untilClean();
  });

  test.each([
    ['its owner may be told to others', (lease: { owner: string }) => lease.owner],
    ['it is extended', (lease: { extend(ms: number): Promise<void> }) => lease.extend(TTL_MS)],
  ])('a lease is held by all nodes at once where %s', async (_, use) => {
    const { lease } = await barelyHeld();
    await use(lease);
    await until(isEverywhere);
    expect(await lease.release()).toBe('released');
    await world.untilClean();
  });

  test('a node that loses its memory votes again, even if no acquisition needs it', async () => {
    await world.renew({ maxTtlMs: 1_000 });
    const side = await world.busy({ config: { maxTtlMs: 1_000 } });
    await world.admins.at(-1)?.del(`${world.keyPrefix}node`);
    await until(async () => {
      const attempt = await side.lock.tryAcquire(x, { ttlMs: 1_000 });
      if (attempt.ok) await attempt.lease.release();
      return (await side.lock.status()).every((node) => node.reachable && node.noVote === null);
    });
    await world.untilClean();
  });

  test.each([
    ['one that has just asked all nodes', () => world.busy(), majority],
    ['one that asks all nodes', () => world.connected(), count],
  ])(
    'a waiter for a lock that is on a bare majority does not take the remaining nodes from the holder: %s',
    async (_, open, asked) => {
      const { lease } = await barelyHeld();
      const waiter = await open();
      const waiting = waiter.lock.acquire(x, { ttlMs: TTL_MS, waitMs: TTL_MS });
      const owners = () => Promise.all(world.lockTables.map((lockTable) => lockTable.ownerOf(x)));
      await until(async () => (await world.keys(/^queue:/)).length >= asked);
      // The waiter's first acquisition was refused. Its release on these nodes may still be on its
      // way.
      await until(async () => (await owners()).slice(majority).every((owner) => owner === null));
      const other = await world.connected();
      expect(await other.lock.tryAcquire(x, { ttlMs: TTL_MS })).toMatchObject({ reason: 'held' });
      // Failed tries may have raised the tokens of these nodes. A higher token would look like a
      // lease of another client, so it is set back. Another test covers that case.
      for (const lockTable of world.lockTables.slice(majority)) await lockTable.setToken(x, 1n);
      const extendedMs = performance.now();
      await lease.extend(TTL_MS);
      await until(async () => new Set(await owners()).size === 1);
      // The time is less than the grace period of the waiter, so the waiter did not have to expire.
      expect(performance.now() - extendedMs).toBeLessThan(1_500);
      expect(await owners()).toEqual(Array(count).fill(lease.owner));
      expect(await lease.release()).toBe('released');
      const next = await waiting;
      expect(next.token).toBeGreaterThan(lease.token);
      expect(await next.release()).toBe('released');
      await world.untilClean();
    },
  );

  test('a client does not copy a lease to the remaining nodes once its owner id is known to other processes', async () => {
    const side = await world.busy();
    const lease = await side.lock.acquire(x, { ttlMs: TTL_MS });
    const inTheWay = world.lockTables.slice(majority);
    for (const lockTable of inTheWay) await lockTable.take(x, 'another attempt', TTL_MS);
    const { owner } = lease;
    await side.untilAnswered();
    const other = await world.connected();
    expect(await other.lock.release({ resource: x, owner })).toBe('released');
    for (const lockTable of inTheWay) await lockTable.free(x);
    // Waits longer than the pause after which the client would copy the lease again.
    await sleep(2 * PATIENCE_MS);
    await side.untilAnswered();
    expect(await world.keys(/^lock:/)).toEqual([]);
    expect(await lease.release()).toBe('expired');
  });

  test('an extension fails if another client may have held the lock between two votes', async () => {
    const { lease } = await barelyHeld();
    // Simulates that: one node lost its lock, and another client won with it and the other nodes.
    await world.lockTables[0]?.free(x);
    for (const lockTable of world.lockTables.slice(majority)) {
      await lockTable.setToken(x, lease.token + 1n);
    }
    await expect(lease.extend(TTL_MS)).rejects.toThrow(LeaseLostError);
    await world.untilClean();
  });

  test('a lease that is extended right after its acquisition gets its new end on all nodes', async () => {
    const side = await world.busy();
    const lease = await side.lock.acquire(x, { ttlMs: 1_000 });
    await lease.extend(TTL_MS);
    await until(async () => {
      const records = await Promise.all(world.lockTables.map((lockTable) => lockTable.of(x)));
      return records.every((record) => (record?.remainingMs ?? 0) > TTL_MS / 2);
    });
    expect(await lease.release()).toBe('released');
  });
});

test('if its client has given up connecting, an acquisition fails before any time limit', async () => {
  const client = connect(1, { retryStrategy: () => null });
  await using lock = new Redlock({ nodes: [{ name: 'n', client }] });
  const startedMs = performance.now();
  await expect(lock.acquire('x', { ttlMs: 60_000 })).rejects.toMatchObject({ code: 'no-quorum' });
  expect(performance.now() - startedMs).toBeLessThan(1_500);
});
