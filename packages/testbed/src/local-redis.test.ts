import { Redis } from 'ioredis';
import { afterEach, expect, test, vi } from 'vitest';
import { type LocalRedisNode, startLocalRedis, startSentinel } from './local-redis.js';

afterEach(() => {
  vi.unstubAllEnvs();
});

async function withClient<T>(node: LocalRedisNode, use: (client: Redis) => Promise<T>): Promise<T> {
  const client = new Redis(node.url, { maxRetriesPerRequest: 0, retryStrategy: () => null });
  client.on('error', () => {});
  try {
    return await use(client);
  } finally {
    client.disconnect();
  }
}

const write = (node: LocalRedisNode, value: string) =>
  withClient(node, (client) => client.set('key', value));
const read = (node: LocalRedisNode) => withClient(node, (client) => client.get('key'));
const aheadSeconds = (node: LocalRedisNode) =>
  withClient(node, async (client) => Number((await client.time())[0]) - Date.now() / 1_000);

function only(nodes: readonly LocalRedisNode[]): LocalRedisNode {
  const [node] = nodes;
  if (node === undefined) throw new Error('one node was started');
  return node;
}

test('a killed node restarts with its data, with a snapshot, or without data', async () => {
  await using service = await startLocalRedis(1, { persistence: 'aof' });
  const node = only(service.nodes);
  await write(node, 'yesterday');
  const snapshot = await node.snapshot();
  await write(node, 'today');
  const found: (string | null)[] = [];
  for (const data of ['kept', snapshot, snapshot, 'none'] as const) {
    await node.kill();
    await node.start(data);
    found.push(await read(node));
  }
  expect(found).toEqual(['today', 'yesterday', 'yesterday', null]);
});

test('starting a running node is an error and does not touch its files', async () => {
  await using service = await startLocalRedis(1, { persistence: 'aof' });
  const node = only(service.nodes);
  await write(node, 'kept');
  await expect(node.start('none')).rejects.toThrow('Redis node a runs already');
  await node.kill();
  await node.start();
  expect(await read(node)).toBe('kept');
});

test('the wall clock of a running node can be moved by hours, and a restart keeps it', async () => {
  await using service = await startLocalRedis(1, { hasMovableClock: true });
  const node = only(service.nodes);
  const { pid } = node;
  for (const hours of [0, 1, -1]) {
    await node.setClock(hours * 3_600_000);
    expect(Math.abs((await aheadSeconds(node)) - hours * 3_600)).toBeLessThan(5);
  }
  expect(node.pid).toBe(pid);
  await node.kill();
  await node.start();
  expect(Math.abs((await aheadSeconds(node)) + 3_600)).toBeLessThan(5);
});

test('a node without a movable clock says so', async () => {
  await using service = await startLocalRedis(1);
  await expect(only(service.nodes).setClock(1)).rejects.toThrow('node a has no movable clock');
});

test('a Sentinel answers and watches a node', async () => {
  await using service = await startLocalRedis(1);
  await using sentinel = await startSentinel();
  const { host, port } = only(service.nodes);
  const found = await withClient(only(sentinel.nodes), async (client) => {
    await client.call('SENTINEL', 'MONITOR', 'a', host, port, 1);
    return client.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', 'a');
  });
  expect(found).toEqual([host, `${port}`]);
});

test('a missing server program is named', async () => {
  vi.stubEnv('FENCED_REDIS_SERVER', '/nowhere/redis-server');
  await expect(startLocalRedis(1)).rejects.toMatchObject({
    code: 'environment',
    message: expect.stringContaining('FENCED_REDIS_SERVER=/nowhere/redis-server is not a program'),
  });
});
