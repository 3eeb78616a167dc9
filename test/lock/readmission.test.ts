import { NoQuorumError } from '@fenced/lock';
import { type LocalRedisNode, startLocalRedis, TcpProxy, WorkerProcess } from '@fenced/testbed';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Inspection } from '../../packages/lock/src/core/readmission.js';
import { nodeClientOf } from '../../packages/lock/src/redis/clients/detect.js';
import { RedisNode } from '../../packages/lock/src/redis/node.js';
import { systemRuntime } from '../../packages/lock/src/runtime/runtime.js';
import { Clients, until } from './harness/redlock-nodes.js';

/**
 * The maximum delay of a vote. A round of readmission is repeated after 125 to 375 ms; the rest is
 * for a busy machine.
 */
const LATE_MAX_MS = 375 + 1_000;
const LEASE_MS = 1_200;

let clients: Clients;
beforeEach(() => {
  clients = new Clients();
});
afterEach(() => {
  clients[Symbol.dispose]();
});

/** Three servers, by index. */
type Three = readonly [LocalRedisNode, LocalRedisNode, LocalRedisNode];

async function startThree(persistence: 'none' | 'aof' = 'none', hasMovableClock = false) {
  const service = await startLocalRedis(3, { persistence, hasMovableClock });
  return { nodes: service.nodes as unknown as Three, [Symbol.asyncDispose]: service.stop };
}

async function restart(node: LocalRedisNode, data: 'kept' | 'none'): Promise<void> {
  await node.kill();
  await node.start(data);
}

/** Acquires and releases a lock. A node that the client did not wait for may still be at work. */
async function tokenOf(lock: ReturnType<Clients['lock']>, resource: string, ttlMs = 100) {
  const lease = await lock.acquire(resource, { ttlMs, waitMs: 10_000 });
  await lease.release();
  return lease.token;
}

describe('a node that lost its memory', () => {
  test('stays out for the longest lease ever granted, then comes back by itself above every token, and its vote counts', async () => {
    await using service = await startThree();
    const { nodes } = service;
    const lock = clients.lock(nodes);
    await tokenOf(lock, 'x', LEASE_MS);
    await restart(nodes[2], 'none');
    const startedMs = performance.now();
    while (!(await clients.memory(nodes[2])).hasPromised) await tokenOf(lock, 'y');
    const highest = await tokenOf(lock, 'y');
    expect(await clients.memory(nodes[2])).toMatchObject({ isVoting: false });
    // No client acquires any more: the client that has met the node readmits it by itself.
    await clients.untilVoting(nodes[2]);
    const tookMs = performance.now() - startedMs;
    expect(tookMs).toBeGreaterThan(LEASE_MS);
    expect(tookMs).toBeLessThan(LEASE_MS + LATE_MAX_MS);
    const { waitedMs, longestMs } = await clients.memory(nodes[2]);
    expect(waitedMs).toBeGreaterThanOrEqual(LEASE_MS);
    expect(longestMs).toBe(LEASE_MS);

    await nodes[0].pause();
    expect(await tokenOf(lock, 'x', LEASE_MS)).toBeGreaterThan(highest);
    await nodes[0].wake();
  });

  test('stays out for the longest lease, even if the client that readmits it would only grant shorter ones', async () => {
    await using service = await startThree();
    const { nodes } = service;
    const lease = await clients.lock(nodes).acquire('x', { ttlMs: LEASE_MS });
    await Promise.all([restart(nodes[1], 'none'), restart(nodes[2], 'none')]);
    const redeployed = clients.lock(nodes, { maxTtlMs: 100 });
    await using _ = await redeployed.acquire('x', { ttlMs: 100, waitMs: 10_000 });
    expect(lease.remainingMs()).toBe(0);
  });

  test('is readmitted once, however many clients meet it', async () => {
    await using service = await startThree();
    const { nodes } = service;
    const locks = Array.from({ length: 12 }, () => clients.lock(nodes));
    const before = await Promise.all(locks.map((lock, at) => tokenOf(lock, `r${at}`, 300)));
    await restart(nodes[1], 'none');
    let over = false;
    const busy = locks.map(async (lock, at) => {
      const tokens = [before[at] ?? 0n];
      while (!over) tokens.push(await tokenOf(lock, `r${at}`));
      return tokens;
    });
    await clients.untilVoting(nodes[1]);
    const { incarnation, generation, floor } = await clients.memory(nodes[1]);
    over = true;
    for (const tokens of await Promise.all(busy)) {
      expect(tokens).toEqual(tokens.toSorted((a, b) => Number(a - b)));
      expect(new Set(tokens).size).toBe(tokens.length);
    }
    expect(await clients.memory(nodes[1])).toMatchObject({ incarnation, generation, floor });
    expect(floor).toBeGreaterThan(before.toSorted((a, b) => Number(a - b))[0] ?? 0n);
  });

  test('waits anew if its clock has gone back by an hour, and not for that hour', async () => {
    await using service = await startThree('none', true);
    const { nodes } = service;
    const lock = clients.lock(nodes);
    await tokenOf(lock, 'x', LEASE_MS);
    await restart(nodes[2], 'none');
    while (!(await clients.memory(nodes[2])).hasPromised) await tokenOf(lock, 'y');
    await nodes[2].setClock(-3_600_000);
    const movedMs = performance.now();
    await clients.untilVoting(nodes[2]);
    expect(performance.now() - movedMs).toBeLessThan(2 * LEASE_MS + LATE_MAX_MS);
    expect((await clients.memory(nodes[2])).waitedMs).toBeGreaterThanOrEqual(LEASE_MS);
  });

  test('is back at once if it is durable and has its data, and waits if it has not', async () => {
    await using service = await startThree('aof');
    const { nodes } = service;
    const lock = clients.lock(nodes, { isDurable: true });
    const LONG_MS = 60_000;
    const before = await tokenOf(lock, 'x', LONG_MS);
    await Promise.all(nodes.map((node) => restart(node, 'kept')));
    // The next acquisition succeeds only if at least two nodes vote again.
    const after = await tokenOf(lock, 'x', LEASE_MS);
    expect(after).toBeGreaterThan(before);
    await clients.untilVoting(...nodes);

    await restart(nodes[0], 'none');
    while (!(await clients.memory(nodes[0])).hasPromised) await tokenOf(lock, 'y');
    await nodes[1].pause();
    const refused = lock.acquire('y', { ttlMs: 1_000 });
    await expect(refused).rejects.toThrow(NoQuorumError);
    const { isVoting, waitedMs } = await clients.memory(nodes[0]);
    expect(isVoting).toBe(false);
    expect(waitedMs).toBeLessThan(LONG_MS);
    await nodes[1].wake();
  });
});

test('a round that sees two nodes without a vote, one after the other, does not begin a new generation of all nodes', async () => {
  await using service = await startThree();
  const [n0, n1, n2] = service.nodes;
  await using link = await TcpProxy.start(n2);
  const lock = clients.lock([n0, n1, n2]);
  const slow = clients.lock([n0, n1, link]);
  await tokenOf(lock, 'x');
  await clients.untilVoting(n0, n1, n2);
  const generation = async (node: LocalRedisNode) => (await clients.memory(node)).generation;
  const before = await generation(n2);

  await clients.connect(n1.port).flushall();
  link.hold('toServer');
  const round = slow.readmit();
  await until(async () => (await clients.memory(n1)).incarnation !== '');
  while (!(await clients.memory(n1)).isVoting) await tokenOf(lock, 'x');
  const kept = [await generation(n0), await generation(n1)];
  await clients.connect(n2.port).flushall();
  link.release('toServer');
  // The slow round succeeds, so it has inspected the nodes again.
  expect(await round).toEqual({ ok: true });
  while (!(await clients.memory(n2)).isVoting) await tokenOf(lock, 'x');
  expect([await generation(n0), await generation(n1)]).toEqual(kept);
  expect(await generation(n2)).toBe(before + 1);
});

/** One node of two, asked directly. */
function askedDirectly({ port }: Pick<LocalRedisNode, 'port'>) {
  const { keyPrefix } = clients;
  const options = { keyPrefix, members: '1 digest', names: ['a', 'b'], maxTtlMs: LEASE_MS };
  const client = nodeClientOf(clients.connect(port));
  const named = { name: 'a', client, durable: false };
  const node = new RedisNode(named, options, systemRuntime);
  const look = async () => {
    const seen = await node.inspect();
    if (seen.answer !== 'inspected') throw new Error(`it is ${seen.answer}`);
    return seen;
  };
  return { node, look };
}

test('a node accepts a nomination only if the client knows the present one', async () => {
  await using service = await startThree();
  const { node, look } = askedDirectly(service.nodes[0]);
  const nominate = async (seen: Inspection, incarnation: string, generation: number) =>
    (await node.promise(seen, [{ index: 1, incarnation, generation }])).answer;

  expect(await nominate(await look(), 'first', 5)).toBe('promised');
  const seen = await look();
  expect(await nominate(seen, 'second', 6)).toBe('promised');
  expect(await nominate(seen, 'second', 6)).toBe('promised');
  expect(await nominate(seen, 'second', 9)).toBe('refused');
  expect(await nominate(seen, 'first', 9)).toBe('refused');
  expect(await nominate(await look(), 'third', 6)).toBe('refused');
  expect((await look()).roster[1]).toEqual({ incarnation: 'second', generation: 6 });
});

test('a clock that goes back by an hour between INSPECT and ADMIT adds no wait of an hour', async () => {
  await using service = await startThree('none', true);
  const { node, look } = askedDirectly(service.nodes[0]);
  const seen = await look();
  await service.nodes[0].setClock(-3_600_000);
  const roster = [seen, { incarnation: '', generation: 0 }];
  const facts = { floor: 0n, roster, longestMs: LEASE_MS, maxTtlMs: LEASE_MS };
  const reply = await node.admit(seen, 1, { ...facts, recoveryWaitMs: LEASE_MS });
  expect(reply).toEqual({ answer: 'too-early', leftMs: LEASE_MS });
});

test('the recovery wait begins with the first ADMIT: before a majority has promised, an old master may extend leases', async () => {
  await using service = await startThree();
  const [server] = service.nodes;
  const { node, look } = askedDirectly(server);
  const seen = await look();
  const client = clients.connect(server.port);
  const seconds = async () => Number((await client.time())[0]);
  const startedAt = await seconds();
  await until(async () => (await seconds()) > startedAt);
  const roster = [seen, { incarnation: '', generation: 0 }];
  const facts = { floor: 0n, roster, longestMs: 0, maxTtlMs: LEASE_MS };
  const admit = () => node.admit(seen, 1, { ...facts, recoveryWaitMs: 60_000 });
  expect(await admit()).toEqual({ answer: 'too-early', leftMs: 60_000 });
  const askedAt = await seconds();
  await until(async () => (await seconds()) > askedAt);
  const again = await admit();
  if (again.answer !== 'too-early') throw new Error(`it is ${again.answer}`);
  expect(again.leftMs).toBeLessThan(60_000);
});

describe('an old master', () => {
  test('that comes back with its vote is retired and readmitted', async () => {
    await using service = await startLocalRedis(4, { args: ['--repl-diskless-sync-delay', '0'] });
    const [a, b, master, replica] = service.nodes as unknown as readonly [...Three, LocalRedisNode];
    // The first replica that a master ever has changes its replication id, and so ends its
    // incarnation.
    const admin = clients.connect(replica.port);
    await admin.replicaof('127.0.0.1', master.port);
    await until(async () => (await admin.info('replication')).includes('master_link_status:up'));
    const before = clients.lock([a, b, master]);
    const old = await tokenOf(before, 'x', 200);
    await clients.untilVoting(master);
    const first = await clients.memory(master);
    await until(async () => (await clients.memory(replica)).incarnation === first.incarnation);
    await admin.replicaof('NO', 'ONE');

    const during = clients.lock([a, b, replica]);
    while (!(await clients.memory(replica)).isVoting) await tokenOf(during, 'x');
    await a.pause();
    const middle = await tokenOf(during, 'x', 200);
    await a.wake();
    expect(middle).toBeGreaterThan(old);
    await during.close();
    await replica.kill();

    // The old master was never away for these clients, and still believes that it votes.
    expect(await clients.memory(master)).toEqual({ ...first, waitedMs: expect.any(Number) });
    const isNew = async () => {
      const { isVoting, incarnation } = await clients.memory(master);
      return isVoting && incarnation !== first.incarnation;
    };
    while (!(await isNew())) await tokenOf(before, 'x');
    const last = await clients.memory(master);
    expect(last.generation).toBeGreaterThan(first.generation + 1);
    expect(last.floor).toBeGreaterThanOrEqual(middle);
    await a.pause();
    expect(await tokenOf(before, 'x', 200)).toBeGreaterThan(middle);
    await a.wake();
  });
});

describe('close', () => {
  test('ends waits in the background: no node is readmitted after it', async () => {
    await using service = await startThree();
    const { nodes } = service;
    const lock = clients.lock(nodes);
    await tokenOf(lock, 'x', LEASE_MS);
    await restart(nodes[2], 'none');
    while (!(await clients.memory(nodes[2])).hasPromised) await tokenOf(lock, 'y');
    await lock.close();
    // The recovery wait of the node has ended long ago, but no client lets the node vote.
    await until(async () => (await clients.memory(nodes[2])).waitedMs > LEASE_MS + LATE_MAX_MS);
    expect(await clients.memory(nodes[2])).toMatchObject({ isVoting: false });
  });

  test('is not needed: a process can end during the recovery wait of a node', async () => {
    await using service = await startThree();
    const { nodes } = service;
    // The recovery wait of the node is a minute, far beyond the time limit of this test.
    await tokenOf(clients.lock(nodes), 'x', 60_000);
    await restart(nodes[2], 'none');
    const lines: string[] = [];
    await using client = await acquireOnce(nodes, { resource: 'y', ttlMs: 1_000, meets: 2 }, lines);
    expect(await client.exited).toEqual({ code: 0, signal: null });
    expect(lines).toHaveLength(2);
    expect(await clients.memory(nodes[2])).toMatchObject({ hasPromised: true, isVoting: false });
  });
});

describe('first start', () => {
  test('with firstToken by 20 processes at once never jumps to the clock', async () => {
    await using service = await startThree();
    const { nodes } = service;
    // The nodes are paused, so all processes have begun before the first answer.
    await Promise.all(nodes.map((node) => node.pause()));
    const lines: string[] = [];
    const starting = Array.from({ length: 20 }, (_, at) =>
      acquireOnce(nodes, { resource: `r${at}`, ttlMs: 2_000 }, lines),
    );
    const started = await Promise.all(starting);
    await until(() => lines.length === 20);
    await Promise.all(nodes.map((node) => node.wake()));
    const exits = await Promise.all(started.map((client) => client.exited));
    expect(exits.every(({ code }) => code === 0)).toBe(true);
    const tokens = lines.slice(20).map(Number);
    expect(tokens).toHaveLength(20);
    // Each token is above 32, and no acquisition adds more than one. A clock's microseconds are
    // beyond 10^15.
    expect(Math.min(...tokens)).toBeGreaterThanOrEqual(33);
    expect(Math.max(...tokens)).toBeLessThan(10_000);
  });
});

describe('an error', () => {
  test('names the nodes that wait, and for how long', async () => {
    await using service = await startThree('aof');
    const { nodes } = service;
    const lock = clients.lock(nodes);
    await tokenOf(lock, 'x', 60_000);
    await Promise.all(nodes.map((node) => restart(node, 'kept')));
    const attempt = async () => lock.tryAcquire('x', { ttlMs: 1_000 });
    await until(async () => {
      const outcome = await attempt();
      return !outcome.ok && (outcome.hint ?? '').includes('for another');
    });
    const refused = await attempt();
    if (refused.ok) throw new Error('every node may have forgotten a lease of a minute');
    const name =
      /stay out until it is over: n0 \(waits for another \d+ ms\), n1 \(waits for another \d+ ms\), n2/;
    expect(refused.hint).toMatch(name);
    expect(refused.retryAfterMs).toBeGreaterThan(50_000);
    await expect(lock.acquire('x', { ttlMs: 1_000 })).rejects.toThrow(name);
  });

  test('names the missing nodes if too few have kept their memory', async () => {
    await using service = await startThree();
    const { nodes } = service;
    const lock = clients.lock(nodes);
    await tokenOf(lock, 'x');
    await restart(nodes[0], 'none');
    await nodes[1].kill();
    const refusal = async () =>
      (await lock.acquire('x', { ttlMs: 500 }).catch((error: unknown) => error)) as Error;
    await until(async () => (await refusal()).message.includes('n0: not-voting'));
    const error = await refusal();
    expect(error).toBeInstanceOf(NoQuorumError);
    expect(error.message).toMatch(
      /only while a majority votes or all nodes answer: n0 .+, n1 .+, n2 .+; bring back n1;/,
    );
    await nodes[1].start();
    const [before, after] = [await tokenOf(lock, 'x'), await tokenOf(lock, 'x')];
    expect(after).toBeGreaterThan(before);
  });
});

describe('the advice of docs/tokens.md for other servers', () => {
  test('tokens grow if servers are replaced one after the other under their names, and then all lose their memory', async () => {
    await using service = await startLocalRedis(6);
    const servers = [...service.nodes];
    const behind = servers.splice(0, 3);
    let highest = 0n;
    const higher = async (): Promise<void> => {
      const lock = clients.lock(behind);
      const token = await tokenOf(lock, 'x');
      expect(token).toBeGreaterThan(highest);
      highest = token;
      while (
        !(await Promise.all(behind.map((one) => clients.memory(one)))).every((m) => m.isVoting)
      )
        await tokenOf(lock, 'y');
      await lock.close();
    };
    await higher();
    for (const [at, next] of servers.entries()) {
      await behind[at]?.kill();
      behind[at] = next;
      await higher();
    }
    await Promise.all(behind.map((one) => restart(one, 'none')));
    await higher();
  });

  test('with firstToken, tokens begin anew after all nodes have lost their memory, so they go back', async () => {
    await using service = await startThree();
    const lock = clients.lock(service.nodes, { firstToken: 1_000n });
    const before = await tokenOf(lock, 'x');
    await Promise.all(service.nodes.map((one) => restart(one, 'none')));
    expect(await tokenOf(lock, 'x')).toBeLessThanOrEqual(before);
    await Promise.all(service.nodes.map((one) => restart(one, 'none')));
    expect(await tokenOf(clients.lock(service.nodes), 'x')).toBeGreaterThan(before);
  });
});

function acquireOnce(
  nodes: readonly LocalRedisNode[],
  asked: { readonly resource: string; readonly ttlMs: number; readonly meets?: number },
  lines: string[],
): Promise<WorkerProcess> {
  const ports = nodes.map(({ port }) => port);
  const config = { ports, keyPrefix: clients.keyPrefix, firstToken: '33', ...asked };
  return WorkerProcess.start(new URL('./harness/acquire-once.ts', import.meta.url), {
    args: [JSON.stringify(config)],
    onLine: (line) => lines.push(line),
  });
}
