import { setTimeout as sleep } from 'node:timers/promises';
import type { Lease, Redlock } from '@fenced/lock';
import { type LocalRedisNode, startLocalRedis } from '@fenced/testbed';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { LockTable } from './harness/lock-table.js';
import { Clients, until } from './harness/redlock-nodes.js';

const TTL_MS = 1_500;

let clients: Clients;
beforeEach(() => {
  clients = new Clients();
});
afterEach(() => {
  clients[Symbol.dispose]();
});

async function ownerOn({ port }: LocalRedisNode, resource: string): Promise<string | null> {
  const client = clients.connect(port);
  const owner = await new LockTable(client, clients.keyPrefix).ownerOf(resource);
  client.disconnect();
  return owner;
}

/**
 * Waits until the node holds the lease for the owner that a majority has. Fails if the lease ends.
 */
async function untilHeldBy(lease: Lease, node: LocalRedisNode, resource = 'x'): Promise<void> {
  await until(async () => {
    lease.ensure();
    const owner = await ownerOn(node, resource);
    // Does not read `lease.owner`, because the library then expects other processes to use the
    // lease.
    return owner !== null && owner === (await majorityOwner(resource));
  });
}

let servers: readonly LocalRedisNode[] = [];
/** The owner that holds the lock on most nodes. */
async function majorityOwner(resource: string): Promise<string | null> {
  const owners = await Promise.all(servers.map((server) => ownerOn(server, resource)));
  const counts = new Map<string, number>();
  for (const owner of owners) if (owner !== null) counts.set(owner, (counts.get(owner) ?? 0) + 1);
  const most = [...counts].find(([, count]) => count > servers.length / 2);
  return most?.[0] ?? null;
}

/**
 * Restarts the nodes one after the other. After each restart, waits until that node votes and holds
 * the lease.
 */
async function restartAll(lease: Lease, data: 'kept' | 'none'): Promise<void> {
  for (const server of servers) {
    await server.kill();
    await server.start(data);
    await clients.untilVoting(server);
    await untilHeldBy(lease, server);
  }
}

/**
 * Asks for the lock again and again, as candidates in an election do. @returns the tokens of all
 * leases that were granted
 */
async function rival(lock: Redlock, over: AbortSignal): Promise<readonly bigint[]> {
  const tokens: bigint[] = [];
  while (!over.aborted) {
    const attempt = await lock.tryAcquire('x', { ttlMs: TTL_MS });
    if (attempt.ok) tokens.push(attempt.lease.token);
    await sleep(40);
  }
  return tokens;
}

describe.each([3, 5])('of %i nodes that restart one after the other', (count) => {
  test.each([
    ['with their data, and are durable', 'kept', true],
    ['without their data', 'none', false],
  ] as const)(
    '%s: a lease under `using` survives with its token, though others ask for it all the time',
    { timeout: 60_000 },
    async (_, data, isDurable) => {
      await using service = await startLocalRedis(count, { persistence: 'aof' });
      servers = service.nodes;
      const over = new AbortController();
      const config = { isDurable, maxTtlMs: TTL_MS };
      const lock = clients.lock(servers, config);
      let rivals: Promise<readonly bigint[]> | null = null;
      const token = await lock.using('x', { ttlMs: TTL_MS, waitMs: 5_000 }, async (lease) => {
        rivals = rival(clients.lock(servers, config), over.signal);
        await restartAll(lease, data);
        over.abort();
        expect(await rivals).toEqual([]);
        return lease.token;
      });
      const later = await lock.acquire('x', { ttlMs: TTL_MS, waitMs: 5_000 });
      expect(later.token).toBeGreaterThan(token);
    },
  );

  test('a lease that another process extends by its owner survives, too', {
    timeout: 60_000,
  }, async () => {
    await using service = await startLocalRedis(count);
    servers = service.nodes;
    const config = { maxTtlMs: TTL_MS };
    const lease = await clients
      .lock(servers, config)
      .acquire(['x', 'y'], { ttlMs: TTL_MS, waitMs: 5_000 });
    const held = { resource: ['x', 'y'], owner: lease.owner, token: lease.token };
    const other = clients.lock(servers, config);
    let isOver = false;
    const extending = (async () => {
      while (!isOver) {
        await other.extend(held, TTL_MS).catch((error) => {
          if (error.code !== 'no-quorum') throw error;
        });
        await sleep(TTL_MS / 4);
      }
    })();
    for (const server of servers) {
      await server.kill();
      await server.start('none');
      await Promise.race([
        extending,
        until(
          async () =>
            (await ownerOn(server, 'x')) === held.owner &&
            (await ownerOn(server, 'y')) === held.owner,
        ),
      ]);
    }
    isOver = true;
    await extending;
    expect(await other.release(held)).toBe('released');
    const later = await other.acquire(['x', 'y'], { ttlMs: TTL_MS, waitMs: 5_000 });
    expect(later.token).toBeGreaterThan(lease.token);
  });
});

describe('a node that restarts while no client acquires', () => {
  const MANY = 50;

  /**
   * Opens a lock over three nodes. Returns it with functions that restart the first node without
   * its data, and that wait for its vote.
   */
  async function restarted(stack: AsyncDisposableStack) {
    const { nodes } = stack.use(await startLocalRedis(3));
    servers = nodes;
    const [first, second] = nodes;
    if (!first || !second) throw new Error('there are not enough nodes');
    const lock = clients.lock(nodes, { maxTtlMs: TTL_MS });
    const restart = async (): Promise<void> => {
      await first.kill();
      await first.start('none');
    };
    const isVoting = async (): Promise<boolean> => (await clients.memory(first)).isVoting;
    const scripts = async (): Promise<number> => {
      const client = clients.connect(second.port);
      const [, calls = 0] = /cmdstat_evalsha:calls=(\d+)/.exec(await client.info('all')) ?? [];
      client.disconnect();
      return Number(calls);
    };
    return { lock, restart, isVoting, scripts };
  }

  test('has its vote back if `using` extends a lease', async () => {
    await using stack = new AsyncDisposableStack();
    const { lock, restart, isVoting } = await restarted(stack);
    await lock.using('x', { ttlMs: TTL_MS, waitMs: 5_000 }, async (lease) => {
      await restart();
      await until(async () => {
        lease.ensure();
        return isVoting();
      });
    });
  });

  test('has its vote back if another process extends a lease, which does not ask the other nodes each time', async () => {
    await using stack = new AsyncDisposableStack();
    const { lock, restart, isVoting, scripts } = await restarted(stack);
    const { owner, token } = await lock.acquire('x', { ttlMs: TTL_MS, waitMs: 5_000 });
    const other = clients.lock(servers, { maxTtlMs: TTL_MS });
    await restart();
    const before = await scripts();
    let extensions = 0;
    while (!(await isVoting())) {
      await other.extend({ resource: 'x', owner, token }, TTL_MS);
      extensions += 1;
    }
    expect(extensions).toBeGreaterThan(MANY);
    expect((await scripts()) - before - extensions).toBeLessThan(MANY);
  });
});
