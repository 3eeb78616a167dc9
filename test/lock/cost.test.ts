import { Redlock } from '@fenced/lock';
import { startLocalRedis, TcpProxy } from '@fenced/testbed';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { CountedNode, type Program } from './harness/counted-node.js';
import { until } from './harness/redlock-nodes.js';
import { connect } from './harness/world.js';

/** Longer than a test may last. */
const TTL_MS = 60_000;
/** A limit for a busy machine. */
const LIMIT_MS = 120_000;
/** Number of waiters for sets. Together they wait in more queues than one script may inspect. */
const APART = 48;
/** Number of silent waiters. Together they are in more queues than one script may clean. */
const SILENT = 40;
/** Commands for each key of a script: the cost of all calls together is linear in their keys. */
const COMMANDS_PER_KEY = 10;
/** Commands that one script may spend on waiters of other calls: it removes or notifies them. */
const COMMANDS_FOR_OTHERS = 2_800;
/** A script with more commands is not short on any machine. */
const COMMANDS_MAX = 6_000;

let node: CountedNode;
beforeEach(async () => {
  node = await CountedNode.start();
});
afterEach(() => node?.[Symbol.asyncDispose]());

/** The names of `count` resources, in sort order. */
function names(count: number, prefix = 'r'): string[] {
  return Array.from({ length: count }, (_, at) => `${prefix}${String(at).padStart(3, '0')}`);
}

function last(resources: readonly string[]): string {
  return resources.at(-1) ?? '';
}

/** Waits for a lease of the program, and releases it. */
async function serve({ lock }: Program, resources: readonly string[]): Promise<void> {
  await using _ = await lock.acquire(resources, { ttlMs: TTL_MS, waitMs: TTL_MS });
}

/** The keys of all waiters on the node. */
async function waiters(): Promise<number> {
  return (await node.admin.keys('*waiter:*')).length;
}

function expectShortScripts(): void {
  for (const { keys, commands } of node.costs) {
    expect(commands).toBeLessThan(COMMANDS_PER_KEY * keys + COMMANDS_FOR_OTHERS);
    expect(commands).toBeLessThan(COMMANDS_MAX);
  }
}

describe.each([64, 128, 256])('of %i resources in one call', { timeout: LIMIT_MS }, (k) => {
  test('waiters for one set of which only the last is held ask with short scripts, and are served', async () => {
    const set = names(k);
    const [holder, waiting] = [node.program(), node.program()];
    const lease = await holder.lock.acquire(last(set), { ttlMs: TTL_MS, waitMs: TTL_MS });
    const served = Array.from({ length: 20 }, () => serve(waiting, set));
    await until(async () => (await waiters()) === 20);
    // Without a message, each waiter asks again when its time has come.
    const asked = node.costs.length;
    await until(() => node.costs.length > asked + 20);
    await lease.release();
    await Promise.all(served);
    expectShortScripts();
  });

  test('64 sets in one tick are taken, extended and given up by short scripts', async () => {
    const { lock } = node.program();
    const options = { ttlMs: TTL_MS, waitMs: TTL_MS };
    const sets = Array.from({ length: 64 }, (_, at) => names(k, `${at} `));
    const leases = await Promise.all(sets.map((set) => lock.acquire(set, options)));
    await Promise.all(leases.map((lease) => lease.extend(TTL_MS)));
    await Promise.all(leases.map((lease) => lease.release()));
    expectShortScripts();
  });

  test('a release is short though many resources have another first waiter, with a set of its own, and all are served', async () => {
    const set = names(k);
    const [holder, waiting] = [node.program(), node.program()];
    const lease = await holder.lock.acquire(set, { ttlMs: TTL_MS, waitMs: TTL_MS });
    const served = set
      .slice(0, APART)
      .map((resource) => serve(waiting, [resource, ...names(k - 1, `${resource} `)]));
    // The keys are the node's own hash, a queue for each resource, and one for each waiter.
    await until(async () => (await node.admin.dbsize()) === 1 + APART * k + APART);
    await lease.release();
    await Promise.all(served);
    expectShortScripts();
  });

  test('silent waiters in every queue are passed over by short scripts', async () => {
    const set = names(k);
    const [holder, silent, waiting] = [node.program(), node.program(), node.program()];
    const lease = await holder.lock.acquire(last(set), { ttlMs: TTL_MS, waitMs: TTL_MS });
    const controller = new AbortController();
    const { signal } = controller;
    const gone = Array.from({ length: SILENT }, () =>
      silent.lock.acquire(set, { ttlMs: TTL_MS, waitMs: TTL_MS, signal }).catch(() => {}),
    );
    await until(async () => (await waiters()) === SILENT);
    const served = waiting.lock.acquire(set, { ttlMs: TTL_MS, waitMs: TTL_MS });
    await until(async () => (await waiters()) === SILENT + 1);
    silent.silence();
    await until(async () => (await waiters()) === 1);
    expect(await node.admin.zcard(`{fenced}:queue:${set[0]}`)).toBeGreaterThan(SILENT);
    await lease.release();
    await (await served).release();
    controller.abort();
    await Promise.all(gone);
    expectShortScripts();
  });
});

test(
  'no client overtakes a waiter behind more silent ones than two scripts may remove',
  async () => {
    const [holder, silent, waiting] = [node.program(), node.program(), node.program()];
    const options = { ttlMs: TTL_MS, waitMs: TTL_MS };
    const lease = await holder.lock.acquire('x', options);
    const controller = new AbortController();
    const { signal } = controller;
    const gone = Array.from({ length: 1_100 }, () =>
      silent.lock.acquire('x', { ...options, signal }).catch(() => {}),
    );
    await until(async () => (await waiters()) === 1_100);
    const served = waiting.lock.acquire('x', options);
    await until(async () => (await waiters()) === 1_101);
    silent.silence();
    await until(async () => (await waiters()) === 1);
    expect(await node.admin.zcard('{fenced}:queue:x')).toBe(1_101);
    // Both requests arrive in one script, before the waiter can ask again.
    const released = lease.release();
    const attempt = await node.program().lock.tryAcquire('x', { ttlMs: TTL_MS });
    expect(attempt).toMatchObject({ ok: false, reason: 'held' });
    expect(await released).toBe('released');
    expect(await (await served).release()).toBe('released');
    controller.abort();
    await Promise.all(gone);
  },
  LIMIT_MS,
);

test(
  '1,000 waiters for one set of 256 resources ask with short scripts',
  async () => {
    const set = names(256);
    const [holder, waiting] = [node.program(), node.program()];
    await holder.lock.acquire(last(set), { ttlMs: TTL_MS, waitMs: TTL_MS });
    const controller = new AbortController();
    const { signal } = controller;
    const all = Array.from({ length: 1_000 }, () =>
      waiting.lock.acquire(set, { ttlMs: TTL_MS, waitMs: TTL_MS, signal }).catch(() => {}),
    );
    await until(() => node.costs.length > 1_000);
    controller.abort();
    await Promise.all(all);
    expectShortScripts();
  },
  LIMIT_MS,
);

test(
  'a waiter that a busy node answers too late keeps its place, and is served',
  async () => {
    await using parts = new AsyncDisposableStack();
    const redis = parts.use(await startLocalRedis(1));
    const port = redis.nodes[0]?.port ?? 0;
    const line = parts.use(await TcpProxy.start({ host: '127.0.0.1', port }));
    const program = (at: number): Redlock => {
      const client = parts.adopt(connect(at), (opened) => opened.disconnect());
      return parts.use(new Redlock({ nodes: [{ name: 'n', client }] }));
    };
    const admin = parts.adopt(connect(port), (opened) => opened.disconnect());
    const calls = async (command: string): Promise<number> => {
      const stats = await admin.info('commandstats');
      return Number(new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
    };
    const waiterKeys = () => admin.keys('*waiter:*');
    const lease = await program(port).acquire('x', { ttlMs: 60_000 });
    const served = program(line.port).acquire('x', { ttlMs: 1_000, waitMs: 60_000 });
    await until(async () => (await waiterKeys()).length === 1);
    const place = await waiterKeys();
    line.hold('toClient');
    // The waiter has given up waiting for an answer, so the lock opens another connection.
    const { connections } = line;
    await until(async () => line.connections > connections);
    expect(await waiterKeys()).toEqual(place);
    expect(await calls('zrem')).toBe(0);
    line.release('toClient');
    await lease.release();
    expect(await (await served).release()).toBe('released');
  },
  LIMIT_MS,
);
