import { setTimeout as sleep } from 'node:timers/promises';
import type { Redlock } from '@fenced/lock';
import { type LocalRedisNode, startLocalRedis } from '@fenced/testbed';
import type { Redis } from 'ioredis';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Clients, until } from './harness/redlock-nodes.js';

/** The longest lease that is granted here. */
const MAX_TTL_MS = 2_000;
const ROOM_BYTES = 2_000_000;
const AT_ONCE = 50;

let clients: Clients;
beforeEach(() => {
  clients = new Clients();
});
afterEach(() => {
  clients[Symbol.dispose]();
});

/** Limits the memory of each node to its present use and room for some names. */
async function limitMemory(admins: readonly Redis[], roomBytes: number): Promise<void> {
  for (const admin of admins) {
    const [, used] = /^used_memory:(\d+)/m.exec(await admin.info('memory')) ?? [];
    await admin.config('SET', 'maxmemory', Number(used) + roomBytes);
  }
}

/**
 * Locks new names, first many at once and then one at a time, until one is refused. Returns the
 * number of names that were locked.
 */
async function fill(lock: Redlock): Promise<{ names: number; refusal: unknown }> {
  let names = 0;
  for (let atOnce = AT_ONCE; ; ) {
    const leases = Array.from({ length: atOnce }, async () => {
      names += 1;
      await tokenOf(lock, `order/${names}/${performance.now()}`);
    });
    const refused = (await Promise.allSettled(leases)).find(({ status }) => status === 'rejected');
    if (refused?.status !== 'rejected') continue;
    // A node may lack only the memory to read several requests at once.
    if (atOnce === 1) return { names, refusal: refused.reason };
    atOnce = 1;
  }
}

async function tokenOf(lock: Redlock, name: string, waitMs = 0): Promise<bigint> {
  const lease = await lock.acquire(name, { ttlMs: 500, waitMs });
  await lease.release();
  return lease.token;
}

test.each([1, 3])(
  '%i nodes with full memory say so, keep the held locks, and recover by themselves',
  {
    timeout: 60_000,
  },
  async (count) => {
    await using service = await startLocalRedis(count);
    const lock = clients.lock(service.nodes, { maxTtlMs: MAX_TTL_MS });
    const admins = service.nodes.map(({ port }: Pick<LocalRedisNode, 'port'>) =>
      clients.connect(port),
    );
    const [kept, early] = await Promise.all(
      ['kept', 'early'].map((name) => lock.acquire(name, { ttlMs: MAX_TTL_MS })),
    );
    const before = await tokenOf(lock, 'before');
    await limitMemory(admins, ROOM_BYTES);
    const [keeping, keepingEarly] = [new AbortController(), new AbortController()];
    const lost = Promise.all([keep(kept, keeping.signal), keep(early, keepingEarly.signal)]).then(
      () => 'none',
      (error: unknown) => error,
    );

    const { names, refusal } = await fill(lock);
    expect(names).toBeGreaterThan(1_000);
    expect(refusal).toMatchObject({
      code: 'memory-full',
      message: expect.stringMatching(/maxmemory/),
    });
    keepingEarly.abort();
    expect(await early?.release()).toBe('released');

    const fullMs = performance.now();
    await until(async () => (await lock.tryAcquire('new', { ttlMs: 500 })).ok);
    expect(performance.now() - fullMs).toBeLessThan(2 * MAX_TTL_MS + 3_000);
    expect(await tokenOf(lock, 'before', 10_000)).toBeGreaterThan(before);
    expect(await tokenOf(lock, 'early', 10_000)).toBeGreaterThan(early?.token ?? 0n);
    expect(await lock.tryAcquire('kept', { ttlMs: 500 })).toMatchObject({ reason: 'held' });
    // When the nodes have forgotten the old names, there is room for new ones.
    await until(async () => (await fill(lock)).names > names / 2);
    keeping.abort();
    expect(await lost).toBe('none');
    expect(await kept?.release()).toBe('released');
  },
);

test('status shows names and memory, and warns above three quarters', async () => {
  await using service = await startLocalRedis(1);
  const [server] = service.nodes as unknown as readonly [LocalRedisNode];
  const lock = clients.lock(service.nodes);
  for (const name of ['x', 'y', 'z']) await tokenOf(lock, name, 10_000);
  const [free] = await lock.status();
  expect(free).toMatchObject({ resources: 3, maxMemoryBytes: null, warnings: [] });
  if (!free?.reachable) throw new Error('the node must answer');
  expect(free.usedMemoryBytes).toBeGreaterThan(500_000);
  const admin = clients.connect(server.port);
  const maxMemoryBytes = Math.round(free.usedMemoryBytes * 1.25);
  await admin.config('SET', 'maxmemory', maxMemoryBytes);
  const warning = expect.stringMatching(/of maxmemory.*fenceTtlMs/);
  expect(await lock.status()).toMatchObject([{ maxMemoryBytes, warnings: [warning] }]);
  // Names from before the last rotation count, too.
  await admin.hset(`${clients.keyPrefix}node`, 'opened', '1');
  await tokenOf(lock, 'w', 10_000);
  expect(await lock.status()).toMatchObject([{ resources: 4 }]);
});

test('a node that restarts with full memory votes again, and grants the names that it knows', async () => {
  await using service = await startLocalRedis(1, { persistence: 'aof' });
  const [server] = service.nodes as unknown as readonly [LocalRedisNode];
  const lock = clients.lock(service.nodes);
  const before = await tokenOf(lock, 'x', 10_000);
  await server.kill();
  await server.start('kept');
  await clients.connect(server.port).config('SET', 'maxmemory', '1');
  expect(await tokenOf(lock, 'x', 20_000)).toBeGreaterThan(before);
  await expect(lock.acquire('y', { ttlMs: 500 })).rejects.toMatchObject({ code: 'memory-full' });
});

/** Extends the lease again and again, as its holder would. */
async function keep(
  lease: { extend(ttlMs: number): Promise<void> } | undefined,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    await lease?.extend(MAX_TTL_MS);
    await sleep(MAX_TTL_MS / 8, null, { signal }).catch(() => undefined);
  }
}
