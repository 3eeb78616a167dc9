import { getEventListeners, once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Lease, LeaseLostError, type Redlock, type Runtime } from '@fenced/lock';
import { WorkerProcess } from '@fenced/testbed';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { systemRuntime } from '../../packages/lock/src/runtime/runtime.js';
import { until } from './harness/redlock-nodes.js';
import { LockWorld, type Side } from './harness/world.js';

const HOLDER = new URL('./harness/holder-child.ts', import.meta.url);
const SLEEPER = new URL('./harness/sleeping-child.ts', import.meta.url);
/** Far longer than a test may last. */
const TTL_MS = 60_000;

describe.each([1, 3, 4, 5])('of %i nodes', (count) => {
  let world: LockWorld;
  beforeAll(async () => {
    world = await LockWorld.start(count);
  });
  afterAll(() => world?.[Symbol.asyncDispose]());
  beforeEach(() => world.renew());

  test('a process that was paused past its deadline knows at its next statement that the lease is over', async () => {
    const told: object[] = [];
    const ports = world.servers.map(({ port }) => port);
    await using holder = await WorkerProcess.start(HOLDER, {
      args: [JSON.stringify({ ports, keyPrefix: world.keyPrefix })],
      stopAt: { file: HOLDER, text: 'const remainingMs = lease.remainingMs();' },
      onLine: (line) => told.push(JSON.parse(line)),
    });
    await holder.reachedStop();
    await holder.pause();
    await until(async () => (await world.holders('x')) === 0);
    const side = await world.connected();
    await using next = await side.lock.acquire('x', { ttlMs: TTL_MS });
    await holder.wake();
    await holder.exited;
    expect(told).toEqual([
      { held: expect.any(String), wasAborted: false },
      { remainingMs: 0, isAborted: true, reason: 'LeaseLostError', error: 'LeaseLostError' },
      { outcome: 'LeaseLostError' },
    ]);
    expect(next.token).toBeGreaterThan(BigInt((told[0] as { held: string }).held));
    next.ensure();
  });

  test('a process whose machine slept past its deadline knows it at its next statement, and hands nothing over', async () => {
    const told: { held?: string; next?: string; remainingMs?: number }[] = [];
    const ports = world.servers.map(({ port }) => port);
    await using holder = await WorkerProcess.start(SLEEPER, {
      args: [JSON.stringify({ ports, keyPrefix: world.keyPrefix })],
      stopAt: { file: SLEEPER, text: 'const remainingMs = lease.remainingMs();' },
      onLine: (line) => told.push(JSON.parse(line)),
    });
    await until(() => told.length === 1);
    await world.untilWaiting(1);
    process.kill(holder.pid, 'SIGUSR1');
    await holder.reachedStop();
    await holder.pause();
    const side = await world.connected();
    const other = await side.lock.acquire('x', { ttlMs: TTL_MS, waitMs: TTL_MS });
    await holder.wake();
    await other.release();
    await holder.exited;
    const [{ held = '' } = {}, { next = '', remainingMs } = {}] = told;
    expect(remainingMs).toBe(0);
    expect(other.token).toBeGreaterThan(BigInt(held));
    expect(BigInt(next)).toBeGreaterThan(other.token);
  });

  test('the signal of a holder that is cut off aborts at its deadline, before another has the lock (RedLock.net#92, redisson#3636, redlock#309)', async () => {
    const [side, other] = [await world.connected(), await world.connected()];
    const lease = await side.lock.acquire('x', { ttlMs: 500 });
    let toldMs = 0;
    lease.signal.addEventListener('abort', () => {
      toldMs = performance.now();
    });
    const run = side.lock.using('y', { ttlMs: 500 }, async ({ signal }) => {
      for (const door of side.doors) {
        door.hold('toServer');
        door.hold('toClient');
      }
      await once(signal, 'abort');
      return 'done';
    });
    const refused = expect(run).rejects.toThrow(LeaseLostError);
    await using next = await other.lock.acquire('x', { ttlMs: TTL_MS, waitMs: TTL_MS });
    const nextMs = performance.now();
    await refused;
    expect(toldMs).toBeGreaterThan(0);
    expect(toldMs).toBeLessThanOrEqual(nextMs);
    expect(lease.signal.reason).toBeInstanceOf(LeaseLostError);
    side.heal();
    await until(() => side.clients.every(({ status }) => status === 'ready'));
    await side.untilAnswered();
    await until(async () => (await world.holders('x')) === count);
    next.ensure();
  });

  test('a process that was paused between its request and the deciding vote does not get a lease that is already over (redlock#296, redlock#299, redlock#369)', async () => {
    let pausedMs = 0;
    const runtime: Runtime = { ...systemRuntime, nowMs: () => performance.now() + pausedMs };
    const side = await world.connected({ runtime });
    const pauseAtVote = (votes: number, forMs: number): void => {
      let seen = 0;
      const count = (call: (...values: never[]) => unknown, client: object) => {
        return async (...values: unknown[]): Promise<unknown> => {
          const reply = await Reflect.apply(call, client, values);
          seen += 1;
          if (seen === votes) pausedMs += forMs;
          return reply;
        };
      };
      // The client sends `eval` to a node that does not know the script yet.
      for (const client of side.clients) {
        client.evalsha = count(client.evalsha, client);
        client.eval = count(client.eval, client);
      }
    };
    const lease = await side.lock.acquire('kept', { ttlMs: TTL_MS });
    pauseAtVote(world.majority, TTL_MS);
    const attempt = await side.lock.tryAcquire('x', { ttlMs: TTL_MS });
    expect(attempt).toMatchObject({ ok: false, reason: 'too-slow' });
    await until(async () => (await world.holders('x')) === 0);
    await expect(lease.extend(TTL_MS)).rejects.toThrow(LeaseLostError);

    const fresh = await side.lock.acquire('fresh', { ttlMs: 10_000 });
    expect(fresh.remainingMs()).toBeGreaterThan(0);
    pauseAtVote(world.majority, 10_000);
    await expect(fresh.extend(10_000)).rejects.toThrow(LeaseLostError);
    expect(fresh.signal.aborted).toBe(true);
  });

  test('replies that are slower than the lease give no lease and leave no key (redlock#369)', async () => {
    const side = await world.connected();
    for (const door of side.doors) door.delay('toClient', 400);
    expect(await side.lock.tryAcquire('x', { ttlMs: 300 })).toMatchObject({
      ok: false,
      reason: 'no-quorum',
    });
    side.heal();
    await world.untilClean();
  });

  test('a lease after a wait counts from its own acquisition (redlock#296)', async () => {
    const [holder, side] = [await world.connected(), await world.connected()];
    await holder.lock.acquire('x', { ttlMs: 500 });
    const lease = await side.lock.acquire('x', { ttlMs: 2_000, waitMs: TTL_MS });
    expect(lease.remainingMs()).toBeGreaterThan(0);
    expect(lease.remainingMs()).toBeLessThan(2_000);
    await until(async () => (await world.holders('x')) >= world.majority);
    lease.ensure();
    await lease.release();
  });

  test('a failed acquisition reports its reason with the answer of every node (redlock#131, redlock#284, redlock#288)', async () => {
    const [holder, side] = [await world.connected(), await world.connected()];
    await using _ = await holder.lock.acquire('x', { ttlMs: TTL_MS });
    await until(async () => (await world.holders('x')) === count);
    const held = await side.lock.acquire('x', { ttlMs: TTL_MS }).catch((error: Error) => error);
    expect(held).toMatchObject({ name: 'LockHeldError', code: 'held', resources: ['x'] });
    const { nodes } = held as unknown as { nodes: readonly { answer: string }[] };
    expect(nodes).toHaveLength(count);
    const refusals = nodes.filter(({ answer }) => answer === 'held').length;
    expect(refusals).toBeGreaterThan(count - world.majority);
    expect(`${held}`).toContain('a: ');
    for (const door of side.doors) door.shut();
    const cut = side.lock.acquire('y', { ttlMs: TTL_MS });
    await expect(cut).rejects.toMatchObject({ name: 'NoQuorumError', code: 'no-quorum' });
    const aborted = side.lock.tryAcquire('y', { ttlMs: TTL_MS, signal: AbortSignal.timeout(1) });
    expect(await aborted).toMatchObject({ ok: false, reason: 'aborted' });
  });

  test("the caller's clients and signal are as they were, also after close", async () => {
    const [holder, side] = [await world.connected(), await world.connected()];
    const { signal } = new AbortController();
    const looks = (): unknown =>
      side.clients.map((client) => ({
        listeners: client.eventNames().map((name) => [name, client.listenerCount(name)]),
        options: { ...client.options },
        status: client.status,
        own: Object.keys(client).length,
      }));
    const before = looks();
    const held = await holder.lock.acquire('x', { ttlMs: TTL_MS });
    const waiting = side.lock.using('x', { ttlMs: 2_000, waitMs: TTL_MS, signal }, () =>
      sleep(1_400),
    );
    await until(async () => (await world.listeners()) === count);
    await held.release();
    await waiting;
    expect(getEventListeners(signal, 'abort')).toEqual([]);
    await side.lock.close();
    expect(looks()).toEqual(before);
    for (const client of side.clients) expect(await client.ping()).toBe('PONG');
  });

  test("keys stay in the client's own database and behind its prefix, also those of waiters, and the next waiter is notified (sesamecare E15)", async () => {
    const client = { db: 3, keyPrefix: 'app:' };
    const [holder, side] = [await world.connected({ client }), await world.connected({ client })];
    const heard: string[] = [];
    for (const one of side.clients) {
      const duplicate = one.duplicate.bind(one);
      one.duplicate = (override) => {
        const listener = duplicate(override);
        listener.on('message', (channel) => heard.push(channel));
        return listener;
      };
    }
    const lease = await holder.lock.acquire('x', { ttlMs: TTL_MS });
    const waiting = side.lock.acquire('x', { ttlMs: TTL_MS, waitMs: TTL_MS });
    const of = (db: number): Promise<string[]> => keysIn(world, db);
    await until(
      async () => (await of(3)).filter((key) => key.includes('waiter:')).length === count,
    );
    expect((await of(3)).every((key) => key.startsWith(`app:${world.keyPrefix}`))).toBe(true);
    expect((await of(0)).toSorted()).toEqual([...Array(count).fill(`${world.keyPrefix}node`)]);
    for (const lockTable of world.lockTables) {
      expect([...(await lockTable.all()).keys()]).toEqual(['warm-up']);
    }
    await until(async () => (await world.listeners()) === count);
    await lease.release();
    await (await waiting).release();
    await until(() => heard.length === count);
    expect(await world.keys()).toEqual([]);
  });

  test('programs that want overlapping sets at once are all served', async () => {
    const sides = [await world.connected(), await world.connected(), await world.connected()];
    const held = new Set<string>();
    const dine = async (side: Side, set: readonly string[]): Promise<void> => {
      for (let round = 0; round < 4; round += 1) {
        const lease = await side.lock.acquire(set, { ttlMs: TTL_MS, waitMs: TTL_MS });
        for (const one of set) expect(held.has(one)).toBe(false);
        for (const one of set) held.add(one);
        await sleep(1);
        for (const one of set) held.delete(one);
        await lease.release();
      }
    };
    const runs = sides.flatMap((side, at) => [
      dine(side, [`r${at}`, `r${(at + 1) % 3}`]),
      dine(side, [`r${(at + 2) % 3}`, `r${at}`]),
    ]);
    await Promise.all(runs);
    await world.untilClean();
  });
});

describe.each([
  [2, 0],
  [3, 1],
  [4, 0],
  [5, 1],
])('of %i nodes of which %i is down', (count, down) => {
  let world: LockWorld;
  beforeAll(async () => {
    world = await LockWorld.start(count);
    await world.renew();
    for (let at = 0; at < down; at += 1) await world.servers.at(-1)?.kill();
  });
  afterAll(() => world?.[Symbol.asyncDispose]());

  const half = (count - down) / 2;

  test('two clients that have locked half of the remaining nodes each give way: both are served in the end (redlock#369)', async () => {
    const client = { maxRetriesPerRequest: 0 };
    const sides = [await world.side({ client }), await world.side({ client })] as const;
    const [one, two] = sides;
    await until(() => sides.every(({ clients }) => clients.slice(0, 2 * half).every(isReady)));
    for (const door of one.doors.slice(half)) door.hold('toServer');
    for (const door of two.doors.slice(0, half)) door.hold('toServer');
    const serve = async (lock: Redlock): Promise<void> => {
      const lease = await lock.acquire('x', { ttlMs: TTL_MS, waitMs: TTL_MS });
      await lease.release();
    };
    const runs = [serve(one.lock), serve(two.lock)];
    await until(async () => (await liveHolders(world, 2 * half)) === 2 * half);
    for (const { doors } of sides) for (const door of doors) door.heal();
    await Promise.all(runs);
    await until(async () => (await liveHolders(world, 2 * half)) === 0);
  });

  test('if another client holds half of the remaining nodes, a waiter is served when that lease is over', async () => {
    const side = await world.side({ client: { maxRetriesPerRequest: 0 } });
    await until(() => side.clients.slice(0, 2 * half).every(isReady));
    const lockTables = world.lockTables.slice(0, half);
    await Promise.all(lockTables.map((lockTable) => lockTable.take('y', 'other', 300)));
    const lease: Lease = await side.lock.acquire('y', { ttlMs: TTL_MS, waitMs: TTL_MS });
    lease.ensure();
    expect(await lease.release()).toBe('released');
  });
});

test('with one of three nodes stopped, and one held by another client for a while, an acquisition succeeds after that (redlock#58, redlock#169)', async () => {
  await using world = await LockWorld.start(3);
  await world.renew();
  const side = await world.connected();
  await world.servers[2]?.pause();
  await world.lockTables[0]?.take('x', 'other', 300);
  const startedMs = performance.now();
  const lease = await side.lock.acquire('x', { ttlMs: 2_000, waitMs: TTL_MS });
  // The client waits for the silent node once, for half of the TTL. It needs that node's vote as
  // long as the other client holds one of the two other nodes.
  expect(performance.now() - startedMs).toBeLessThan(2_500);
  expect(await lease.release()).toBe('released');
});

const isReady = ({ status }: { readonly status: string }): boolean => status === 'ready';

async function liveHolders({ lockTables }: LockWorld, live: number): Promise<number> {
  const held = await Promise.all(
    lockTables.slice(0, live).map((lockTable) => lockTable.ownerOf('x')),
  );
  return held.filter((owner) => owner !== null).length;
}

async function keysIn({ admins, keyPrefix }: LockWorld, db: number): Promise<string[]> {
  const all = await Promise.all(
    admins.map(async (node) => {
      const client = node.duplicate({ db });
      const keys = await client.keys(`*${keyPrefix}*`);
      client.disconnect();
      return keys;
    }),
  );
  return all.flat();
}
