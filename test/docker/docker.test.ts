import { Redis } from 'ioredis';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { startPostgres } from '../../packages/testbed/src/postgres.js';
import { startRedis } from '../../packages/testbed/src/redis.js';
import { haveDocker } from './harness/engine.js';
import { importPostgres, importRedis } from './harness/images.js';

let docker: AsyncDisposable | undefined;

beforeAll(async () => {
  // Testcontainers' helper image would have to be pulled, and this test ends its own containers.
  vi.stubEnv('TESTCONTAINERS_RYUK_DISABLED', 'true');
  docker = await haveDocker();
  vi.stubEnv('FENCED_SERVICES', 'docker');
  vi.stubEnv('FENCED_REDIS_IMAGE', await importRedis());
  vi.stubEnv('FENCED_POSTGRES_IMAGE', await importPostgres());
});

afterAll(async () => {
  await docker?.[Symbol.asyncDispose]();
});

test('Redis nodes in Docker keep their disk through a kill, and their memory through a pause', async () => {
  await using service = await startRedis(3, { persistence: 'aof' });
  expect(service).toMatchObject({
    origin: 'docker',
    program: expect.stringMatching(/^\w+-server \d/),
  });
  expect(service.nodes.map((node) => node.name)).toEqual(['a', 'b', 'c']);
  const [node] = service.nodes;
  if (node === undefined) throw new Error('three nodes were started');
  expect(await ask(node.url, (client) => client.set('key', 'value'))).toBe('OK');
  await node.kill();
  await expect(ask(node.url, (client) => client.ping())).rejects.toThrow();
  await node.start();
  await node.pause();
  const answer = ask(node.url, (client) => client.get('key'));
  await node.wake();
  expect(await answer).toBe('value');
});

test('Postgres in Docker answers with UTF-8 and locale C', async () => {
  await using service = await startPostgres();
  expect(service).toMatchObject({
    origin: 'docker',
    program: expect.stringMatching(/^postgres \d/),
  });
  const client = new Client(service.url);
  await client.connect();
  const { rows } = await client.query(
    "SELECT current_setting('server_encoding') AS encoding, datcollate AS locale FROM pg_database WHERE datname = 'postgres'",
  );
  await client.end();
  expect(rows).toEqual([{ encoding: 'UTF8', locale: 'C' }]);
});

async function ask<T>(url: string, question: (client: Redis) => Promise<T>): Promise<T> {
  const client = new Redis(url, { maxRetriesPerRequest: 0, retryStrategy: () => null });
  client.on('error', () => {});
  try {
    return await question(client);
  } finally {
    client.disconnect();
  }
}
