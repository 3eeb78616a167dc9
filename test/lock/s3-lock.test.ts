import { randomUUID } from 'node:crypto';
import { setTimeout } from 'node:timers/promises';
import {
  CreateBucketCommand,
  DeleteObjectCommand,
  PutObjectCommand,
  S3Client,
} from '@aws-sdk/client-s3';
import { type Lease, LockArgumentError, type Runtime } from '@fenced/lock';
import { Elector } from '@fenced/lock/election';
import { S3Lock, type S3LockConfig } from '@fenced/lock/s3';
import { FencedS3, type S3Calls } from '@fenced/store/s3';
import { type S3Service, startS3, TcpProxy } from '@fenced/testbed';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { FAULTS, FaultyProxy } from '../conformance/harness/faulty-proxy.js';
import { type Acquisition, judge } from './harness/redlock-history.js';
import { addressOf, s3ClientVia } from './harness/s3-client.js';

const parts = new AsyncDisposableStack();
const bucket = `locks-${randomUUID()}`;
let service: S3Service;
let client: S3Client;
beforeAll(async () => {
  service = parts.use(await startS3());
  client = clientOf(service.endpoint);
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  await new FencedS3({ client, bucket }).probe();
});
afterAll(() => parts.disposeAsync());

function clientOf(endpoint: string): S3Client {
  const { region } = service;
  const opened = new S3Client({ endpoint, region, credentials: service, forcePathStyle: true });
  parts.defer(() => opened.destroy());
  return opened;
}

const newPrefix = (): string => `${randomUUID()}/`;

/** A lock of a process of its own. */
function open(keyPrefix: string, calls: S3Calls = client, runtime?: Runtime): S3Lock {
  const objects = new FencedS3({ client: calls, bucket });
  return new S3Lock({ objects, keyPrefix, pollMs: 20 }, runtime);
}

/** Counts the requests of a client. */
function counted(): { readonly calls: S3Calls; taken(): number } {
  let requests = 0;
  const calls: S3Calls = {
    send: (command, options) => {
      requests += 1;
      return client.send(command as never, options) as never;
    },
  };
  return {
    calls,
    taken: () => {
      const taken = requests;
      requests = 0;
      return taken;
    },
  };
}

test('a client takes over only after it has seen the same version for the whole TTL', async () => {
  const prefix = newPrefix();
  const dead = await open(prefix).acquire('x', { ttlMs: 600 });
  await vi.waitFor(() => expect(dead.remainingMs()).toBe(0), { interval: 5 });
  // The lease is over by the holder's clock. This new client cannot know since when it was held.
  const next = open(prefix);
  const startedMs = performance.now();
  const first = await next.tryAcquire('x', { ttlMs: 10_000 });
  expect(first).toMatchObject({ ok: false, reason: 'held' });
  const lease = await next.acquire('x', { ttlMs: 10_000, waitMs: 20_000 });
  expect(performance.now() - startedMs).toBeGreaterThan(600);
  expect(lease.token).toBe(dead.token + 1n);
  await lease.release();
});

test('a holder that renews keeps the lock, for many of its TTLs', async () => {
  const prefix = newPrefix();
  const lease = await open(prefix).acquire('x', { ttlMs: 2_000 });
  const other = open(prefix);
  for (const startedMs = performance.now(); performance.now() - startedMs < 5_000; ) {
    await lease.extend(2_000);
    expect(await other.tryAcquire('x', { ttlMs: 2_000 })).toMatchObject({ reason: 'held' });
    await setTimeout(200);
  }
  await lease.release();
});

test('a clock that is years off changes neither the order of tokens nor the end of a lease', async () => {
  const prefix = newPrefix();
  const runtime: Runtime = {
    nowMs: () => performance.now() + 1e9,
    wallClockMs: () => 5,
    random: () => Math.random(),
    uniqueId: () => randomUUID(),
    soon: (callback) => setImmediate(callback),
    after: (delayMs, callback) => {
      const timer = globalThis.setTimeout(callback, delayMs);
      return () => clearTimeout(timer);
    },
  };
  const [one, off] = [open(prefix), open(prefix, client, runtime)];
  const lease = await one.acquire('x', { ttlMs: 10_000 });
  expect(await off.tryAcquire('x', { ttlMs: 10_000 })).toMatchObject({ reason: 'held' });
  await lease.release();
  const next = await off.acquire('x', { ttlMs: 10_000 });
  expect(next.token).toBe(lease.token + 1n);
  expect(await one.tryAcquire('x', { ttlMs: 10_000 })).toMatchObject({ reason: 'held' });
  await next.release();
});

test('an extension and a release are one request each, an acquisition is two', async () => {
  const { calls, taken } = counted();
  const lock = open(newPrefix(), calls);
  await (await lock.acquire('x', { ttlMs: 10_000 })).release();
  taken();
  const lease = await lock.acquire('x', { ttlMs: 10_000 });
  expect(taken()).toBe(2);
  await lease.extend(10_000);
  expect(taken()).toBe(1);
  expect(await lease.release()).toBe('released');
  expect(taken()).toBe(1);
  expect(await lock.tryAcquire('x', { ttlMs: 10_000 })).toMatchObject({ ok: true });
});

test('under each fault of the network, one client holds the lock, and tokens grow', async () => {
  await using proxy = await FaultyProxy.start(service.endpoint);
  const far = clientOf(proxy.endpoint);
  await new FencedS3({ client: far, bucket }).probe();
  let unknown = 0;
  for (const fault of FAULTS) {
    const prefix = newPrefix();
    const objects = new FencedS3({ client: far, bucket, requestTimeoutMs: 500 });
    const one = new S3Lock({ objects, keyPrefix: prefix, pollMs: 20 });
    const two = open(prefix);
    await (await two.acquire('x', { ttlMs: 3_000 })).release();
    proxy.faults.push(fault);
    const mine = await one.tryAcquire('x', { ttlMs: 3_000 });
    const other = await two.tryAcquire('x', { ttlMs: 3_000 });
    await proxy.deliverLate();
    expect([mine.ok, other.ok], fault).not.toEqual([true, true]);
    if (!mine.ok) {
      unknown += 1;
      continue;
    }
    proxy.faults.push(fault);
    await mine.lease.extend(4_000);
    await proxy.deliverLate();
    proxy.faults.push(fault);
    expect(await mine.lease.release(), fault).toBe('released');
    await proxy.deliverLate();
    const next = await two.tryAcquire('x', { ttlMs: 3_000 });
    expect(next, fault).toMatchObject({ ok: true });
    if (next.ok) expect(next.lease.token).toBe(mine.lease.token + 1n);
  }
  expect(unknown).toBeLessThan(3);
});

test('the server is killed, stopped, and its replies are lost: one holder, and no stale write', async () => {
  await using proxy = await TcpProxy.start(addressOf(service.endpoint));
  const far = s3ClientVia(service, proxy);
  parts.defer(() => far.destroy());
  const prefix = newPrefix();
  const ttlMs = 2_000;
  const history: Acquisition[] = [];
  const held = new Set<Lease>();
  const applied: string[] = [];
  let refused = 0;
  let isOver = false;
  const use = async (client: string): Promise<void> => {
    const objects = new FencedS3({ client: far, bucket, requestTimeoutMs: 1_000 });
    const lock = new S3Lock({ objects, keyPrefix: prefix, pollMs: 20 });
    const write = async (token: bigint): Promise<void> => {
      const name = `${token}-${randomUUID()} `;
      try {
        await objects.update(`${prefix}data`, { token }, (current) =>
          Buffer.concat([current?.body ?? Buffer.alloc(0), Buffer.from(name)]),
        );
        applied.push(name);
      } catch (error) {
        const { code } = error as { code: string };
        expect(['stale-token', 'outcome-unknown', 'unavailable']).toContain(code);
        if (code === 'stale-token') refused += 1;
      }
    };
    while (!isOver) {
      const askedMs = performance.now();
      const lease = await lock.acquire('x', { ttlMs, waitMs: 60_000 });
      const { resources, token } = lease;
      history.push({ client, resources, token, askedMs, heldMs: performance.now() });
      expect([...held].filter((one) => one.remainingMs() > 0)).toEqual([]);
      held.add(lease);
      await write(token);
      await write(token - 1n);
      await lease.extend(ttlMs).catch(() => undefined);
      held.delete(lease);
      const mayHold = lease.remainingMs() > 0;
      expect(['released', 'unknown', ...(mayHold ? [] : ['expired'])]).toContain(
        await lease.release(),
      );
    }
  };
  const clients = Promise.all(['one', 'two', 'three'].map(use));
  const progress = async (): Promise<void> => {
    const before = history.length;
    await vi.waitFor(() => expect(history.length).toBeGreaterThan(before + 1), { timeout: 20_000 });
  };
  await progress();
  await service.crash?.();
  await progress();
  proxy.hold('toServer');
  await setTimeout(ttlMs / 2);
  proxy.heal();
  await progress();
  proxy.hold('toClient');
  await proxy.untilHeld('toClient');
  proxy.cut();
  proxy.heal();
  await progress();
  isOver = true;
  await clients;
  expect(judge(history)).toMatchObject({ verdict: 'grows' });
  const found = await new FencedS3({ client, bucket }).get(`${prefix}data`);
  const written: string[] = new TextDecoder().decode(found?.body).match(/\S+ /g) ?? [];
  expect(applied.filter((name) => !written.includes(name))).toEqual([]);
  // Each entry begins with a token, padded to 16 digits, so the text order is that of the tokens.
  const tokens = written.map((name) => name.slice(0, 16));
  expect(tokens).toEqual(tokens.toSorted());
  expect(refused).toBeGreaterThan(0);
}, 90_000);

test('the probe accepts a bucket even if a proxy sends one of its writes twice', async () => {
  await using proxy = await FaultyProxy.start(service.endpoint);
  const far = clientOf(proxy.endpoint);
  // The proxy spares the usual prefix of probes.
  const probePrefix = 'probes-with-faults/';
  const objects = new FencedS3({ client: far, bucket, probePrefix, certificateMaxAgeDays: 0 });
  proxy.faults.push('replayed');
  expect(await objects.probe()).toMatchObject({ report: expect.any(Array) });
  expect(proxy.faults).toEqual([]);
});

/** Holds the next `due` PUTs until the test sends them. The caller gets no answer. */
class LatePuts {
  due = 0;
  readonly late: (() => Promise<unknown>)[] = [];

  readonly calls: S3Calls = {
    send: (command, options) => {
      const send = (): Promise<never> => client.send(command as never, options) as never;
      if (!(command instanceof PutObjectCommand) || this.due === 0) return send();
      this.due -= 1;
      this.late.push(() => client.send(command as never));
      return new Promise<never>((_, reject) => {
        options?.abortSignal?.addEventListener('abort', () => reject(new Error('aborted')));
      });
    },
  };
}

test.each(['new', 'used'])(
  'a write that arrives after its acquisition has failed is refused: a %s resource',
  async (kind) => {
    const prefix = newPrefix();
    const puts = new LatePuts();
    const [one, two] = [open(prefix, puts.calls), open(prefix)];
    if (kind === 'used') await (await two.acquire('x', { ttlMs: 5_000 })).release();
    puts.due = 1;
    expect(await one.tryAcquire('x', { ttlMs: 1_000 })).toMatchObject({ reason: 'no-quorum' });
    await one.close();
    for (const deliver of puts.late) {
      await expect(deliver()).rejects.toMatchObject({ name: 'PreconditionFailed' });
    }
    expect(await two.tryAcquire('x', { ttlMs: 5_000 })).toMatchObject({ ok: true });
  },
);

test('the release of a set reports `released` if a request that was thought lost has extended one of its objects', async () => {
  const puts = new LatePuts();
  const lock = open(newPrefix(), puts.calls);
  const lease = await lock.acquire(['x', 'y'], { ttlMs: 20_000 });
  puts.due = 2;
  await expect(lease.extend(400)).rejects.toMatchObject({ code: 'no-quorum' });
  await puts.late[0]?.();
  expect(await lease.release()).toBe('released');
});

test('a lock over a bucket that fails the probe is an error, which has the reason', async () => {
  const liar: S3Calls = {
    send: (command, options) => {
      const input = command.input as { IfMatch?: string; IfNoneMatch?: string };
      delete input.IfMatch;
      delete input.IfNoneMatch;
      return client.send(command as never, options) as never;
    },
  };
  // The failure counts for all stores of this place.
  const objects = new FencedS3({ client: liar, bucket, probePrefix: '.liar/' });
  await expect(objects.probe()).rejects.toMatchObject({ code: 'unsafe-store' });
  const lock = new S3Lock({ objects, keyPrefix: newPrefix() });
  await expect(lock.acquire('x', { ttlMs: 10_000, waitMs: 20_000 })).rejects.toMatchObject({
    code: 'not-installed',
    message: expect.stringContaining('the bucket cannot hold locks'),
  });
});

test('an object of another program under the key of a lock is an error, and stays as it was', async () => {
  const prefix = newPrefix();
  const Key = `${prefix}x`;
  await client.send(new PutObjectCommand({ Bucket: bucket, Key, Body: '{"owner":5}' }));
  await expect(open(prefix).acquire('x', { ttlMs: 10_000 })).rejects.toThrow(/no lock.*keyPrefix/);
});

test('an object that an operator removes frees its lock, and processes that knew it go on', async () => {
  const prefix = newPrefix();
  const [one, two] = [open(prefix), open(prefix)];
  const remove = () => client.send(new DeleteObjectCommand({ Bucket: bucket, Key: `${prefix}x` }));
  const free = await two.acquire('x', { ttlMs: 10_000 });
  await free.release();
  await remove();
  const lease = await two.acquire('x', { ttlMs: 60_000 });
  expect(lease.token).toBeGreaterThan(free.token);
  expect(await one.tryAcquire('x', { ttlMs: 10_000 })).toMatchObject({ reason: 'held' });
  await remove();
  const next = await one.acquire('x', { ttlMs: 10_000 });
  expect(next.token).toBeGreaterThan(lease.token);
  // The first extension may have been written before the removal, as far as the store knows.
  await vi.waitFor(
    () => expect(lease.extend(60_000)).rejects.toMatchObject({ code: 'lease-lost' }),
    10_000,
  );
  await remove();
  expect(['expired', 'unknown']).toContain(await next.release());
  await using _ = await two.acquire('x', { ttlMs: 10_000 });
});

test('a client that comes once, after a crash, is told for how long to wait', async () => {
  const prefix = newPrefix();
  await open(prefix).acquire('x', { ttlMs: 10_000 });
  const once = open(prefix).acquire('x', { ttlMs: 10_000 });
  await expect(once).rejects.toMatchObject({
    code: 'held',
    message: expect.stringContaining('seen the lease for its whole TTL'),
  });
});

test('leaders follow each other, with tokens that grow', async () => {
  const prefix = newPrefix();
  const [one, two] = [open(prefix), open(prefix)].map(
    (lock) => new Elector({ lock, resource: 'leader', ttlMs: 5_000 }),
  );
  const first = await one?.campaign();
  const following = two?.campaign();
  await one?.resign();
  const second = await following;
  expect(second?.token).toBeGreaterThan(first?.token ?? 0n);
  await two?.resign();
});

test.each([
  ['no objects', {}],
  ['a client in their place', { objects: { send: () => undefined } }],
  ['a prefix that is none', { keyPrefix: '' }],
  ['a pause that is none', { pollMs: 0 }],
  ['another option', { bucket: 'x' }],
])('bad options are refused: %s', (_, config) => {
  const objects = 'keyPrefix' in config || 'pollMs' in config || 'bucket' in config;
  const given = { ...(objects && { objects: new FencedS3({ client, bucket }) }), ...config };
  expect(() => new S3Lock(given as unknown as S3LockConfig)).toThrow(LockArgumentError);
});

test('a name that is too long for a key is refused', async () => {
  const lock = open(newPrefix());
  const name = 'ä'.repeat(600);
  await expect(lock.acquire(name, { ttlMs: 5_000 })).rejects.toBeInstanceOf(LockArgumentError);
});
