import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { LockArgumentError, Redlock, type RedlockConfig, STORAGE_VERSION } from '@fenced/lock';
import { type RedisService, startRedis } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { LockTable } from '../lock/harness/lock-table.js';

const TTL_MS = 60_000;

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
  keyPrefix = `{${randomUUID()}}:`;
});
afterEach(async () => {
  for (const client of clients.splice(0)) client.disconnect();
  await Promise.all(service.nodes.map((node) => node.wake()));
  await Promise.all(admin.map((node) => node.config('SET', 'maxmemory', '0')));
});

function redlock(config: Partial<RedlockConfig> = {}, durable: readonly string[] = []): Redlock {
  const nodes = service.nodes.map(({ name, port }) => {
    const client = new Redis(port, { maxRetriesPerRequest: 0 });
    client.on('error', () => {});
    clients.push(client);
    return { name, client, durable: durable.includes(name) };
  });
  return new Redlock({ nodes, keyPrefix, firstToken: 33n, ...config });
}

/** Takes a lock and releases it, so that all nodes vote and have granted a lease of a minute. */
async function acquireOnce(lock: Redlock): Promise<bigint> {
  const lease = await lock.acquire('x', { ttlMs: TTL_MS, waitMs: 1_000 });
  await lease.release();
  while ((await voting()).length < 3) await setTimeout(5);
  return lease.token;
}

/** The names of the nodes whose votes count. */
async function voting(): Promise<string[]> {
  const nodes = await redlock().status();
  return nodes.flatMap((node) => (node.reachable && node.noVote === null ? [node.name] : []));
}

const options = (): string[] => [
  ...service.nodes.flatMap(({ name, port }) => ['--redis', `${name}=redis://127.0.0.1:${port}`]),
  '--key-prefix',
  keyPrefix,
];

/** A client that gets no reply to this command. */
function deafTo(client: Redis, command: string): Redis {
  for (const name of ['evalsha', 'eval'] as const) {
    const send = client[name].bind(client);
    client[name] = async (...values: unknown[]): Promise<unknown> => {
      const reply: unknown = await Reflect.apply(send, client, values);
      return values.includes(command) ? new Promise(() => {}) : reply;
    };
  }
  return client;
}

interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

function fenced(...args: string[]): Promise<Ended> {
  const bin = fileURLToPath(new URL('../../packages/fenced/bin/fenced.js', import.meta.url));
  return new Promise((resolve) => {
    execFile(process.execPath, [bin, ...args], (error, stdout, stderr) =>
      resolve({ code: error ? Number(error.code) : 0, stdout, stderr }),
    );
  });
}

describe('status', () => {
  test('shows new nodes without changing them', async () => {
    for (const node of await redlock().status()) {
      expect(node).toMatchObject({ reachable: true, role: 'master', noVote: 'new', waitMs: 0 });
    }
    expect(await admin[0]?.exists(`${keyPrefix}node`)).toBe(0);
  });

  test('shows votes and tokens, and the recovery wait of a node that lost its memory', async () => {
    const token = await acquireOnce(redlock());
    await admin[1]?.del(`${keyPrefix}node`);
    const lock = redlock();
    await (await lock.acquire('x', { ttlMs: TTL_MS, waitMs: 1_000 })).release();
    await lock.readmit();
    const [a, b] = await lock.status();
    expect(a).toMatchObject({ name: 'a', noVote: null, waitMs: 0, membersAgree: true });
    expect(a?.reachable && a.maxToken).toBeGreaterThanOrEqual(token);
    expect(b).toMatchObject({ name: 'b', noVote: 'new' });
    const waitMs = b?.reachable ? b.waitMs : 0;
    expect(waitMs).toBeGreaterThan(TTL_MS / 2);
    expect(waitMs).toBeLessThanOrEqual(TTL_MS);
  });

  test('warns of eviction, of different names, and of a node that is not as durable as configured', async () => {
    await acquireOnce(redlock());
    await admin[0]?.config('SET', 'maxmemory', '100mb');
    await admin[0]?.config('SET', 'maxmemory-policy', 'allkeys-lru');
    const warnings = async (lock: Redlock): Promise<string[]> =>
      (await lock.status()).map((node) => (node.reachable ? node.warnings.join() : 'unreachable'));
    expect(await warnings(redlock({}, ['c']))).toEqual([
      expect.stringContaining('set maxmemory-policy noeviction, not allkeys-lru'),
      '',
      expect.stringContaining('keeps no append-only file'),
    ]);
    const nodes = clients.slice(0, 2).map((client, at) => ({ name: `n${at}`, client }));
    for (const warning of await warnings(new Redlock({ nodes, keyPrefix }))) {
      expect(warning).toMatch(
        /this client has \[n0, n1\], node n\d was set up as . with \[a, b, c\].*configure all clients alike/,
      );
    }
  });

  test('names a node that hangs, and does not hang itself', async () => {
    await acquireOnce(redlock());
    const lock = redlock();
    await lock.status();
    await service.nodes[2]?.pause();
    const [a, , c] = await lock.status();
    expect(a).toMatchObject({ reachable: true, noVote: null });
    expect(c).toMatchObject({ name: 'c', reachable: false });
  });

  test('is a command, with a table for people and JSON for programs', async () => {
    await acquireOnce(redlock());
    const table = await fenced('status', ...options());
    expect(table).toMatchObject({ code: 0, stdout: expect.stringMatching(/^a +yes +\d+ +\d+/m) });
    await service.nodes[2]?.pause();
    const json = await fenced('status', '--json', ...options());
    expect(json.code).toBe(1);
    expect(JSON.parse(json.stdout).storageVersion).toBe(STORAGE_VERSION);
    expect(JSON.parse(json.stdout).nodes.map(({ name }: { name: string }) => name)).toEqual([
      'a',
      'b',
      'c',
    ]);
    expect((await fenced('status', '--redis', 'a=redis://127.0.0.1:1')).code).toBe(2);
    expect(await fenced('status')).toMatchObject({
      code: 64,
      stderr: expect.stringContaining('--redis NAME=URL'),
    });
  });
});

test('status shows that this version cannot work with the nodes, before programs run it', async () => {
  await acquireOnce(redlock());
  const node = `${keyPrefix}node`;
  const later = STORAGE_VERSION + 1;
  for (const client of admin) {
    const members = await client.hget(node, 'members');
    await client.hset(node, 'members', String(members).replace(/^\d+/, String(later)));
  }
  const { code, stdout } = await fenced('status', ...options());
  expect(code).toBe(2);
  const row = `^a +no: wrong-version .* ${later}, not ${STORAGE_VERSION} `;
  expect(stdout).toMatch(new RegExp(row, 'm'));
  expect(stdout).toContain(`this client has ${STORAGE_VERSION}, node a was set up with ${later}`);
});

describe('readmit', () => {
  test('waits if a lease may have been forgotten, and --force does not', async () => {
    await acquireOnce(redlock());
    await admin[1]?.del(`${keyPrefix}node`);
    expect((await fenced('readmit', '--node', 'b', ...options())).code).toBe(1);
    expect(await voting()).toEqual(['a', 'c']);
    expect((await fenced('readmit', '--node', 'b', '--force', ...options())).code).toBe(0);
    expect(await voting()).toEqual(['a', 'b', 'c']);
  });

  test('with --force the remaining nodes go on without a lost majority, above its tokens', async () => {
    const token = await acquireOnce(redlock());
    await Promise.all(admin.slice(0, 2).map((node) => node.del(`${keyPrefix}node`)));
    await service.nodes[2]?.pause();
    const refused = await redlock().readmit();
    expect(refused).toMatchObject({ ok: false, reason: expect.stringContaining('bring back c;') });
    // As by default: if no majority remembers its tokens, new ones begin at the clock.
    const forced = redlock({ firstToken: BigInt(Date.now()) });
    expect(await forced.readmit({ force: true })).toEqual({ ok: true });
    const lease = await forced.acquire('x', { ttlMs: 1_000 });
    expect(lease.token).toBeGreaterThan(token);
  });

  test('with --force ends the incarnation of a node whose data was restored while its process ran', async () => {
    const lock = redlock();
    await acquireOnce(lock);
    const snapshot = await admin[0]?.dumpBuffer(`${keyPrefix}node`);
    const before = await acquireOnce(lock);
    const [node] = admin;
    if (!node || !snapshot) throw new Error('nothing was saved');
    await node.restore(`${keyPrefix}node`, 0, snapshot, 'REPLACE');
    await new LockTable(node, keyPrefix).forget('x');
    expect(await redlock().readmit({ node: 'a', force: true })).toEqual({ ok: true });
    expect(await voting()).toEqual(['a', 'b', 'c']);
    await service.nodes[1]?.pause();
    const lease = await lock.acquire('x', { ttlMs: 1_000, waitMs: 1_000 });
    expect(lease.token).toBeGreaterThan(before);
  });

  test('with --force reports unknown if the answer to the end of an incarnation is lost, and can be repeated', async () => {
    await acquireOnce(redlock());
    const begun = await admin[0]?.hget(`${keyPrefix}node`, 'incarnation');
    const [first] = service.nodes;
    const deaf = deafTo(new Redis(first?.port ?? 0), 'retire');
    clients.push(deaf);
    const nodes = service.nodes.map(({ name, port }, at) => {
      const client = at === 0 ? deaf : new Redis(port);
      clients.push(client);
      return { name, client };
    });
    expect(await redlock({ nodes }).readmit({ node: 'a', force: true })).toMatchObject({
      ok: false,
      reason: expect.stringContaining('whether it has begun anew is unknown; ask again'),
    });
    expect(await admin[0]?.hget(`${keyPrefix}node`, 'incarnation')).not.toBe(begun);
    expect(await voting()).toEqual(['b', 'c']);
    expect(await redlock().readmit({ node: 'a', force: true })).toEqual({ ok: true });
    expect(await voting()).toEqual(['a', 'b', 'c']);
  });

  test("with --force fails if no node answers, and prints each node's answer", async () => {
    const away = ['a', 'b', 'c'].map((name) => `${name}=redis://127.0.0.1:1`);
    const ended = await fenced('readmit', '--force', ...away.flatMap((node) => ['--redis', node]));
    expect(ended.code).toBe(1);
    expect(ended.stdout).toMatch(
      /0 of 3 nodes can be readmitted, and a majority is 2: a \(.+\), b \(.+\), c \(.+\)/,
    );
    const nodes = ['a', 'b', 'c'].map((name) => {
      const client = new Redis(1, { maxRetriesPerRequest: 0, retryStrategy: () => null });
      client.on('error', () => {});
      clients.push(client);
      return { name, client };
    });
    for (const force of [true, false]) {
      expect(await redlock({ nodes }).readmit({ force })).toMatchObject({
        ok: false,
        reason: expect.stringMatching(/a \(.+\), b \(.+\), c \(.+\)/),
      });
    }
    const named = await redlock({ nodes }).readmit({ node: 'b', force: true });
    expect(named).toMatchObject({
      ok: false,
      reason: expect.stringMatching(/^node b goes on as it was: .+/),
    });
  });

  test('with --force fails if only a minority answers, and leaves it unchanged', async () => {
    const nodes = service.nodes.map(({ name, port }, at) => {
      const client = new Redis(at === 0 ? port : 1, {
        maxRetriesPerRequest: 0,
        retryStrategy: () => null,
      });
      client.on('error', () => {});
      clients.push(client);
      return { name, client };
    });
    expect(await redlock({ nodes }).readmit({ force: true })).toMatchObject({
      ok: false,
      reason: expect.stringMatching(
        /^1 of 3 nodes can be readmitted, and a majority is 2: a \(has no vote\), b \(.+\), c \(.+\)/,
      ),
    });
    expect(await admin[0]?.hget(`${keyPrefix}node`, 'roster')).toBeNull();
    // Without --force, the advice is to bring nodes back, because --force could not help here.
    const { reason = '' } = (await redlock({ nodes }).readmit()) as { reason?: string };
    expect(reason).toContain('bring back b, c');
    expect(reason).not.toContain('--force');
  });

  test('with --force fails if the nodes were set up with other names', async () => {
    await acquireOnce(redlock());
    const nodes = service.nodes.map(({ port }, at) => {
      const client = new Redis(port);
      clients.push(client);
      return { name: `n${at}`, client };
    });
    const refused = await redlock({ nodes }).readmit({ force: true });
    expect(refused).toMatchObject({
      ok: false,
      reason: expect.stringMatching(/this client has \[n0, n1, n2\], node .* with \[a, b, c\]/),
    });
    const flags = service.nodes.flatMap(({ port }, at) => [
      '--redis',
      `n${at}=redis://127.0.0.1:${port}`,
    ]);
    const ended = await fenced('readmit', '--force', ...flags, '--key-prefix', keyPrefix);
    expect(ended).toMatchObject({ code: 1, stdout: expect.stringMatching(/^votes: none, of 3/) });
    expect(ended.stdout).toContain('members differ');
    expect(await voting()).toEqual(['a', 'b', 'c']);
  });

  test('of one node succeeds only when that node is known to vote', async () => {
    await acquireOnce(redlock());
    await admin[1]?.del(`${keyPrefix}node`);
    // Two of three nodes vote all the time, so a readmission of all nodes succeeds without b.
    expect(await redlock().readmit()).toEqual({ ok: true });
    expect(await redlock().readmit({ node: 'a' })).toEqual({ ok: true });
    expect(await redlock().readmit({ node: 'b' })).toMatchObject({
      ok: false,
      reason: expect.stringMatching(/a \(votes\), b \(waits for another \d+ ms\), c \(votes\)/),
    });
    await service.nodes[2]?.pause();
    for (const force of [true, false]) {
      expect(await redlock().readmit({ node: 'c', force })).toMatchObject({
        ok: false,
        reason: expect.stringContaining('no answer within 2000 ms'),
      });
    }
  });

  test('with --force fails if the answer to an ADMIT is lost, though a majority votes', async () => {
    await acquireOnce(redlock());
    await admin[1]?.del(`${keyPrefix}node`);
    const nodes = service.nodes.map(({ name, port }, at) => {
      const client = new Redis(port);
      clients.push(client);
      return { name, client: at === 1 ? deafTo(client, 'admit') : client };
    });
    expect(await redlock({ nodes }).readmit({ force: true })).toMatchObject({
      ok: false,
      reason: expect.stringMatching(
        /^not all nodes vote: a \(votes\), b \(no answer within 2000 ms.*\), c \(votes\)/,
      ),
    });
    expect(await redlock().readmit({ force: true })).toEqual({ ok: true });
  });

  test('keeps the limit of the leases, unless it is asked to change it', async () => {
    const programs = redlock({ maxTtlMs: 2 * TTL_MS });
    const longest = async (lock: Redlock, ttlMs: number) =>
      lock.acquire('x', { ttlMs }).then(
        (lease) => lease.release(),
        ({ code }) => code,
      );
    await longest(programs, 2 * TTL_MS);
    for (const name of ['a', 'b', 'c']) {
      expect((await fenced('readmit', '--force', '--node', name, ...options())).code).toBe(0);
    }
    expect(await longest(programs, 2 * TTL_MS)).toBe('released');
    const limit = (ms: number) => fenced('readmit', '--max-ttl-ms', String(ms), ...options());
    expect((await limit(TTL_MS)).code).toBe(0);
    expect(await longest(programs, 2 * TTL_MS)).toBe('ttl-too-long');
    expect((await limit(3 * TTL_MS)).code).toBe(0);
    expect(await longest(redlock({ maxTtlMs: 3 * TTL_MS }), 3 * TTL_MS)).toBe('released');
  });

  test('by a program without a limit leaves nodes without memory that grant the leases of all others', async () => {
    await acquireOnce(redlock());
    await Promise.all(admin.map((node) => node.del(`${keyPrefix}node`, `${keyPrefix}node-before`)));
    const run = ['run', '--lock', 'x', '--ttl', '10s', ...options(), '--', 'true'];
    expect((await fenced(...run)).code).toBe(0);
    const lease = await redlock({ maxTtlMs: 3 * TTL_MS }).acquire('y', { ttlMs: 3 * TTL_MS });
    expect(await lease.release()).toBe('released');
  });

  test('refuses the name of an unknown node', async () => {
    await expect(redlock().readmit({ node: 'z' })).rejects.toThrow(LockArgumentError);
    expect((await fenced('readmit', '--node', 'z', ...options())).code).toBe(64);
  });
});
