import { randomUUID } from 'node:crypto';
import { NoQuorumError, Redlock } from '@fenced/lock';
import { type LocalRedisService, startLocalRedis } from '@fenced/testbed';
import { Redis, type RedisOptions } from 'ioredis';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { until } from './harness/redlock-nodes.js';

type Options = Pick<RedisOptions, 'maxRetriesPerRequest' | 'enableOfflineQueue' | 'retryStrategy'>;

let redis: LocalRedisService;
const clients: Redis[] = [];
beforeEach(async () => {
  redis = await startLocalRedis(3);
});
afterEach(async () => {
  for (const client of clients.splice(0)) client.disconnect();
  vi.restoreAllMocks();
  await redis.stop();
});

function open(options: Options = {}): Redlock {
  const nodes = redis.nodes.map(({ name, port }) => {
    const client = new Redis(port, options);
    clients.push(client);
    return { name, client };
  });
  return new Redlock({ nodes, keyPrefix: `{${randomUUID()}}:` });
}

async function refusal(lock: Redlock): Promise<NoQuorumError> {
  const error = await lock.acquire('x', { ttlMs: 1_000 }).catch((reason: unknown) => reason);
  if (error instanceof NoQuorumError) return error;
  throw new Error('the lock was granted, or refused for another reason', { cause: error });
}

const refused = {
  cause: { code: 'ECONNREFUSED' },
  message: expect.stringContaining('ECONNREFUSED'),
};

test.each<[string, Options]>([
  ['that goes on trying to connect', {}],
  ['that fails at once while it is not connected', { maxRetriesPerRequest: 0 }],
  ['that does not queue', { enableOfflineQueue: false }],
  ['that has given up', { retryStrategy: () => null }],
])('the error has the reason of a dead node as its cause: a client %s', async (_, options) => {
  vi.spyOn(console, 'error').mockImplementation(() => undefined);
  await Promise.all(redis.nodes.slice(0, 2).map((node) => node.kill()));
  const lock = open(options);
  const told = [0, 0];
  for (const [at] of told.entries()) {
    clients[at]?.on('error', () => {
      told[at] = (told[at] ?? 0) + 1;
    });
  }
  await until(() => told.every((count) => count > 0));
  const error = await refusal(lock);
  expect(error.nodes.slice(0, 2)).toMatchObject([{ error: refused }, { error: refused }]);
  expect(error.message).toContain('ECONNREFUSED');
  expect(error.cause).toBeInstanceOf(AggregateError);
  expect(error.cause).toMatchObject({ errors: [refused, refused] });
  const attempt = await lock.tryAcquire('x', { ttlMs: 1_000 });
  expect(attempt.nodes.slice(0, 2)).toMatchObject([{ error: refused }, { error: refused }]);
  const status = await lock.status();
  expect(status.slice(0, 2)).toMatchObject([{ error: refused }, { error: refused }]);
});

test('errors without a listener are written to the console, as without a Redlock; each error once', async () => {
  const written = vi.spyOn(console, 'error').mockImplementation(() => undefined);
  await redis.nodes[0]?.kill();
  open({ retryStrategy: () => null });
  const [first] = clients;
  const nodes = [{ name: 'a', client: first as Redis }];
  new Redlock({ nodes });
  await until(() => first?.status === 'end');
  const unhandled = ['[ioredis] Unhandled error event:', expect.stringContaining('ECONNREFUSED')];
  expect(written.mock.calls).toEqual([unhandled]);
});

test('once a node is connected again, later errors do not show its earlier connection error', async () => {
  vi.spyOn(console, 'error').mockImplementation(() => undefined);
  await Promise.all(redis.nodes.map((node) => node.kill()));
  const lock = open();
  await until(() => clients.every(({ status }) => status === 'reconnecting'));
  await Promise.all(redis.nodes.map((node) => node.start()));
  await until(() => clients.every(({ status }) => status === 'ready'));
  await Promise.all(redis.nodes.map((node) => node.pause()));
  const { nodes } = await refusal(lock);
  await Promise.all(redis.nodes.map((node) => node.wake()));
  for (const { error } of nodes) {
    // The lock tries another connection to a node that is silent.
    expect(error?.message).toMatch(/^no answer within \d+ ms(; its client is connect(ing)?)?$/);
    expect(error?.cause).toBeUndefined();
  }
});

test('a lease that is lost names the reason of its last extension, and a lease that goes on has it, too', async () => {
  const lock = open();
  const silent = lock.using('x', { ttlMs: 1_000 }, async ({ signal }) => {
    await Promise.all(redis.nodes.map((node) => node.pause()));
    await until(() => signal.aborted);
  });
  await expect(silent).rejects.toThrow(/time has passed; its last extension failed: .*no answer/);
  await Promise.all(redis.nodes.map((node) => node.wake()));

  const other = await lock.acquire('z', { ttlMs: 1_000, waitMs: 5_000 });
  for (const client of clients) await client.flushall();
  await expect(other.extend(1_000)).rejects.toThrow(/not-voting/);
  expect(other.extensionError).toBeInstanceOf(NoQuorumError);
});
