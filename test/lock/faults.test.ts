import { NoQuorumError } from '@fenced/lock';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { until } from './harness/redlock-nodes.js';
import { LockWorld, nameOf, type Side } from './harness/world.js';

const TTL_MS = 60_000;
/**
 * A node that has not answered after this time counts as unreachable, however long the lease is.
 */
const NODE_LIMIT_MS = 2_000;
/** A call that takes longer has waited for a faulty node, even on a busy machine. */
const SLOW_MS = 5_000;

type Disturbance = (side: Side, at: number) => void;

// Each program has its own connections and resources, so all faults can run at once.
const faults: readonly (readonly [string, Disturbance])[] = [
  [
    'is a black hole',
    ({ doors }, at) => {
      doors[at]?.swallow('toServer');
      doors[at]?.swallow('toClient');
    },
  ],
  ['answers after five seconds', ({ doors }, at) => doors[at]?.delay('toClient', SLOW_MS)],
  ['has its connection cut, and refuses another', ({ doors }, at) => doors[at]?.shut()],
  [
    'is being connected to',
    ({ doors, clients }, at) => {
      doors[at]?.hold('toServer');
      clients[at]?.disconnect(true);
    },
  ],
];

describe.concurrent.each([1, 3, 4, 5])('of %i nodes', (count) => {
  let world: LockWorld;
  beforeAll(async () => {
    world = await LockWorld.start(count);
    await world.renew();
  });
  afterAll(() => world?.[Symbol.asyncDispose]());

  const spare = count - Math.floor(count / 2) - 1;

  /** Starts nodes for this test alone, because a stopped node is stopped for all clients. */
  async function withStopped(stopped: number, run: typeof nobodyWaits): Promise<void> {
    await using own = await LockWorld.start(count);
    await own.renew();
    await run(own, 'x', () =>
      Promise.all(own.servers.slice(0, stopped).map((server) => server.pause())),
    );
  }

  // A majority of 1 or 2 nodes needs every node.
  if (spare > 0) {
    test.each(faults)(
      `${spare} faulty, each %s: no client waits for them (redsync#140, redisson#1636)`,
      (fault, disturb) =>
        nobodyWaits(world, `${spare} ${fault}`, (side) => disturbFirst(spare, side, disturb)),
    );

    test(`${spare} stopped: no client waits for them (redsync#133)`, () =>
      withStopped(spare, nobodyWaits));
  }

  test.each(faults)(
    `${spare + 1} faulty, each %s: every call ends in time, reports the failure, and leaves no key (redlock#58, redlock#83, redlock#169)`,
    (fault, disturb) =>
      everythingSettles(world, `${spare + 1} ${fault}`, (side) =>
        disturbFirst(spare + 1, side, disturb),
      ),
  );

  test(`${spare + 1} stopped: every call ends in time, reports the failure, and leaves no key`, () =>
    withStopped(spare + 1, everythingSettles));
});

function disturbFirst(count: number, side: Side, disturb: Disturbance): void {
  for (let at = 0; at < count; at += 1) disturb(side, at);
}

async function nobodyWaits(
  world: LockWorld,
  resource: string,
  disturb: (side: Side) => unknown,
): Promise<void> {
  const side = await world.connected();
  await disturb(side);
  const startedMs = performance.now();
  const lease = await side.lock.acquire(resource, { ttlMs: TTL_MS });
  await lease.extend(TTL_MS);
  expect(await lease.release()).toBe('released');
  const again = await side.lock.acquire(resource, { ttlMs: TTL_MS, waitMs: TTL_MS });
  expect(performance.now() - startedMs).toBeLessThan(NODE_LIMIT_MS);
  await again.release();
  side.heal();
  await Promise.all(world.servers.map((server) => server.wake()));
  await until(async () => (await world.holders(resource)) === 0);
}

async function everythingSettles(
  world: LockWorld,
  resource: string,
  disturb: (side: Side) => unknown,
): Promise<void> {
  const side = await world.connected();
  const [held, given] = [`${resource} held`, `${resource} given`];
  const lease = await side.lock.acquire(held, { ttlMs: TTL_MS });
  const other = await side.lock.acquire(given, { ttlMs: TTL_MS });
  await until(
    async () =>
      (await world.holders(held)) + (await world.holders(given)) === 2 * world.servers.length,
  );
  await disturb(side);
  const startedMs = performance.now();
  const [refusal, extension, outcome] = await Promise.all([
    side.lock.acquire(resource, { ttlMs: TTL_MS }).catch((error: unknown) => error),
    lease.extend(TTL_MS).catch((error: unknown) => error),
    other.release(),
  ]);
  expect(performance.now() - startedMs).toBeLessThan(SLOW_MS);
  for (const failure of [refusal, extension]) {
    expect(failure).toBeInstanceOf(NoQuorumError);
    const { nodes, message } = failure as NoQuorumError;
    const silent = nodes.filter(({ answer }) => answer === 'error');
    expect(silent.map(({ name }) => name)).toEqual(
      [...Array(world.servers.length - world.majority + 1).keys()].map(nameOf),
    );
    for (const { name, error } of silent) {
      expect(error?.message).toMatch(/\w/);
      expect(message).toContain(`${name}: ${error?.message}`);
    }
  }
  expect(outcome).toBe('unknown');
  expect(lease.signal.aborted).toBe(false);
  side.heal();
  await Promise.all(world.servers.map((server) => server.wake()));
  await until(() => side.clients.every(({ status }) => status === 'ready'));
  expect(await lease.release()).toBe('released');
  await until(async () => (await world.holders(held)) + (await world.holders(resource)) === 0);
}
