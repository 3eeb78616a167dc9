import * as present from '@fenced/lock';
import { WorkerProcess } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { PreviousVersion } from './harness/previous-version.js';
import { until } from './harness/redlock-nodes.js';
import { LockWorld, nameOf } from './harness/world.js';

const WORKERS = new URL('./harness/waiting-workers.ts', import.meta.url);
const TTL_MS = 60_000;
const [WORKERS_EACH, ROUNDS] = [3, 5];

type Version = 'previous' | 'present';

let previous: PreviousVersion;
let world: LockWorld;
beforeAll(async () => {
  previous = await PreviousVersion.unpack();
  world = await LockWorld.start(3);
});
afterAll(async () => {
  await world?.[Symbol.asyncDispose]();
  await previous[Symbol.asyncDispose]();
});

function connect(parts: AsyncDisposableStack): { name: string; client: Redis }[] {
  return world.servers.map(({ port }, at) => {
    const client = new Redis(port, { retryStrategy: () => 20 });
    client.on('error', () => {});
    parts.defer(() => client.disconnect());
    return { name: nameOf(at), client };
  });
}

/** A client of this version, with connections of its own. */
function open(
  version: Version,
  parts: AsyncDisposableStack,
  keyPrefix = world.keyPrefix,
): present.Redlock {
  const nodes = connect(parts);
  const { Redlock } = version === 'previous' ? previous.library : present;
  return parts.use(new Redlock({ nodes, keyPrefix }));
}

/** Extends a lease by a client of the previous version, which needs no token. */
function extended(lock: present.Redlock, held: present.LeaseReference): Promise<number> {
  return lock.extend(held as present.HeldLeaseReference, TTL_MS);
}

/** One lease, as a worker process reports it. */
interface Served {
  readonly version: Version;
  readonly servedMs: number;
  readonly leftMs: number;
  readonly token: string;
}

beforeEach(() => world.renew());

test('processes of both versions take turns at one lock, in one queue', async () => {
  await using parts = new AsyncDisposableStack();
  const holder = open('previous', parts);
  const lease = await holder.acquire('x', { ttlMs: TTL_MS });
  const served: Served[] = [];
  const ports = world.servers.map(({ port }) => port);
  const order = { ports, keyPrefix: world.keyPrefix, resource: 'x', ttlMs: 10_000, holdMs: 2 };
  const processes = await Promise.all(
    (['previous', 'present', 'previous', 'present'] as const).map((version) => {
      const module = version === 'previous' ? previous.url : undefined;
      const args = [JSON.stringify({ ...order, module, workers: WORKERS_EACH, rounds: ROUNDS })];
      const onLine = (line: string) => served.push({ ...JSON.parse(line), version });
      return WorkerProcess.start(WORKERS, { args, onLine });
    }),
  );
  for (const one of processes) parts.use(one);
  await world.untilWaiting(processes.length * WORKERS_EACH);
  await lease.release();
  for (const { exited } of processes) expect(await exited).toMatchObject({ code: 0 });

  const leases = served.toSorted((a, b) => a.servedMs - b.servedMs);
  expect(leases).toHaveLength(processes.length * WORKERS_EACH * ROUNDS);
  const turns = new Set<string>();
  let [token, leftMs, version] = [lease.token, 0, 'previous'];
  for (const current of leases) {
    expect(current.servedMs).toBeGreaterThan(leftMs);
    expect(BigInt(current.token)).toBeGreaterThan(token);
    turns.add(`${version} → ${current.version}`);
    [token, leftMs, version] = [BigInt(current.token), current.leftMs, current.version];
  }
  expect(turns.size).toBe(4);
  await world.untilClean();
}, 60_000);

describe.each<[Version, Version]>([
  ['previous', 'present'],
  ['present', 'previous'],
])('on nodes that the %s version has set up', (first, second) => {
  test(`the ${second} version gets votes, is refused a held lock, and extends and releases its leases`, async () => {
    await using parts = new AsyncDisposableStack();
    const [one, two] = [open(first, parts), open(second, parts)];
    for (const resource of ['x', ['x', 'y']]) {
      const lease = await one.acquire(resource, { ttlMs: 5_000 });
      expect(await two.tryAcquire('x', { ttlMs: 5_000 })).toMatchObject({ reason: 'held' });
      const { owner, resources, token } = lease;
      const held = { resource: resources, owner };
      const extending =
        second === 'present' ? two.extend({ ...held, token }, TTL_MS) : extended(two, held);
      expect(await extending).toBeGreaterThan(50_000);
      const waiting = two.acquire('x', { ttlMs: 5_000, waitMs: TTL_MS });
      await world.untilWaiting(1);
      expect(await two.release({ resource: resources, owner })).toBe('released');
      await using next = await waiting;
      expect(next.token).toBeGreaterThan(lease.token);
    }
    const status = await two.status();
    expect(status.map((node) => node.reachable && node.noVote === null)).toEqual([
      true,
      true,
      true,
    ]);
  });

  test(`the ${second} version readmits a node that lost its memory`, async () => {
    await using parts = new AsyncDisposableStack();
    const [one, two] = [open(first, parts), open(second, parts)];
    const before = await one.acquire('x', { ttlMs: 1_000 });
    await before.release();
    const [node] = world.servers;
    await node?.kill();
    await node?.start();
    await until(async () => (await two.readmit()).ok);
    await until(async () => (await one.status()).every((each) => each.reachable && !each.noVote));
    for (const lock of [two, one]) {
      await using lease = await lock.acquire('x', { ttlMs: 1_000, waitMs: 5_000 });
      expect(lease.token).toBeGreaterThan(before.token);
    }
  });
});

test('a move carries the leases of the previous version, which knows no moves', async () => {
  await using parts = new AsyncDisposableStack();
  const keyPrefix = `${world.keyPrefix}next:`;
  const [old, next] = [open('previous', parts), open('previous', parts, keyPrefix)];
  const lease = await old.acquire('x', { ttlMs: TTL_MS });
  const nodes = connect(parts);
  const set = { nodes, keyPrefix: world.keyPrefix, next: { nodes, keyPrefix } };
  const operator = parts.use(new present.Redlock(set));
  await until(async () => (await operator.move()).state === 'done');
  await expect(lease.extend(TTL_MS)).rejects.toMatchObject({ code: 'config-mismatch' });
  await expect(old.acquire('y', { ttlMs: TTL_MS })).rejects.toMatchObject({
    code: 'config-mismatch',
  });
  expect(await next.tryAcquire('x', { ttlMs: TTL_MS })).toMatchObject({ reason: 'held' });
  const held = { resource: 'x', owner: lease.owner };
  expect(await extended(next, held)).toBeGreaterThan(50_000);
  expect(await next.release(held)).toBe('released');
  await using later = await next.acquire('x', { ttlMs: TTL_MS });
  expect(later.token).toBeGreaterThan(lease.token);
});
