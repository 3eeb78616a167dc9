import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Redlock, type RedlockConfig } from '@fenced/lock';
import { type LocalRedisService, startLocalRedis } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { until } from '../lock/harness/redlock-nodes.js';

const BIN = fileURLToPath(new URL('../../packages/fenced/bin/fenced.js', import.meta.url));
const PRESENT = [0, 1, 2];
const NEXT = [2, 3, 4];

let service: LocalRedisService;
let prefix: string;
const clients: Redis[] = [];
beforeAll(async () => {
  service = await startLocalRedis(5);
});
afterAll(() => service?.stop());
beforeEach(() => {
  prefix = `{${randomUUID()}}:`;
});
afterEach(async () => {
  await Promise.all(service.nodes.map((node) => node.wake()));
  for (const client of clients.splice(0)) client.disconnect();
});

const url = (at: number): string => `n${at}=redis://127.0.0.1:${service.nodes[at]?.port}`;

function connect(at: number): Redis {
  const client = new Redis(service.nodes[at]?.port ?? 0);
  client.on('error', () => {});
  clients.push(client);
  return client;
}

const nodesOf = (servers: readonly number[]) =>
  servers.map((at) => ({ name: `n${at}`, client: connect(at) }));

function lock(settings: Partial<RedlockConfig> = {}): Redlock {
  const next = { nodes: nodesOf(NEXT), keyPrefix: `${prefix}next:` };
  return new Redlock({ nodes: nodesOf(PRESENT), keyPrefix: prefix, next, ...settings });
}

const has = async (redis: Redis, key: string, field: string): Promise<boolean> =>
  (await redis.hexists(`${key}node`, field)) === 1;

/** Waits until a node of the next set knows that it waits for a move, or votes. */
async function announced(): Promise<void> {
  for (const at of NEXT) {
    const client = connect(at);
    await until(() => has(client, `${prefix}next:`, 'awaits'));
  }
}

function nodes(action: string, ...more: string[]) {
  const args = [
    ...PRESENT.flatMap((at) => ['--redis', url(at)]),
    ...NEXT.flatMap((at) => ['--next', url(at)]),
    ...['--key-prefix', prefix, '--next-key-prefix', `${prefix}next:`],
  ];
  return started(action, ...args, ...more);
}

function started(action: string, ...args: readonly string[]) {
  const child = spawn(process.execPath, [BIN, 'nodes', action, ...args]);
  let out = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (out += data));
  const ended = once(child, 'close').then(([code]) => ({ code: code as number | null, out }));
  return { child, ended };
}

test('plan, apply and status report the node set that has the locks; another apply resumes a killed one', async () => {
  const client = lock();
  const lease = await client.acquire('x', { ttlMs: 30_000 });
  await client.readmit();
  await announced();
  const plan = await nodes('plan').ended;
  expect(plan).toMatchObject({ code: 0, out: expect.stringContaining('move: not-begun') });
  expect(plan.out).toContain(' 30000 ms if nodes restart');
  const admin = connect(0);
  const other = connect(3);
  for (const step of [
    () => has(other, `${prefix}next:`, 'previous_set'),
    () => has(admin, prefix, 'next_set'),
  ]) {
    const { child, ended } = nodes('apply');
    await until(step);
    child.kill('SIGKILL');
    await ended;
    expect([0, 2]).toContain((await nodes('status').ended).code);
  }
  expect(await nodes('apply').ended).toMatchObject({
    code: 0,
    out: expect.stringContaining('move: done'),
  });
  expect(await nodes('apply').ended).toMatchObject({ code: 0 });
  const status = await nodes('status', '--json').ended;
  const { state, present, next } = JSON.parse(status.out);
  expect([status.code, state]).toEqual([0, 'done']);
  expect(present).toMatchObject(PRESENT.map((at) => ({ name: `n${at}`, noVote: 'sealed' })));
  expect(next).toMatchObject(NEXT.map((at) => ({ name: `n${at}`, noVote: null })));
  await lease.extend(30_000);
  expect(await lease.release()).toBe('released');
  const later = await client.acquire('x', { ttlMs: 1_000 });
  expect(later.token).toBeGreaterThan(lease.token);
  await client.close();
});

test('apply refuses a next set of which a node is silent, and changes nothing', async () => {
  const client = lock();
  await (await client.acquire('x', { ttlMs: 1_000 })).release();
  await service.nodes[4]?.pause();
  for (const { ended } of [nodes('plan'), nodes('apply')]) {
    expect(await ended).toMatchObject({ code: 1, out: expect.stringContaining('must answer') });
  }
  await service.nodes[4]?.wake();
  await (await client.acquire('x', { ttlMs: 1_000 })).release();
  await client.close();
});

test('the next nodes grant leases as long as the present ones did', async () => {
  const client = lock({ maxTtlMs: 120_000 });
  const lease = await client.acquire('x', { ttlMs: 120_000 });
  await announced();
  expect((await nodes('apply').ended).code).toBe(0);
  await lease.extend(120_000);
  await (await client.acquire('y', { ttlMs: 120_000 })).release();
  await client.close();
});

test('a program with the next set alone gets no lock before the move', async () => {
  const client = lock();
  const lease = await client.acquire('x', { ttlMs: 20_000 });
  await announced();
  const early = new Redlock({ nodes: nodesOf(NEXT), keyPrefix: `${prefix}next:` });
  await expect(early.acquire('x', { ttlMs: 1_000 })).rejects.toMatchObject({ code: 'no-quorum' });
  expect(await nodes('apply').ended).toMatchObject({ code: 0 });
  await expect(early.acquire('x', { ttlMs: 1_000 })).rejects.toMatchObject({ code: 'held' });
  expect(await lease.release()).toBe('released');
  await early.close();
  await client.close();
});

test('a wrong letter in the next key prefix moves nothing', async () => {
  const client = lock();
  await (await client.acquire('x', { ttlMs: 1_000 })).release();
  await announced();
  for (const action of ['plan', 'apply']) {
    expect(await nodes(action, '--next-key-prefix', `${prefix}nxet:`).ended).toMatchObject({
      code: 1,
      out: expect.stringContaining('no program has announced this next set'),
    });
  }
  expect(await connect(3).exists(`${prefix}nxet:node`)).toBe(0);
  expect(await nodes('apply').ended).toMatchObject({ code: 0 });
  await client.close();
});

test('plan refuses a present set that does not vote', async () => {
  const unused = await nodes('plan').ended;
  expect(unused).toMatchObject({ code: 1, out: expect.stringContaining('no majority') });
});

test('apply goes on when a node of the next set loses its data and comes back', async () => {
  const client = lock();
  await (await client.acquire('x', { ttlMs: 1_000 })).release();
  const [, , , restarting] = service.nodes;
  await announced();
  const admin = connect(0);
  const { ended } = nodes('apply');
  await until(() => has(admin, prefix, 'next_set'));
  await restarting?.kill();
  await restarting?.start();
  expect(await ended).toMatchObject({ code: 0, out: expect.stringContaining('move: done') });
  await client.close();
});

test('a mistake in the command line is explained', async () => {
  for (const args of [[], ['undo'], ['plan', 'apply'], ['plan', '--force']]) {
    const [action = '', ...more] = args;
    expect((await nodes(action, ...more).ended).code).toBe(64);
  }
  const child = spawn(process.execPath, [BIN, 'nodes', 'plan', '--redis', url(0)]);
  expect((await once(child, 'close'))[0]).toBe(64);
});
