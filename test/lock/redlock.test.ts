import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import {
  AcquireTimeoutError,
  LeaseLostError,
  LockArgumentError,
  LockHeldError,
  NoQuorumError,
  Redlock,
  type RedlockConfig,
} from '@fenced/lock';
import { type RedisService, startRedis } from '@fenced/testbed';
import { Redis, type RedisOptions } from 'ioredis';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { inScript } from '../../packages/lock/src/redis/batch-encoding.js';
import { Command } from '../../packages/lock/src/redis/command.js';
import { nodeKeys } from '../../packages/lock/src/redis/node-keys.js';
import { scriptFor } from '../../packages/lock/src/redis/scripts.js';
import { LockTable } from './harness/lock-table.js';

let service: RedisService;
let keyPrefix: string;
const clients: Redis[] = [];
const admin: Redis[] = [];

beforeAll(async () => {
  service = await startRedis(3);
  admin.push(...service.nodes.map(({ port }) => new Redis(port)));
});
afterAll(async () => {
  for (const client of admin) client.disconnect();
  await service?.stop();
});
beforeEach(() => {
  // Nodes are new to every test.
  keyPrefix = `{${randomUUID()}}:`;
});
afterEach(async () => {
  for (const client of clients.splice(0)) client.disconnect();
  await Promise.all(service.nodes.map((node) => node.wake()));
});

type ClientOptions = Pick<RedisOptions, 'db' | 'keyPrefix' | 'username' | 'password'>;

function connect(port: number, options: ClientOptions = {}): Redis {
  const client = new Redis(port, '127.0.0.1', { ...options, maxRetriesPerRequest: 0 });
  client.on('error', () => {});
  clients.push(client);
  return client;
}

function redlock(config: Partial<RedlockConfig> = {}, options: ClientOptions = {}): Redlock {
  const nodes = service.nodes.map(({ name, port }) => ({ name, client: connect(port, options) }));
  return new Redlock({ nodes, keyPrefix, firstToken: 33n, ...config });
}

function lockTables(): LockTable[] {
  return admin.map((node) => new LockTable(node, keyPrefix));
}

/** The number of nodes that hold the lock of the resource. */
async function holders(resource: string): Promise<number> {
  const held = await Promise.all(lockTables().map((lockTable) => lockTable.ownerOf(resource)));
  return held.filter((owner) => owner !== null).length;
}

async function until(condition: () => Promise<boolean> | boolean): Promise<void> {
  while (!(await condition())) await setTimeout(5);
}

describe('tokens', () => {
  test('begin at firstToken on new nodes and grow with every acquisition of any client', async () => {
    const [one, two] = [redlock(), redlock()];
    const tokens: bigint[] = [];
    for (const lock of [one, two, one, one, two]) {
      const lease = await lock.acquire('invoice/42', { ttlMs: 5_000 });
      tokens.push(lease.token);
      expect(await lease.release()).toBe('released');
    }
    expect(tokens).toEqual([33n, 34n, 35n, 36n, 37n]);
  });

  test('begin at the wall clock if no first token is given', async () => {
    const nodes = service.nodes.map(({ name, port }) => ({ name, client: connect(port) }));
    const beforeUs = BigInt(Date.now()) * 1000n;
    await using lease = await new Redlock({ nodes, keyPrefix }).acquire('x', { ttlMs: 1_000 });
    expect(lease.token).toBeGreaterThan(beforeUs);
    expect(lease.token).toBeLessThan(beforeUs + 60_000_000n);
  });

  test('cost one round trip to each node without contention', async () => {
    const asked = [0, 0, 0];
    const nodes = service.nodes.map(({ name, port }, at) => {
      const client = connect(port);
      const evalsha: typeof client.evalsha = (...values: unknown[]) => {
        asked[at] = (asked[at] ?? 0) + 1;
        return Reflect.apply(client.evalsha, client, values);
      };
      return { name, client: { evalsha, eval: client.eval.bind(client) } };
    });
    const lock = redlock({ nodes });
    await (await lock.acquire('warm-up', { ttlMs: 10_000 })).release();
    // A release settles with a majority, so a request to the last node may be on its way. Two PINGs
    // wait for it, and for the request that its answer may cause.
    for (const _ of [1, 2]) await Promise.all(clients.map((client) => client.ping()));
    const before = [...asked];
    await using _ = await lock.acquire('fresh', { ttlMs: 10_000 });
    await until(async () => (await holders('fresh')) === 3);
    expect(asked).toEqual(before.map((calls) => calls + 1));
  });

  test('are confirmed on a majority if one node is ahead of the others', async () => {
    const lock = redlock();
    await (await lock.acquire('invoice/42', { ttlMs: 1_000 })).release();
    await until(async () => (await holders('invoice/42')) === 0);
    await lockTables()[1]?.setToken('invoice/42', 50n);
    await admin[1]?.hset(`${keyPrefix}node`, 'max', '50');

    // Only two nodes answer, so the token of the node that is ahead decides.
    await service.nodes[2]?.pause();
    await using lease = await lock.acquire('invoice/42', { ttlMs: 5_000 });
    expect(lease.token).toBe(51n);
    const first = lockTables().slice(0, 2);
    const known = await Promise.all(first.map((lockTable) => lockTable.tokenOf('invoice/42')));
    expect(known).toEqual([51n, 51n]);
    await service.nodes[2]?.wake();
  });

  test('go on above the highest of all if a resource has been forgotten', async () => {
    const lock = redlock();
    await (await lock.acquire('a', { ttlMs: 1_000 })).release();
    const other = await lock.acquire('b', { ttlMs: 1_000 });
    await Promise.all(lockTables().map((lockTable) => lockTable.forget('a')));
    const again = await lock.acquire('a', { ttlMs: 1_000 });
    expect(again.token).toBeGreaterThan(other.token);
  });

  test('of a set are a single number, above every earlier token of each of its resources', async () => {
    const lock = redlock();
    const tokens: bigint[] = [];
    for (const set of ['a', 'b', ['b', 'a'], 'a', ['a', 'c'], 'c']) {
      const lease = await lock.acquire(set, { ttlMs: 1_000 });
      tokens.push(lease.token);
      await lease.release();
    }
    expect(tokens).toEqual(tokens.toSorted((x, y) => Number(x - y)));
    expect(new Set(tokens).size).toBe(tokens.length);
  });

  test('grow, and leases stay valid, when nodes begin a new lock table; a resource that two of these changes have removed gets a token above all others', async () => {
    const lock = redlock();
    const nodes = (fields: Record<string, number>): Promise<unknown> =>
      Promise.all(admin.map((node) => node.hset(`${keyPrefix}node`, fields)));
    const another = async (): Promise<bigint> => {
      const lease = await lock.acquire('another', { ttlMs: 1_000 });
      await lease.release();
      return lease.token;
    };
    const isHeld = async (): Promise<boolean> => {
      const attempt = await redlock().tryAcquire('a', { ttlMs: 1_000 });
      return !attempt.ok && attempt.reason === 'held';
    };
    /** The number of nodes without a record. An acquisition may concern only a bare majority. */
    const forgetful = async (resource: string): Promise<number> => {
      const known = await Promise.all(lockTables().map((lockTable) => lockTable.of(resource)));
      return known.filter((record) => record === null).length;
    };
    await (await lock.acquire('b', { ttlMs: 1_000 })).release();
    const lease = await lock.acquire('a', { ttlMs: 30_000 });
    await nodes({ opened: 1 });
    await another();
    expect(await isHeld()).toBe(true);
    // As if a clock had gone back since, and were right again now. A further change of tables would
    // come too early for the leases of the earlier table, so there is none.
    await nodes({ opened: 1 });
    await another();
    expect(await isHeld()).toBe(true);
    expect(await forgetful('b')).toBe(0);
    await lease.extend(30_000);
    await nodes({ opened: 1, rotated: 1 });
    const highest = await another();
    // The extended lease is in the present table. The record of `b` was in the earlier one.
    expect(await isHeld()).toBe(true);
    expect(await forgetful('b')).toBeGreaterThanOrEqual(2);
    expect((await lock.acquire('b', { ttlMs: 1_000 })).token).toBeGreaterThan(highest);
    expect(await lease.release()).toBe('released');
    expect((await lock.acquire('a', { ttlMs: 1_000 })).token).toBeGreaterThan(lease.token);
  });

  test('are never lowered by a late CONFIRM, after other acquisitions have raised them', async () => {
    const lock = redlock();
    const lease = await lock.acquire('x', { ttlMs: 5_000 });
    const [[node], [lockTable]] = [admin, lockTables()];
    const [owner, members] = await Promise.all([
      lockTable?.ownerOf('x'),
      node?.hget(`${keyPrefix}node`, 'members'),
    ]);
    const keys = [`${keyPrefix}queue:x`];
    const confirm = async (token: bigint) => {
      const command = new Command('confirm', keys, [`${owner}`, `${token}`, 60_000]);
      const told = inScript(nodeKeys(keyPrefix), `${members}`, [{ command }]);
      const reply = `${await node?.eval(scriptFor([{ command }]).source, ...told)}`;
      const [[answer, raised, voter]] = JSON.parse(reply.split('\n')[0] ?? '');
      return [answer, BigInt(raised), voter];
    };
    await confirm(lease.token + 7n);
    expect(await confirm(lease.token + 5n)).toEqual(['granted', lease.token + 8n, 1]);
    expect(await lockTable?.tokenOf('x')).toBe(lease.token + 8n);
  });

  test('that would pass 2^53-1 are refused by name, and nothing is locked', async () => {
    const lock = redlock({ firstToken: 2n ** 53n - 1n });
    await (await lock.acquire('x', { ttlMs: 1_000 })).release();
    await until(async () => (await holders('x')) === 0);
    await expect(lock.acquire('x', { ttlMs: 1_000 })).rejects.toMatchObject({
      code: 'token-exhausted',
    });
    await until(async () => (await holders('x')) === 0);
  });

  test('never repeat and never go back while many acquire and nodes are stopped at random', {
    timeout: 60_000,
  }, async () => {
    const locks = Array.from({ length: 6 }, () => redlock());
    const granted: { askedMs: number; heldMs: number; token: bigint }[] = [];
    let over = false;
    const nemesis = (async () => {
      for (let round = 0; !over; round += 1) {
        const node = service.nodes[round % 3];
        await node?.pause();
        await setTimeout(40);
        await node?.wake();
        await setTimeout(20);
      }
    })();
    await Promise.all(
      locks.map(async (lock) => {
        while (granted.length < 100) {
          const askedMs = performance.now();
          const attempt = await lock.tryAcquire('hot', { ttlMs: 300 });
          if (!attempt.ok) {
            // Without a pause, three clients that have locked one node each would stay so for ever.
            // Each would send its release and its next request together.
            await setTimeout(10 * Math.random());
            continue;
          }
          granted.push({ askedMs, heldMs: performance.now(), token: attempt.lease.token });
          await attempt.lease.release();
        }
      }),
    );
    over = true;
    await nemesis;
    expect(new Set(granted.map(({ token }) => token)).size).toBe(granted.length);
    for (const earlier of granted) {
      const later = granted.filter(({ askedMs }) => askedMs > earlier.heldMs);
      expect(later.every(({ token }) => token > earlier.token)).toBe(true);
    }
  });
});

describe('a lease', () => {
  test('keeps others out until it is released, and names the nodes that refused', async () => {
    const lock = redlock();
    const lease = await lock.acquire('x', { ttlMs: 5_000 });
    const attempt = await lock.tryAcquire('x', { ttlMs: 5_000 });
    expect(attempt).toMatchObject({ ok: false, reason: 'held' });
    if (!attempt.ok) {
      expect(attempt.retryAfterMs).toBeGreaterThan(3_000);
      expect(attempt.nodes.filter(({ answer }) => answer === 'held').length).toBeGreaterThan(1);
    }
    await expect(redlock().acquire('x', { ttlMs: 5_000 })).rejects.toThrow(LockHeldError);
    await lease.release();
    await using next = await lock.acquire('x', { ttlMs: 5_000 });
    expect(next.token).toBeGreaterThan(lease.token);
  });

  test('makes an acquire wait until the lease or waitMs is over', async () => {
    const lock = redlock();
    await lock.acquire('x', { ttlMs: 1_000 });
    await expect(lock.acquire('x', { ttlMs: 1_000, waitMs: 50 })).rejects.toThrow(
      AcquireTimeoutError,
    );
    await using lease = await lock.acquire('x', { ttlMs: 1_000, waitMs: 5_000 });
    expect(lease.token).toBeGreaterThan(33n);
  });

  test('ends at its deadline: the signal aborts, nothing can be done under it, releasing is no error', async () => {
    const lease = await redlock().acquire('x', { ttlMs: 500 });
    expect(lease.remainingMs()).toBeLessThan(500);
    expect(lease.signal.aborted).toBe(false);
    lease.ensure(10);
    const { promise, resolve } = Promise.withResolvers<void>();
    lease.signal.addEventListener('abort', () => resolve());
    await promise;
    expect(lease.signal.reason).toBeInstanceOf(LeaseLostError);
    expect(lease.remainingMs()).toBe(0);
    expect(() => lease.ensure()).toThrow(LeaseLostError);
    await expect(lease.extend(1_000)).rejects.toThrow(LeaseLostError);
    await until(async () => (await holders('x')) === 0);
    expect(await lease.release()).toBe('expired');
    expect(await lease.release()).toBe('expired');
  });

  test('can be extended under the same token, but not after another client has had the lock', async () => {
    const lock = redlock();
    const lease = await lock.acquire('x', { ttlMs: 1_000 });
    await lease.extend(20_000);
    expect(lease.remainingMs()).toBeGreaterThan(15_000);
    await lease.extend(500);
    expect(lease.remainingMs()).toBeGreaterThan(15_000);

    // An acquisition settles with a majority. The last node may get the lock later.
    await until(async () => (await holders('x')) === 3);
    await Promise.all(lockTables().map((lockTable) => lockTable.free('x')));
    const successor = await redlock().acquire('x', { ttlMs: 5_000 });
    await until(async () => (await holders('x')) === 3);
    await expect(lease.extend(1_000)).rejects.toThrow(LeaseLostError);
    expect(lease.signal.aborted).toBe(true);
    successor.ensure(1_000);
    expect(await holders('x')).toBe(3);
  });

  test('keeps its deadline if an extension found too few nodes', async () => {
    const lease = await redlock().acquire('x', { ttlMs: 5_000 });
    await Promise.all(service.nodes.slice(0, 2).map((node) => node.pause()));
    await expect(lease.extend(1_000)).rejects.toThrow(NoQuorumError);
    expect(lease.signal.aborted).toBe(false);
    lease.ensure(1_000);
  });

  test('of several resources is all or nothing', async () => {
    const lock = redlock();
    const held = await lock.acquire('b', { ttlMs: 5_000 });
    await expect(lock.acquire(['a', 'b', 'c'], { ttlMs: 5_000 })).rejects.toThrow(LockHeldError);
    await until(async () => (await holders('a')) + (await holders('c')) === 0);
    await held.release();
    await using set = await lock.acquire(['c', 'a', 'b'], { ttlMs: 5_000, waitMs: 1_000 });
    expect(set.resources).toEqual(['a', 'b', 'c']);
    await expect(lock.acquire('c', { ttlMs: 5_000 })).rejects.toThrow(LockHeldError);
  });
});

describe('using', () => {
  test('gives the lock up on all nodes once maxHoldMs has passed', async () => {
    const limited = redlock().using('x', { ttlMs: 2_000, maxHoldMs: 2_000 }, () => {
      return until(async () => (await holders('x')) === 0);
    });
    await expect(limited).rejects.toThrow(LeaseLostError);
  });

  test("puts the routine's own error first, also if the lease was lost", async () => {
    const failing = redlock().using('x', { ttlMs: 500 }, async () => {
      await Promise.all(lockTables().map((lockTable) => lockTable.free('x')));
      await setTimeout(400);
      throw new Error('out of paper');
    });
    await expect(failing).rejects.toThrow('out of paper');
  });

  test('aborts the signal of a lost lease at the next extension, and rejects though the routine resolved', async () => {
    let reason: unknown;
    const lost = redlock().using('x', { ttlMs: 1_000 }, async (lease) => {
      await Promise.all(lockTables().map((lockTable) => lockTable.free('x')));
      await new Promise<void>((resolve) => lease.signal.addEventListener('abort', () => resolve()));
      reason = lease.signal.reason;
      return 'done';
    });
    await expect(lost).rejects.toThrow(LeaseLostError);
    expect(reason).toBeInstanceOf(LeaseLostError);
  });
});

describe('nodes', () => {
  test('one that hangs delays no client', async () => {
    const lock = redlock();
    await (await lock.acquire('x', { ttlMs: 10_000 })).release();
    await service.nodes[1]?.pause();
    const startedMs = performance.now();
    const lease = await lock.acquire('x', { ttlMs: 10_000 });
    await lease.extend(10_000);
    expect(await lease.release()).toBe('released');
    // A wait for the hung node would take 2,000 ms, its time limit.
    expect(performance.now() - startedMs).toBeLessThan(1_000);
  });

  test('a majority that hangs fails the acquisition in time, and leaves no key behind when it wakes', async () => {
    const lock = redlock();
    await (await lock.acquire('x', { ttlMs: 60_000 })).release();
    await until(async () => (await holders('x')) === 0);
    await Promise.all(service.nodes.slice(0, 2).map((node) => node.pause()));
    await expect(lock.acquire('x', { ttlMs: 1_000 })).rejects.toThrow(NoQuorumError);
    await Promise.all(service.nodes.map((node) => node.wake()));
    await until(async () => (await holders('x')) === 0);
    await using lease = await lock.acquire('x', { ttlMs: 1_000, waitMs: 1_000 });
    expect(lease.token).toBeGreaterThan(33n);
  });

  test('the outcome of a release that a majority did not answer is unknown', async () => {
    const lease = await redlock().acquire('x', { ttlMs: 60_000 });
    await Promise.all(service.nodes.slice(0, 2).map((node) => node.pause()));
    const startedMs = performance.now();
    expect(await lease.release()).toBe('unknown');
    expect(performance.now() - startedMs).toBeLessThan(3_000);
  });

  test('one that lost its memory has no vote; with the others tokens go on', async () => {
    const lock = redlock();
    const before = await lock.acquire('x', { ttlMs: 1_000 });
    await before.release();
    await admin[0]?.del(`${keyPrefix}node`);
    const lease = await lock.acquire('x', { ttlMs: 1_000, waitMs: 1_000 });
    expect(lease.token).toBeGreaterThan(before.token);
    expect(await lockTables()[0]?.ownerOf('x')).toBe(null);
    await service.nodes[1]?.pause();
    const attempt = await redlock().tryAcquire('y', { ttlMs: 1_000 });
    if (attempt.ok) throw new Error('a majority needs the vote of the node without memory');
    expect(attempt.nodes[0]).toMatchObject({ name: 'a', answer: 'not-voting' });
  });

  test('new ones vote only once all of them answer, and the error names the missing ones', async () => {
    await service.nodes[2]?.pause();
    const refused = redlock().acquire('x', { ttlMs: 1_000 });
    await expect(refused).rejects.toThrow(/c \(no answer within \d+ ms.*bring back c;/);
    await service.nodes[2]?.wake();
    await using lease = await redlock().acquire('x', { ttlMs: 1_000 });
    expect(lease.token).toBe(33n);
  });

  test('many clients that meet new nodes at once agree on the incarnation of each', async () => {
    const leases = await Promise.all(
      Array.from({ length: 8 }, (_, at) =>
        redlock().acquire(`r${at}`, { ttlMs: 5_000, waitMs: 5_000 }),
      ),
    );
    // The first token of these new nodes is 33.
    for (const lease of leases) expect(lease.token).toBeGreaterThanOrEqual(33n);
    const known = await Promise.all(
      admin.map((node) => node.hmget(`${keyPrefix}node`, 'incarnation', 'roster')),
    );
    const incarnations = known.map(([incarnation]) => incarnation);
    for (const [, roster] of known) {
      expect(roster?.split(',').map((life) => life.split(':')[1])).toEqual(incarnations);
    }
  });

  test('that have all lost their votes go on above every token that any of them remembers', async () => {
    const lock = redlock();
    const before = await lock.acquire('x', { ttlMs: 1_000 });
    await before.release();
    await until(async () => (await holders('x')) === 0);
    await Promise.all(admin.map((node) => node.hdel(`${keyPrefix}node`, 'history')));
    await Promise.all(admin.slice(1).map((node) => node.del(`${keyPrefix}node`)));
    const lease = await lock.acquire('x', { ttlMs: 1_000, waitMs: 10_000 });
    expect(lease.token).toBeGreaterThan(before.token);
  });

  test('forget scripts without anyone noticing', async () => {
    const lock = redlock();
    await (await lock.acquire('x', { ttlMs: 1_000 })).release();
    await Promise.all(admin.map((node) => node.script('FLUSH')));
    await using lease = await lock.acquire('x', { ttlMs: 1_000, waitMs: 1_000 });
    expect(lease.token).toBe(34n);
  });

  test("keys stay in the client's own database and behind its own prefix", async () => {
    await using _ = await redlock({}, { db: 3, keyPrefix: 'app:' }).acquire('x', { ttlMs: 5_000 });
    const [node] = service.nodes;
    const client = connect(node?.port ?? 0, { db: 3 });
    const keys = await client.keys(`app:${keyPrefix}*`);
    expect(keys.sort()).toEqual([`app:${keyPrefix}node`]);
    expect(await new LockTable(client, `app:${keyPrefix}`).taken()).toEqual(['x']);
    expect(await holders('x')).toBe(0);
  });

  test('a lock of another owner that seems never to end is held for the longest lease', async () => {
    const lock = redlock();
    await (await lock.acquire('y', { ttlMs: 1_000 })).release();
    const field = `${keyPrefix}queue:x`;
    const text = `${'9'.repeat(15)} ${'1'.padStart(16, '0')} mine`;
    await Promise.all(admin.map((node) => node.hset(`${keyPrefix}node`, field, text)));
    await expect(lock.acquire('x', { ttlMs: 1_000 })).rejects.toThrow(LockHeldError);
    await using _ = await lock.acquire('x', { ttlMs: 1_000, waitMs: 10_000 });
  });

  test.each<[string, (node: Redis) => Promise<unknown>, (node: Redis) => Promise<unknown>]>([
    [
      'a key',
      (node) => node.set(`${keyPrefix}node`, 'mine'),
      (node) => node.get(`${keyPrefix}node`),
    ],
    [
      'a lock record',
      (node) => node.hset(`${keyPrefix}node`, `${keyPrefix}queue:x`, 'mine'),
      (node) => node.hget(`${keyPrefix}node`, `${keyPrefix}queue:x`),
    ],
  ])(
    '%s of another program in the place of a lock is an error, not overwritten',
    async (_, put, get) => {
      const lock = redlock();
      await (await lock.acquire('y', { ttlMs: 1_000 })).release();
      await Promise.all(admin.map(put));
      const refused = await lock.acquire('x', { ttlMs: 1_000 }).catch((error: unknown) => error);
      expect(refused).toBeInstanceOf(NoQuorumError);
      const { nodes } = refused as NoQuorumError;
      expect(nodes.filter(({ answer }) => answer === 'error').length).toBeGreaterThan(1);
      for (const client of clients) await client.ping();
      for (const node of admin) expect(await get(node)).toBe('mine');
    },
  );
});

describe('giving up', () => {
  test('an abort ends the wait with its own reason and leaves nothing behind', async () => {
    const lock = redlock();
    const lease = await lock.acquire('x', { ttlMs: 60_000 });
    const reason = new Error('the user went home');
    const controller = new AbortController();
    const waiting = lock.acquire('x', { ttlMs: 1_000, waitMs: 60_000, signal: controller.signal });
    await setTimeout(60);
    controller.abort(reason);
    await expect(waiting).rejects.toBe(reason);
    await lease.release();
    await until(async () => (await holders('x')) === 0);
    await expect(
      lock.acquire('x', { ttlMs: 1_000, signal: AbortSignal.abort(reason) }),
    ).rejects.toBe(reason);
  });

  test('an abort in the middle of an acquisition releases the granted locks', async () => {
    const lock = redlock();
    await (await lock.acquire('x', { ttlMs: 1_000 })).release();
    await Promise.all(service.nodes.slice(0, 2).map((node) => node.pause()));
    const controller = new AbortController();
    const attempt = lock.tryAcquire('x', { ttlMs: 60_000, signal: controller.signal });
    await until(async () => (await lockTables()[2]?.ownerOf('x')) !== null);
    controller.abort();
    expect(await attempt).toMatchObject({ ok: false, reason: 'aborted' });
    await Promise.all(service.nodes.map((node) => node.wake()));
    await until(async () => (await holders('x')) === 0);
  });

  test.each([...Array(24).keys()])(
    'an abort %i turns of the event queue after the last vote gives no lease without its locks, and no locks without a lease',
    async (turns) => {
      const controller = new AbortController();
      let replies = 0;
      const abortSoon = async (): Promise<void> => {
        for (let turn = 0; turn < turns; turn += 1) await null;
        controller.abort();
      };
      const watched = service.nodes.map(({ name, port }) => {
        const client = connect(port);
        const evalsha: typeof client.evalsha = async (...values: unknown[]) => {
          const reply = await Reflect.apply(client.evalsha, client, values);
          replies += 1;
          if (replies === 2) void abortSoon();
          return reply;
        };
        return { name, client: { evalsha, eval: client.eval.bind(client) } };
      });
      await (await redlock().acquire('warm-up', { ttlMs: 1_000 })).release();
      const lock = redlock({ nodes: watched });
      const outcome = await lock
        .acquire('x', { ttlMs: 60_000, signal: controller.signal })
        .catch((error: unknown) => error);
      if (outcome instanceof Error) {
        await until(async () => (await holders('x')) === 0);
      } else {
        await until(async () => (await holders('x')) === 3);
      }
    },
  );

  test('close releases held locks and ends waits, and leaves the clients to their owner', async () => {
    const lock = redlock();
    const lease = await lock.acquire('x', { ttlMs: 60_000 });
    const waiting = lock.acquire('x', { ttlMs: 60_000, waitMs: 60_000 });
    const refused = expect(waiting).rejects.toMatchObject({ code: 'closed' });
    await lock.close();
    await refused;
    expect(lease.signal.aborted).toBe(true);
    await until(async () => (await holders('x')) === 0);
    await expect(lock.acquire('x', { ttlMs: 1_000 })).rejects.toMatchObject({ code: 'closed' });
    expect(await clients[0]?.ping()).toBe('PONG');
  });
});

describe('a misconfiguration', () => {
  const nodesOf = (...ports: number[]) =>
    ports.map((port, at) => ({ name: `n${at}`, client: connect(port) }));
  const port = (at: number): number => service.nodes[at]?.port ?? 0;

  test('is refused before anything is sent', async () => {
    const client = connect(port(0));
    const wrong: Partial<RedlockConfig>[] = [
      { nodes: [] },
      { nodes: [client, connect(port(0))] },
      {
        nodes: [
          { name: 'a', client },
          { name: 'a', client: connect(port(1)) },
        ],
      },
      {
        nodes: [
          { name: 'a', client },
          { name: 'b', client },
        ],
      },
      { nodes: [{ name: '', client }] },
      { nodes: [{} as never] },
      { nodes: [null as never] },
      { nodes: undefined as never },
      { maxTtlMs: 0 },
      { firstToken: 0n },
    ];
    for (const config of wrong) expect(() => redlock(config)).toThrow(LockArgumentError);

    const lock = redlock();
    const calls = [
      lock.acquire('', { ttlMs: 1_000 }),
      lock.acquire([], { ttlMs: 1_000 }),
      lock.acquire('x', { ttlMs: 0 }),
      lock.acquire('x', { ttlMs: 60_001 }),
      lock.acquire('x', { ttlMs: 1_000, waitMs: -1 }),
      lock.acquire('x', undefined as never),
      lock.using('x', { ttlMs: 1_000, maxHoldMs: -1 }, () => 0),
      lock.using('x', undefined as never, () => 0),
      lock.using('x', { ttlMs: 1_000 }, undefined as never),
      lock.acquire('x', { ttlMs: 1_000, signal: {} as never }),
      lock.acquire(1n as never, { ttlMs: 1_000 }),
    ];
    for (const call of calls) await expect(call).rejects.toThrow(LockArgumentError);
    const keys = await Promise.all(admin.map((node) => node.keys(`${keyPrefix}*`)));
    expect(keys.flat()).toEqual([]);
  });

  test('two names for one server are refused', async () => {
    const lock = redlock({ nodes: nodesOf(port(0), port(1), port(0)) });
    await expect(lock.acquire('x', { ttlMs: 1_000 })).rejects.toThrow(/n0 and n2 are the same/);
  });

  test('a client with other members is refused, however few nodes it knows', async () => {
    await using _ = await redlock().acquire('x', { ttlMs: 5_000 });
    const alone = redlock({ nodes: [{ name: 'a', client: connect(port(0)) }] });
    await expect(alone.acquire('y', { ttlMs: 1_000 })).rejects.toMatchObject({
      code: 'config-mismatch',
    });
    await admin[0]?.hdel(`${keyPrefix}node`, 'history');
    await expect(alone.acquire('y', { ttlMs: 1_000 })).rejects.toMatchObject({
      code: 'config-mismatch',
    });
  });

  test('a client that swaps the names of two nodes is refused', async () => {
    await using _ = await redlock().acquire('x', { ttlMs: 5_000 });
    const [a, b, c] = service.nodes;
    const swapped = [
      { name: 'a', client: connect(b?.port ?? 0) },
      { name: 'b', client: connect(a?.port ?? 0) },
      { name: 'c', client: connect(c?.port ?? 0) },
    ];
    const attempt = redlock({ nodes: swapped }).acquire('y', { ttlMs: 1_000 });
    await expect(attempt).rejects.toMatchObject({ code: 'config-mismatch' });
  });

  test('a node whose own record is damaged has no vote, and nothing hangs or crashes', async () => {
    const lock = redlock();
    await (await lock.acquire('x', { ttlMs: 1_000 })).release();
    await Promise.all(
      admin.slice(0, 2).map((node) => node.hset(`${keyPrefix}node`, 'vote', '1 life')),
    );
    await expect(lock.acquire('y', { ttlMs: 1_000 })).rejects.toThrow(NoQuorumError);
  });

  test('a TTL that this client allows and the nodes do not is refused', async () => {
    await using _ = await redlock({ maxTtlMs: 5_000 }).acquire('x', { ttlMs: 5_000 });
    const lock = redlock({ maxTtlMs: 60_000 });
    await expect(lock.acquire('y', { ttlMs: 5_001 })).rejects.toMatchObject({
      code: 'ttl-too-long',
    });
  });

  test("an address without a server, a server that is no Redis, and a wrong password are the node's answer", async () => {
    const web = createServer((_, response) => response.end('<html></html>'));
    await new Promise<void>((resolve) => web.listen(0, '127.0.0.1', resolve));
    const webPort = (web.address() as AddressInfo).port;
    const wrong = [
      connect(1),
      connect(webPort),
      connect(port(0), { username: 'nobody', password: 'wrong' }),
    ];
    for (const client of wrong) {
      const lock = redlock({ nodes: [{ name: 'a', client }] });
      const refused = await lock.acquire('x', { ttlMs: 1_000 }).catch((error: unknown) => error);
      expect(refused).toBeInstanceOf(NoQuorumError);
      expect(refused).toMatchObject({ nodes: [{ name: 'a', answer: 'error' }] });
    }
    web.closeAllConnections();
    web.close();
  });
});
