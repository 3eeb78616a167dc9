import { setTimeout } from 'node:timers/promises';
import { S3Client } from '@aws-sdk/client-s3';
import { FencedGateway, type Objects } from '@fenced/client';
import { type Lock, Redlock } from '@fenced/lock';
import { MemoryLock } from '@fenced/lock/testing';
import { FencedS3 } from '@fenced/store/s3';
import { MemoryS3 } from '@fenced/store/testing';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { GatewayWorld } from '../gateway/harness/world.js';

/** The services of a program. The program does not know how they were made. */
interface Services {
  readonly lock: Lock;
  readonly objects: Objects;
}

let world: GatewayWorld;
const parts = new AsyncDisposableStack();
beforeAll(async () => {
  world = parts.use(await GatewayWorld.start());
});
afterAll(() => parts.disposeAsync());

async function direct(): Promise<Services> {
  const nodes = world.redis.nodes.map(({ host, port }, at) => {
    const client = new Redis({ host, port });
    parts.defer(() => client.disconnect());
    return { name: `n${at}`, client };
  });
  const client = world.s3Client(world.s3.endpoint);
  const lock = new Redlock({ nodes, keyPrefix: world.keyPrefix });
  return { lock, objects: new FencedS3({ client, bucket: world.bucket }) };
}

async function inMemory(): Promise<Services> {
  const s3 = parts.use(await MemoryS3.start());
  const client = new S3Client(s3.clientConfig);
  return { lock: new MemoryLock(), objects: new FencedS3({ client, bucket: 'reports' }) };
}

async function throughGateway(): Promise<Services> {
  const { url } = parts.use(await world.open());
  const gateway = new FencedGateway({ url });
  return { lock: gateway, objects: gateway.objects };
}

/** The code of the error that a call ends with. */
const codeOf = (call: Promise<unknown>): Promise<unknown> =>
  call.then(
    () => 'no error',
    (error) => error.code,
  );

/** One program. Returns all that it observes, with tokens relative to its first one. */
async function program({ lock, objects }: Services, name: string): Promise<unknown> {
  const early = await lock.acquire(name, { ttlMs: 10_000 });
  await objects.put(name, 'early', { token: early.token });
  const held = await codeOf(lock.acquire(name, { ttlMs: 1_000 }));
  const timeout = await codeOf(lock.acquire(name, { ttlMs: 1_000, waitMs: 50 }));
  const attempt = await lock.tryAcquire([name, `${name}/2`], { ttlMs: 1_000 });
  const reason = new Error('enough');
  const controller = new AbortController();
  const { signal } = controller;
  const waiting = lock.acquire(name, { ttlMs: 1_000, waitMs: 5_000, signal });
  void setTimeout(50).then(() => controller.abort(reason));
  const aborted = await waiting.catch((error) => error === reason);
  await early.extend(20_000);
  const extended = early.remainingMs() > 15_000;
  const outcome = await lock.release({ resource: early.resources, owner: early.owner });
  const limited = await codeOf(
    lock.using(`${name}/3`, { ttlMs: 1_000, maxHoldMs: 1_000 }, async ({ signal }) => {
      await setTimeout(5_000, undefined, { signal }).catch(() => undefined);
    }),
  );
  const later = await lock.using(name, { ttlMs: 5_000, waitMs: 5_000 }, async (lease) => {
    lease.ensure();
    await objects.update(name, { token: lease.token }, (current) => {
      return `${new TextDecoder().decode(current?.body)}, then later`;
    });
    return lease.token > early.token;
  });
  const late = await codeOf(objects.put(name, 'late', { token: early.token }));
  const body = new TextDecoder().decode((await objects.get(name))?.body);
  return {
    held,
    timeout,
    aborted,
    extended,
    outcome,
    limited,
    later,
    late,
    body,
    attempt: attempt.ok || attempt.reason,
    resources: early.resources,
    ended: early.signal.reason.code,
    ensured: await codeOf((async () => early.ensure())()),
    revived: await codeOf(early.extend(1_000)),
    released: await early.release(),
    tooShort: await codeOf(lock.acquire(name, { ttlMs: 1 })),
    unnamed: await codeOf(lock.acquire('', { ttlMs: 1_000 })),
    tokenless: await codeOf(objects.put(name, 'x', { token: 0n })),
    closed: await lock.close().then(() => codeOf(lock.acquire(name, { ttlMs: 1_000 }))),
  };
}

describe.each<[string, () => Promise<Services>]>([
  ['a lock and a store', direct],
  ['a lock and a store in memory', inMemory],
  ['a gateway', throughGateway],
])('over %s', (name, open) => {
  test('one program sees the same results and the same codes', async () => {
    const resource = `one/${name.replaceAll(' ', '-')}`;
    expect(await program(await open(), resource)).toEqual({
      held: 'held',
      timeout: 'timeout',
      attempt: 'held',
      aborted: true,
      extended: true,
      outcome: 'released',
      limited: 'lease-lost',
      later: true,
      late: 'stale-token',
      body: 'early, then later',
      resources: [resource],
      ended: 'lease-lost',
      ensured: 'lease-lost',
      revived: 'lease-lost',
      released: 'released',
      tooShort: 'invalid-argument',
      unnamed: 'invalid-argument',
      tokenless: 'invalid-token',
      closed: 'closed',
    });
  });
});
