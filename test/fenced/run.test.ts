import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import { createGateway, serveGateway } from '@fenced/gateway';
import type { Lock, Redlock } from '@fenced/lock';
import { EtcdLock } from '@fenced/lock/etcd';
import { PostgresLock } from '@fenced/lock/postgres';
import { S3Lock } from '@fenced/lock/s3';
import { ZooKeeperLock } from '@fenced/lock/zookeeper';
import { FencedS3 } from '@fenced/store/s3';
import {
  findFakeTime,
  type LocalRedisService,
  startEtcd,
  startPostgres,
  startS3,
  startZooKeeper,
  TcpProxy,
} from '@fenced/testbed';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { childrenOf } from './harness/processes.js';
import { beating, fenced, next, Run, startFolder, startLock, until } from './harness/run.js';

// Each run is three processes, and several run at once.
vi.setConfig({ testTimeout: 60_000 });

/** Long enough that a busy machine renews in time. */
const TTL_MS = 2_000;

const parts = new AsyncDisposableStack();
let folder = '';

beforeAll(async () => {
  folder = await startFolder(parts);
});
afterAll(() => parts.disposeAsync());

describe('on three Redis nodes', () => {
  let lock: Redlock;
  let options: string[];
  let servers: LocalRedisService['nodes'];

  beforeAll(async () => {
    const started = await startLock(parts);
    ({ lock, options } = started);
    servers = started.redis.nodes;
  });

  /** The options that every run here has. */
  const under = (resource: string, ...more: string[]): string[] => [
    ...[...options, '--lock', resource, '--ttl', `${TTL_MS}ms`],
    ...more,
    '--',
  ];

  test.concurrent('a command finds its token, and fenced run ends with its exit code', async () => {
    const before = await lock.acquire('env', { ttlMs: 1_000 });
    await before.release();
    const script = 'echo $FENCED_RESOURCE $FENCED_TOKEN $FENCED_DEADLINE_MS; exit 3';
    const { code, stdout, stderr } = await fenced([...under('env'), 'sh', '-c', script]);
    expect({ code, stderr }).toEqual({ code: 3, stderr: '' });
    const [resource, token = '', deadlineMs] = stdout.split(' ');
    expect(resource).toBe('env');
    expect(BigInt(token)).toBeGreaterThan(before.token);
    expect(Number(deadlineMs)).toBeGreaterThan(Date.now() - 10_000);
    // The lock is free as soon as `fenced run` has ended.
    await (await lock.acquire('env', { ttlMs: 1_000 })).release();
  });

  test.concurrent('every other end has an exit code of its own', async () => {
    const held = await lock.acquire('held', { ttlMs: 20_000 });
    const away = ['--redis', 'a=redis://127.0.0.1:1', '--lock', 'x', '--', 'true'];
    const codes = await Promise.all([
      fenced([...under('signal'), 'sh', '-c', 'kill -9 $$']),
      fenced([...under('not-found'), join(folder, 'nothing')]),
      fenced([...under('not-executable'), folder]),
      fenced([...under('held'), 'true']),
      fenced([...under('held', '--wait', '100ms'), 'true']),
      fenced(away),
    ]);
    expect(codes.map(({ code }) => code)).toEqual([137, 127, 126, 75, 75, 69]);
    expect(codes[3]?.stderr).toContain('held');
    await held.release();
  });

  test.concurrent('a wrong command line is refused before anything is locked', async () => {
    const wrong = [
      [...options, '--lock', 'x'],
      [...options, '--', 'true'],
      ['--lock', 'x', '--', 'true'],
      [...options, '--lock', 'x', '--ttl', '30', '--', 'true'],
      [...options, '--lock', 'x', '--ttl', '999ms', '--', 'true'],
      [...options, '--lock', 'x', '--ttl', '2m', '--', 'true'],
      [...options, '--lock', 'x', '--ttl', '2s', '--grace', '1.1s', '--', 'true'],
      [...options, '--gateway', 'http://127.0.0.1:1', '--lock', 'x', '--', 'true'],
    ];
    const ends = await Promise.all(wrong.map((args) => fenced(args)));
    expect(ends.map(({ code }) => code)).toEqual(wrong.map(() => 64));
    const help = await fenced([
      ...options,
      '--lock',
      'help',
      '--',
      'sh',
      '-c',
      'echo $0',
      '--help',
    ]);
    expect(help).toMatchObject({ code: 0, stdout: '--help' });
  });

  test.concurrent('the lease is extended while the command runs, and a waiter comes after it', async () => {
    const run = fenced([...under('long'), 'sleep', '5']);
    await until(async () => !(await lock.tryAcquire('long', { ttlMs: 100 })).ok);
    const waiter = fenced([...under('long', '--wait', '1m'), 'date', '+%s%N']);
    expect(await run).toMatchObject({ code: 0 });
    const endedMs = Date.now();
    const { code, stdout } = await waiter;
    expect(code).toBe(0);
    expect(Number(stdout) / 1e6).toBeGreaterThan(endedMs - 1_000);
  });

  test.concurrent('the command goes on if all connections to the nodes fall silent and new ones work', async () => {
    const doors = await Promise.all(servers.map((node) => TcpProxy.start(node)));
    for (const door of doors) parts.use(door);
    const redis = servers.flatMap(({ name }, at) => [
      '--redis',
      `${name}=redis://127.0.0.1:${doors[at]?.port}`,
    ]);
    const command = ['sh', '-c', 'echo begun; sleep 5'];
    const run = await Run.start([...redis, '--lock', 'silent', '--ttl', '6s', '--', ...command]);
    await until(() => run.lines.includes('begun'));
    for (const door of doors) door.forget();
    const { code, stderr } = await run.ended();
    expect({ code, stderr }).toMatchObject({ code: 0 });
  });

  test.concurrent('fenced run is stopped for longer than its lease: its command ends before another has the lock', async () => {
    const command = beating(folder, 2);
    const run = await Run.start([...under('stopped'), ...command.command]);
    await command.hasBegun();
    await run.process.pause();
    const { lease, atMs } = await next(lock, 'stopped');
    expect(command.last()).toBeLessThan(atMs);
    expect(command.hadSigterm()).toBe(true);
    await run.process.wake();
    expect(await run.ended()).toMatchObject({ code: 79, stderr: expect.stringContaining('lease') });
    expect(lease.remainingMs()).toBeGreaterThan(0);
    await lease.release();
    expect(command.last()).toBeLessThan(atMs);
  });

  test.concurrent('fenced run is killed: its command and all children end before another has the lock', async () => {
    const command = beating(folder, 2);
    const run = await Run.start([...under('killed'), ...command.command]);
    await command.hasBegun();
    await run.process.kill();
    const { lease, atMs } = await next(lock, 'killed');
    expect(command.last()).toBeLessThan(atMs);
    await lease.release();
  });

  test.concurrent('the guard is killed: the command is killed at once', async () => {
    const command = beating(folder, 1);
    const run = await Run.start([...under('guard'), ...command.command]);
    await command.hasBegun();
    const [guard = 0] = await childrenOf(run.process.pid);
    process.kill(guard, 'SIGKILL');
    expect(await run.ended()).toMatchObject({ code: 79, stderr: expect.stringContaining('guard') });
    const { lease, atMs } = await next(lock, 'guard');
    expect(command.last()).toBeLessThan(atMs);
    await lease.release();
  });

  test.concurrent('children that outlive the command are stopped before the lock is free', async () => {
    const command = beating(folder);
    const script = `"$@" & until [ -s "$3" ]; do sleep 0.02; done`;
    const run = fenced([...under('left'), 'sh', '-c', script, 'sh', ...command.command]);
    await command.hasBegun();
    const { lease, atMs } = await next(lock, 'left');
    expect(command.last()).toBeLessThan(atMs);
    expect(command.hadSigterm()).toBe(true);
    expect(await run).toMatchObject({ code: 0, stderr: '' });
    await lease.release();
  });

  test.concurrent('a signal during the wait ends the wait, and nothing is taken', async () => {
    const held = await lock.acquire('wait', { ttlMs: 20_000 });
    const run = await Run.start([...under('wait', '--wait', '1m'), 'echo', 'ran']);
    await until(async () => (await childrenOf(run.process.pid)).length > 0);
    await sleep(300);
    await run.process.kill('SIGTERM');
    expect(await run.ended()).toEqual({ code: 143, stdout: '', stderr: '' });
    await held.release();
    await (await lock.acquire('wait', { ttlMs: 1_000 })).release();
  });

  test.concurrent('signals reach the whole group of the command, which decides about its end', async () => {
    const script = `trap 'echo usr1' USR1; trap 'echo int; exit 5' INT; echo ready; while :; do sleep 0.05; done`;
    const run = await Run.start([...under('signals'), 'sh', '-c', script]);
    await until(() => run.lines.includes('ready'));
    process.kill(run.process.pid, 'SIGUSR1');
    await until(() => run.lines.includes('usr1'));
    process.kill(run.process.pid, 'SIGTSTP');
    process.kill(run.process.pid, 'SIGINT');
    expect(await run.ended()).toMatchObject({ code: 5, stdout: 'ready\nusr1\nint' });
  });
});

test('all nodes hang: a command that ignores SIGTERM is killed before its lease ends', async () => {
  const { redis, lock, options } = await startLock(parts);
  const command = beating(folder, 1);
  const args = [...options, '--lock', 'hang', '--ttl', `${TTL_MS}ms`, '--', ...command.command];
  const run = await Run.start(args);
  await command.hasBegun();
  for (const node of redis.nodes) await node.pause();
  const pausedMs = Date.now();
  const { code, stderr } = await run.ended();
  expect({ code, stderr }).toEqual({ code: 79, stderr: expect.stringContaining('stopped') });
  expect(command.hadSigterm()).toBe(true);
  expect(command.last()).toBeLessThan(pausedMs + TTL_MS);
  for (const node of redis.nodes) await node.wake();
  const { lease, atMs } = await next(lock, 'hang');
  expect(command.last()).toBeLessThan(atMs);
  await lease.release();
});

test('two nodes of three are killed: the command gets SIGTERM, and may end by itself', async () => {
  const { redis, options } = await startLock(parts);
  const script = `trap 'echo term; exit 0' TERM; echo ready; while :; do sleep 0.05; done`;
  const run = await Run.start([
    ...[...options, '--lock', 'dead', '--ttl', `${TTL_MS}ms`, '--'],
    ...['sh', '-c', script],
  ]);
  await until(() => run.lines.includes('ready'));
  await redis.nodes[0]?.kill();
  await redis.nodes[1]?.kill();
  expect(await run.ended()).toMatchObject({ code: 79, stdout: 'ready\nterm' });
});

test('the clocks of the nodes jump: the command is killed at the next extension', async () => {
  const { redis, lock, options } = await startLock(parts, true);
  const command = beating(folder);
  const args = [...options, '--lock', 'jump', '--ttl', `${TTL_MS}ms`, '--', ...command.command];
  const run = await Run.start(args);
  await command.hasBegun();
  for (const node of redis.nodes) await node.setClock(3_600_000);
  const { lease, atMs } = await next(lock, 'jump');
  expect((await run.ended()).code).toBe(79);
  // The command may go on for up to a TTL beside the next holder. Only tokens stop its writes.
  expect(command.last()).toBeLessThan(atMs + TTL_MS);
  await lease.release();
});

test('the clock of fenced run jumps by an hour: nothing happens', async () => {
  const { options } = await startLock(parts);
  const command = ['sh', '-c', 'date +%s >&2; sleep 3; date +%s >&2; exit 4'];
  const env = { LD_PRELOAD: findFakeTime() ?? '', FAKETIME: '+3600s' };
  const still = { FAKETIME_DONT_FAKE_MONOTONIC: '1', FAKETIME_START_AFTER_SECONDS: '2' };
  const args = [...options, '--lock', 'own', '--ttl', '2s', '--', ...command];
  expect((await fenced(args, { ...env, ...still })).code).toBe(4);
});

test('over Postgres: the token is that of PostgresLock', async () => {
  const postgres = parts.use(await startPostgres());
  const pool = new pg.Pool({ connectionString: postgres.url });
  pool.on('error', () => {});
  parts.defer(() => pool.end());
  const env = { FENCED_POSTGRES: postgres.url };
  const script = ['--lock', 'job', '--ttl', '2s', '--', 'sh', '-c', 'echo $FENCED_TOKEN; sleep 3'];
  const missing = await fenced(script, env);
  expect(missing).toMatchObject({ code: 69, stderr: expect.stringContaining('--install') });
  const tooLong = await fenced(['--lock', 'job', '--ttl', '2m', '--', 'true'], env);
  expect(tooLong).toMatchObject({ code: 64, stderr: expect.stringContaining('--max-ttl-ms') });
  const { code, stdout } = await fenced(['--install', ...script], env);
  expect(code).toBe(0);
  const lease = await new PostgresLock({ pool }).acquire('job', { ttlMs: 20_000 });
  expect(lease.token).toBeGreaterThan(BigInt(stdout));
  expect((await fenced(script, env)).code).toBe(75);
  await lease.release();
});

test('over etcd and over a bucket: the token is that of their lock', async () => {
  const etcd = parts.use(await startEtcd(1));
  const urls = etcd.nodes.map(({ url }) => url);
  const s3 = parts.use(await startS3());
  const { endpoint, region, accessKeyId, secretAccessKey } = s3;
  const client = new S3Client({ endpoint, region, credentials: s3, forcePathStyle: true });
  parts.defer(() => client.destroy());
  await client.send(new CreateBucketCommand({ Bucket: 'jobs' }));
  const objects = new FencedS3({ client, bucket: 'jobs', prefix: 'app/' });
  const keys = { AWS_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey };
  const address = { AWS_ENDPOINT_URL_S3: endpoint, AWS_REGION: region };
  const script = ['--lock', 'job', '--ttl', '2s', '--', 'sh', '-c', 'echo $FENCED_TOKEN; sleep 3'];
  const services: [Lock, Record<string, string>][] = [
    [new EtcdLock({ endpoints: urls }), { FENCED_ETCD: urls.join() }],
    [new S3Lock({ objects }), { FENCED_S3: 's3://jobs/app/', ...keys, ...address }],
  ];
  for (const [lock, env] of services) {
    const { code, stdout, stderr } = await fenced(script, env);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const lease = await lock.acquire('job', { ttlMs: 20_000 });
    expect(lease.token).toBeGreaterThan(BigInt(stdout));
    expect((await fenced(script, env)).code).toBe(75);
    await lease.release();
  }
  const wrong = await fenced(['--etcd', 'ftp://a', ...script]);
  expect(wrong).toMatchObject({ code: 64, stderr: expect.stringContaining('endpoint=ftp://a') });
  const both = await fenced(['--etcd', 'http://a:1', '--s3', 's3://jobs', ...script]);
  expect(both).toMatchObject({ code: 64, stderr: expect.stringContaining('--etcd or --s3') });
});

test('over ZooKeeper: the token is that of ZooKeeperLock, and without servers the command ends', async () => {
  const { addresses, servers } = parts.use(await startZooKeeper(3));
  const lock = parts.use(new ZooKeeperLock({ servers: addresses }));
  const env = { FENCED_ZOOKEEPER: addresses };
  const under = ['--lock', 'job', '--ttl', '2s', '--'];
  const { code, stdout } = await fenced([...under, 'sh', '-c', 'echo $FENCED_TOKEN; sleep 3'], env);
  expect(code).toBe(0);
  const held = await lock.acquire('job', { ttlMs: 20_000 });
  expect(held.token).toBeGreaterThan(BigInt(stdout));
  const waiting = fenced(['--wait', '1m', ...under, 'echo', 'mine'], env);
  expect((await fenced([...under, 'true'], env)).code).toBe(75);
  await held.release();
  expect(await waiting).toMatchObject({ code: 0, stdout: 'mine' });

  const command = beating(folder);
  const run = await Run.start([...under, ...command.command], env);
  await command.hasBegun();
  for (const server of servers) await server.pause();
  const pausedMs = Date.now();
  expect((await run.ended()).code).toBe(79);
  expect(command.last()).toBeLessThan(pausedMs + TTL_MS);
  for (const server of servers) await server.wake();
});

test('over a gateway that permits only short waits: a longer wait is refused with the limit', async () => {
  const { lock } = await startLock(parts);
  const gateway = createGateway({ lock, limits: { waitMsMax: 1_000 } });
  const server = await serveGateway(gateway, { port: 0 });
  parts.defer(async () => void (await server.drain()));
  const wait = (time: string) =>
    fenced(['--wait', time, '--lock', 'job', '--ttl', '2s', '--', 'true'], {
      FENCED_URL: server.url,
    });
  expect(await wait('1s')).toMatchObject({ code: 0 });
  const { code, stderr } = await wait('1m');
  expect({ code, stderr }).toEqual({
    code: 69,
    stderr: expect.stringContaining('waitMs: Too big: expected number to be <=1000'),
  });
});

test('over a gateway: fenced run waits until the gateway is up, and longer than one request may wait', async () => {
  const { lock } = await startLock(parts);
  const outcomes: string[] = [];
  const onRequest = ({ outcome }: { outcome: string }): void => void outcomes.push(outcome);
  const gateway = createGateway({ lock, onRequest });
  const first = await serveGateway(gateway, { port: 0 });
  const { port } = new URL(first.url);
  await first.drain();
  const held = await lock.acquire('job', { ttlMs: 30_000 });
  const args = ['--wait', '1m', '--lock', 'job', '--ttl', '2s', '--', 'echo', 'mine'];
  const run = await Run.start(args, { FENCED_URL: first.url });
  const server = await serveGateway(createGateway({ lock, onRequest }), { port: Number(port) });
  parts.defer(async () => void (await server.drain()));
  await expect.poll(() => outcomes, { timeout: 30_000 }).toEqual(['held']);
  await held.release();
  expect(await run.ended()).toMatchObject({ code: 0, stdout: 'mine' });
});

test('over a gateway: the token comes with its signature, and a hung gateway ends the command', async () => {
  const { redis, lock } = await startLock(parts);
  const server = await serveGateway(createGateway({ lock }), { port: 0 });
  parts.defer(async () => void (await server.drain()));
  const env = { FENCED_URL: server.url };
  const script = 'echo $FENCED_TOKEN $FENCED_SIGNED_TOKEN; sleep 3';
  const under = ['--lock', 'job', '--ttl', '2s', '--'];
  const { code, stdout } = await fenced([...under, 'sh', '-c', script], env);
  expect(code).toBe(0);
  const [token = '', signed = ''] = stdout.split(' ');
  expect(signed).toMatch(new RegExp(`^${token}(\\.|$)`));
  const held = await lock.acquire('job', { ttlMs: 10_000 });
  const waiting = fenced(['--wait', '1m', ...under, 'echo', 'mine'], env);
  expect((await fenced([...under, 'true'], env)).code).toBe(75);
  await held.release();
  expect(await waiting).toMatchObject({ code: 0, stdout: 'mine' });

  const command = beating(folder);
  const run = await Run.start([...under, ...command.command], env);
  await command.hasBegun();
  for (const node of redis.nodes) await node.pause();
  const pausedMs = Date.now();
  expect((await run.ended()).code).toBe(79);
  expect(command.last()).toBeLessThan(pausedMs + TTL_MS);
  for (const node of redis.nodes) await node.wake();
});
