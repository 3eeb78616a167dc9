import { setTimeout as sleep } from 'node:timers/promises';
import { AcquireTimeoutError, type Lease, Redlock } from '@fenced/lock';
import { TcpProxy, WorkerProcess } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { until } from './harness/redlock-nodes.js';
import { LockWorld, nameOf, type Side } from './harness/world.js';

const WORKERS = new URL('./harness/waiting-workers.ts', import.meta.url);
/** Far longer than a test may last. */
const TTL_MS = 60_000;
/** The TTL, and so the grace period, of a waiter for a short lease. */
const GRACE_MS = 600;
/** The TTL of a holder that crashes: long enough that two waiters enqueue before its end. */
const CRASHED_TTL_MS = 2_000;
/**
 * A waiter in the holder's process may be served before waiters that came up to so much earlier.
 */
const TOGETHER_MS = 50;
/** The number of leases of each worker. */
const ROUNDS = 4;

/** A worker's line about one lease. */
interface Served {
  readonly worker: string;
  /** The earliest and the latest arrival by the clocks of the nodes; null if the lock was free. */
  readonly askedMs: number;
  readonly cameMs: number | null;
  readonly queuedMs: number | null;
  readonly servedMs: number;
  readonly leftMs: number;
}

describe.each([1, 3, 4, 5])('of %i nodes', (count) => {
  let world: LockWorld;
  beforeAll(async () => {
    world = await LockWorld.start(count);
  });
  afterAll(() => world?.[Symbol.asyncDispose]());
  beforeEach(() => world.renew());

  /** Starts a process whose workers lock `x` again and again. */
  const startWorkers = (
    more: { ttlMs: number; workers: number; holdMs: number; rounds: number },
    onServed: (served: Served) => void = () => {},
  ): Promise<WorkerProcess> => {
    const ports = world.servers.map(({ port }) => port);
    const args = [JSON.stringify({ ports, keyPrefix: world.keyPrefix, resource: 'x', ...more })];
    return WorkerProcess.start(WORKERS, { args, onLine: (line) => onServed(JSON.parse(line)) });
  };

  /** Waits in the queue for a lease. */
  const wait = async (
    { lock }: Side,
    resource: string | readonly string[],
    ttlMs = TTL_MS,
  ): Promise<Lease> => lock.acquire(resource, { ttlMs, waitMs: TTL_MS });

  test('20 workers in 4 processes are served in the order in which they came, and equally often', async () => {
    const served: Served[] = [];
    const holder = await world.connected();
    const lease = await holder.lock.acquire('x', { ttlMs: TTL_MS });
    await using programs = new AsyncDisposableStack();
    const started = [0, 1, 2, 3].map((process) =>
      startWorkers({ ttlMs: 10_000, workers: 5, holdMs: 5, rounds: ROUNDS }, (line) => {
        served.push({ ...line, worker: `${process}/${line.worker}` });
      }),
    );
    const processes = await Promise.all(started);
    for (const one of processes) programs.use(one);
    await world.untilWaiting(20);
    await lease.release();
    for (const { exited } of processes) expect(await exited).toMatchObject({ code: 0 });

    const leases = served.toSorted((a, b) => a.servedMs - b.servedMs);
    expect(leases).toHaveLength(20 * ROUNDS);
    const often = new Map(leases.map(({ worker }) => [worker, 0]));
    for (const [at, current] of leases.entries()) {
      expect(current.servedMs).toBeGreaterThan(leases[at - 1]?.leftMs ?? 0);
      // The nodes decide once for successive waiters of one process: when the last lease of another
      // process has ended.
      const before = leases.slice(0, at).findLast((one) => processOf(one) !== processOf(current));
      const calledMs = before?.leftMs ?? 0;
      expect(leases.slice(at + 1).filter((later) => isAhead(later, current, calledMs))).toEqual([]);
      often.set(current.worker, (often.get(current.worker) ?? 0) + 1);
      const counts = [...often.values()];
      expect(Math.max(...counts) - Math.min(...counts)).toBeLessThan(3);
    }
    expect(leases.filter(({ queuedMs }) => queuedMs !== null).length).toBeGreaterThan(20);
    await world.untilClean();
  });

  test('a waiter that was killed or stopped delays the others by its grace period at most, and leaves no key behind', async () => {
    const [holder, side] = [await world.connected(), await world.connected()];
    const lease = await holder.lock.acquire('x', { ttlMs: TTL_MS });
    const served: Served[] = [];
    const more = { ttlMs: GRACE_MS, workers: 1, holdMs: 0, rounds: 1 };
    const start = (): Promise<WorkerProcess> => startWorkers(more, (line) => served.push(line));
    await using killed = await start();
    await using stopped = await start();
    await world.untilWaiting(2);
    const waiting = wait(side, 'x');
    await world.untilWaiting(3);
    // The killed waiter is silent, so it loses its position. The stopped one becomes the successor,
    // and does not answer within its grace period.
    const killedMs = performance.now();
    await killed.kill();
    await world.untilWaiting(2);
    expect(performance.now() - killedMs).toBeLessThan(GRACE_MS * 3);
    await stopped.pause();
    const releasedMs = performance.now();
    expect(await lease.release()).toBe('released');
    const next = await waiting;
    // A majority has granted the lock. The other nodes may do so a little later.
    await until(async () => (await world.keys(/^waiter:/)).length === 0);
    expect(performance.now() - releasedMs).toBeLessThan(GRACE_MS * 3);

    // The stopped waiter may believe that it is the head of the queue. The nodes refuse it as long
    // as another client holds the lock.
    await stopped.wake();
    await world.untilWaiting(1);
    next.ensure();
    expect(served).toEqual([]);
    await next.release();
    expect(await stopped.exited).toMatchObject({ code: 0 });
    expect(served).toHaveLength(1);
    await world.untilClean();
  });

  test('when the lease of a crashed holder is over, the lock goes to the head of the queue', async () => {
    const [holder, one, two] = [
      await world.connected(),
      await world.connected(),
      await world.connected(),
    ];
    const startedMs = performance.now();
    const { token } = await holder.lock.acquire('x', { ttlMs: CRASHED_TTL_MS });
    for (const door of holder.doors) door.shut();
    const order: string[] = [];
    const note = (name: string) => (lease: Lease) => {
      order.push(name);
      return lease;
    };
    const first = wait(one, 'x').then(note('first'));
    await world.untilWaiting(1);
    const second = wait(two, 'x').then(note('second'));
    await world.untilWaiting(2);
    const lease = await first;
    const tookMs = performance.now() - startedMs;
    expect(tookMs).toBeGreaterThan(CRASHED_TTL_MS - 10);
    expect(tookMs).toBeLessThan(CRASHED_TTL_MS * 3);
    expect(lease.token).toBeGreaterThan(token);
    await lease.release();
    await (await second).release();
    expect(order).toEqual(['first', 'second']);
    await world.untilClean();
  });

  test('a waiter whose wake-up messages are lost polls, and is served', async () => {
    const holder = await world.connected();
    const silent = await Promise.all(world.servers.map((server) => TcpProxy.start(server)));
    await using doors = new AsyncDisposableStack();
    for (const door of silent) doors.use(door);
    const side = await world.connected();
    for (const [at, client] of side.clients.entries()) {
      client.duplicate = () => new Redis(silent[at]?.port ?? 0, { retryStrategy: () => 20 });
    }
    const lease = await holder.lock.acquire('x', { ttlMs: TTL_MS });
    const waiting = wait(side, 'x', GRACE_MS);
    await until(async () => (await world.listeners()) === count);
    for (const door of silent) door.hold('toClient');
    await lease.release();
    await Promise.any(silent.map((door) => door.untilHeld('toClient')));
    await (await waiting).release();
    await world.untilClean();
  });

  test('a waiter whose client cannot subscribe, or may not, polls', async () => {
    const holder = await world.connected();
    const deaf = await world.connected();
    const nodes = deaf.clients.map((client, at) => ({
      name: nameOf(at),
      client: { evalsha: client.evalsha.bind(client), eval: client.eval.bind(client) },
    }));
    await using bare = new Redlock({ nodes, keyPrefix: world.keyPrefix });
    for (const admin of world.admins) {
      const rules = ['on', '>secret', '~*', '+@all', '-publish', '-subscribe', 'resetchannels'];
      await admin.acl('SETUSER', 'mute', ...rules);
    }
    const mute = await world.connected({ client: { username: 'mute', password: 'secret' } });
    for (const lock of [bare, mute.lock]) {
      const lease = await holder.lock.acquire('x', { ttlMs: TTL_MS });
      const waiting = lock.acquire('x', { ttlMs: TTL_MS, waitMs: TTL_MS });
      await world.untilWaiting(1);
      await lease.release();
      const served = await waiting;
      // This client cannot publish either, so the next waiter must poll, too.
      const next = wait(holder, 'x', GRACE_MS);
      await world.untilWaiting(1);
      await served.release();
      await (await next).release();
    }
    await world.untilClean();
  });

  test('a client that does not wait never enqueues or subscribes', async () => {
    const [holder, side] = [await world.connected(), await world.connected()];
    await using _ = await holder.lock.acquire('x', { ttlMs: TTL_MS });
    const connections = side.doors.map((door) => door.connections);
    expect(await side.lock.tryAcquire('x', { ttlMs: TTL_MS })).toMatchObject({ reason: 'held' });
    await expect(side.lock.acquire(['x', 'y'], { ttlMs: TTL_MS, waitMs: 0 })).rejects.toThrow();
    await side.untilAnswered();
    expect(await world.keys(/^(?:waiter|line):/)).toEqual([]);
    expect(side.doors.map((door) => door.connections)).toEqual(connections);
  });

  test('a waiter that gives up, by its signal, its time or its end, leaves the queue to those behind', async () => {
    const [holder, side, ending] = [
      await world.connected(),
      await world.connected(),
      await world.connected(),
    ];
    const lease = await holder.lock.acquire('x', { ttlMs: TTL_MS });
    const controller = new AbortController();
    const aborted = side.lock.acquire('x', {
      ttlMs: TTL_MS,
      waitMs: TTL_MS,
      signal: controller.signal,
    });
    const late = side.lock.acquire('x', { ttlMs: TTL_MS, waitMs: 300 });
    const closed = wait(ending, 'x');
    await world.untilWaiting(3);
    const waiting = wait(side, 'x');
    const reason = new Error('enough');
    const ends = [
      expect(aborted).rejects.toBe(reason),
      expect(late).rejects.toThrow(AcquireTimeoutError),
      expect(closed).rejects.toMatchObject({ code: 'closed' }),
    ];
    controller.abort(reason);
    await ending.lock.close();
    await Promise.all(ends);
    const gaveUpMs = performance.now();
    await world.untilWaiting(1);
    // The waiters left the queue by themselves: no position had to expire.
    expect(performance.now() - gaveUpMs).toBeLessThan(1_000);
    const releasedMs = performance.now();
    await lease.release();
    await (await waiting).release();
    // The waiter was served at once, and not after the grace period of another one.
    expect(performance.now() - releasedMs).toBeLessThan(1_000);
    await world.untilClean();
  });

  test('when close resolves, the waiters have left all queues, so the clients may be disconnected', async () => {
    const [holder, ending] = [await world.connected(), await world.connected()];
    const lease = await holder.lock.acquire('x', { ttlMs: TTL_MS });
    const closed = expect(wait(ending, 'x')).rejects.toMatchObject({ code: 'closed' });
    await world.untilWaiting(1);
    await ending.lock.close();
    for (const client of ending.clients) client.disconnect();
    await closed;
    expect(await world.keys(/^waiter:/)).toEqual([]);
    await lease.release();
    await world.untilClean();
  });

  test('subscribed connections exist only while there are waiters, and for a second after that', async () => {
    const [holder, side] = [await world.connected(), await world.connected()];
    const lease = await holder.lock.acquire('x', { ttlMs: TTL_MS });
    expect(await world.listeners()).toBe(0);
    const waiting = [wait(side, 'x'), wait(side, 'x'), wait(side, 'x')];
    await until(async () => (await world.listeners()) === count);
    await lease.release();
    await Promise.all(waiting.map(async (one) => (await one).release()));
    const served = performance.now();
    expect(await world.listeners()).toBe(count);
    await until(async () => (await world.listeners()) === 0);
    expect(performance.now() - served).toBeLessThan(3_000);

    await using _ = await holder.lock.acquire('x', { ttlMs: TTL_MS });
    const closed = expect(wait(side, 'x')).rejects.toMatchObject({ code: 'closed' });
    await until(async () => (await world.listeners()) === count);
    const closing = performance.now();
    await side.lock.close();
    await until(async () => (await world.listeners()) === 0);
    expect(performance.now() - closing).toBeLessThan(900);
    await closed;
    for (const client of side.clients) expect(await client.ping()).toBe('PONG');
  });

  test('waiters for overlapping sets are all served, each as soon as its whole set is free', async () => {
    const [holder, side] = [await world.connected(), await world.connected()];
    const all = await holder.lock.acquire(['a', 'b', 'c'], { ttlMs: TTL_MS });
    const sets = [['a', 'b'], ['b', 'c'], ['a'], ['c', 'a'], ['b']];
    const served: string[] = [];
    const held = new Set<string>();
    const runs: Promise<void>[] = [];
    for (const [at, set] of sets.entries()) {
      const run = async (): Promise<void> => {
        const lease = await wait(side, set);
        served.push(set.join(''));
        for (const one of set) expect(held.has(one)).toBe(false);
        for (const one of set) held.add(one);
        await sleep(10);
        for (const one of set) held.delete(one);
        await lease.release();
      };
      runs.push(run());
      await world.untilWaiting(at + 1);
    }
    await all.release();
    await Promise.all(runs);
    expect(served[0]).toBe('ab');
    for (const [first, second] of [
      ['ab', 'a'],
      ['ab', 'bc'],
      ['bc', 'ca'],
      ['a', 'ca'],
      ['bc', 'b'],
    ] as const) {
      expect(served.indexOf(first)).toBeLessThan(served.indexOf(second));
    }
    await world.untilClean();
  });
});

describe('of 3 nodes', () => {
  let world: LockWorld;
  beforeAll(async () => {
    world = await LockWorld.start(3);
  });
  afterAll(() => world?.[Symbol.asyncDispose]());
  beforeEach(() => world.renew({ maxTtlMs: 2_000 }));

  test.each([
    [
      'flushed',
      async ({ admins }: LockWorld) => {
        await admins[0]?.flushall();
      },
    ],
    [
      'restarted without its data',
      async ({ servers }: LockWorld) => {
        await servers[0]?.kill();
        await servers[0]?.start('none');
      },
    ],
  ] as const)(
    'if one is %s, all waiters are served, one at a time, with tokens that grow',
    async (_, forget) => {
      const config = { maxTtlMs: 2_000 };
      const sides = [await world.connected({ config }), await world.connected({ config })];
      const lease = await sides[0]?.lock.acquire('x', { ttlMs: 2_000 });
      const tokens = [lease?.token ?? 0n];
      let holders = 1;
      const waiting = Array.from({ length: 12 }, async (_, at): Promise<void> => {
        const held = await sides[at % 2]?.lock.acquire('x', { ttlMs: 2_000, waitMs: 20_000 });
        holders += 1;
        expect(holders).toBe(1);
        tokens.push(held?.token ?? 0n);
        if (tokens.length === 6) await forget(world);
        holders -= 1;
        await held?.release();
      });
      await world.untilWaiting(12);
      await forget(world);
      holders -= 1;
      await lease?.release();
      await Promise.all(waiting);
      expect(tokens).toHaveLength(13);
      expect(tokens).toEqual([...new Set(tokens)].toSorted((a, b) => Number(a - b)));
      await world.untilClean();
    },
  );

  test('no rejection is unhandled if a subscribed connection is closed while it reconnects', async () => {
    const unheard: unknown[] = [];
    const note = (reason: unknown): unknown => unheard.push(reason);
    const [holder, side] = [await world.connected(), await world.connected()];
    const [client, door] = [side.clients[0], side.doors[0]];
    if (!client || !door) throw new Error('there are three');
    await using _ = await holder.lock.acquire('x', { ttlMs: 2_000 });
    let readies = 0;
    let hasEnded = false;
    const duplicate = client.duplicate.bind(client);
    client.duplicate = (override) => {
      const listener = duplicate(override);
      listener.on('ready', () => {
        readies += 1;
        if (readies === 2) door.hold('toClient');
      });
      listener.on('end', () => {
        hasEnded = true;
      });
      return listener;
    };
    const closed = side.lock.acquire('x', { ttlMs: 2_000, waitMs: TTL_MS });
    const refused = expect(closed).rejects.toMatchObject({ code: 'closed' });
    await until(async () => (await world.listeners()) === 3);
    process.on('unhandledRejection', note);
    door.cut();
    await until(() => readies === 2);
    await door.untilHeld('toClient');
    await side.lock.close();
    await refused;
    door.cut();
    await until(() => hasEnded);
    await sleep(0);
    process.off('unhandledRejection', note);
    expect(unheard).toEqual([]);
  });

  test('1,000 waiters for one lock are all served, and leave nothing behind', async () => {
    // The long TTL is for slow machines: the lock must be held until all waiters are queued.
    await world.renew();
    const [holder, side] = [await world.connected(), await world.connected()];
    const lease = await holder.lock.acquire('x', { ttlMs: TTL_MS });
    let holders = 0;
    const waiting = Array.from({ length: 1_000 }, async (): Promise<void> => {
      const held = await side.lock.acquire('x', { ttlMs: 2_000, waitMs: TTL_MS });
      holders += 1;
      expect(holders).toBe(1);
      holders -= 1;
      await held.release();
    });
    // Unlike `untilWaiting`, this counts waiters that are late to renew, and does not list all
    // keys.
    await until(async () => (await world.queueLengths('x')).every((length) => length === 1_000));
    await lease.release();
    await Promise.all(waiting);
    expect(await world.listeners()).toBe(3);
    await world.untilClean();
  }, 60_000);
});

function processOf({ worker }: Served): string | undefined {
  return worker.split('/')[0];
}

/** True if `later` was queued before the lock was free for `served`, and had come before it. */
function isAhead(later: Served, served: Served, calledMs: number): boolean {
  const { cameMs, queuedMs } = later;
  if (cameMs === null || queuedMs === null || served.cameMs === null) return false;
  return queuedMs < calledMs && cameMs < served.askedMs - TOGETHER_MS;
}
