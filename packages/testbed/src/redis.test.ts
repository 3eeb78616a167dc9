import { access } from 'node:fs/promises';
import { Redis } from 'ioredis';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { ServiceUnavailableError } from './errors.js';
import { processState } from './process.js';
import { startRedis } from './redis.js';
import type { RedisNode } from './redis-node.js';

afterEach(() => {
  vi.unstubAllEnvs();
});

async function withClient<T>(node: RedisNode, use: (client: Redis) => Promise<T>): Promise<T> {
  const client = new Redis(node.url, { maxRetriesPerRequest: 0, retryStrategy: () => null });
  client.on('error', () => {});
  try {
    return await use(client);
  } finally {
    client.disconnect();
  }
}

const write = (node: RedisNode) => withClient(node, (client) => client.set('key', 'value'));
const read = (node: RedisNode) => withClient(node, (client) => client.get('key'));

function first(nodes: readonly RedisNode[]): RedisNode {
  const [node] = nodes;
  if (node === undefined) throw new Error('at least one node was started');
  return node;
}

test('five nodes are independent servers, and stop ends them all', async () => {
  const { nodes, origin, program, stop } = await startRedis(5);
  expect(nodes.map((node) => node.name)).toEqual(['a', 'b', 'c', 'd', 'e']);
  expect({ origin, program }).toEqual({
    origin: 'program',
    program: expect.stringMatching(/^(redis|valkey)-server \d/),
  });
  await write(first(nodes));
  expect(await Promise.all(nodes.map(read))).toEqual(['value', null, null, null, null]);
  const pids = nodes.map((node) => node.pid);
  await stop();
  await stop();
  for (const pid of pids) {
    await expect(access(`/proc/${pid}`)).rejects.toMatchObject({ code: 'ENOENT' });
  }
});

test('a second start in the same process is another server', async () => {
  await using one = await startRedis(1);
  await using two = await startRedis(1);
  await write(first(one.nodes));
  expect(await read(first(two.nodes))).toBeNull();
});

describe.each([
  { persistence: 'none', remembered: null },
  { persistence: 'aof', remembered: 'value' },
] as const)('with persistence $persistence', ({ persistence, remembered }) => {
  test(`a killed node comes back on its port with ${remembered ?? 'nothing'}`, async () => {
    await using service = await startRedis(1, { persistence });
    const node = first(service.nodes);
    const { pid, port } = node;
    await write(node);
    await node.kill();
    expect(node.pid).toBeUndefined();
    await expect(read(node)).rejects.toThrow();
    await node.start();
    expect(node.pid).not.toBe(pid);
    expect(node.port).toBe(port);
    expect(await read(node)).toBe(remembered);
  });

  test('a paused node is really stopped, keeps its memory and answers when it wakes', async () => {
    await using service = await startRedis(1, { persistence });
    const node = first(service.nodes);
    await write(node);
    await node.pause();
    expect(await processState(node.pid ?? 0)).toBe('T');
    const answer = read(node);
    await node.wake();
    expect(await answer).toBe('value');
  });
});

test('a paused node can be killed, and the service stopped while another is paused', async () => {
  const { nodes, stop } = await startRedis(2);
  await Promise.all(nodes.map((node) => node.pause()));
  await first(nodes).kill();
  await stop();
  expect(nodes.map((node) => node.pid)).toEqual([undefined, undefined]);
});

test('starting a running node, or killing or pausing a killed one, is an error', async () => {
  await using service = await startRedis(1);
  const node = first(service.nodes);
  await expect(node.start()).rejects.toThrow('Redis node a runs already');
  await node.kill();
  await expect(node.kill()).rejects.toThrow('Redis node a is not running');
  await expect(node.pause()).rejects.toThrow('Redis node a is not running');
});

describe('servers of the environment', () => {
  test('are used, and the testbed refuses to end, pause or start them', async () => {
    await using service = await startRedis(2);
    vi.stubEnv('FENCED_REDIS_URLS', service.nodes.map((node) => node.url).join(', '));
    const found = await startRedis(2);
    expect(found.origin).toBe('environment');
    expect(found.nodes.map((node) => node.port)).toEqual(service.nodes.map((node) => node.port));
    const node = first(found.nodes);
    for (const act of [node.kill, node.start, node.pause, node.wake]) {
      await expect(act()).rejects.toMatchObject({ code: 'not-ours' });
    }
    await found.stop();
    expect(await write(first(service.nodes))).toBe('OK');
  });

  test('that are fewer than needed are an error', async () => {
    vi.stubEnv('FENCED_REDIS_URLS', 'redis://127.0.0.1:1');
    await expect(startRedis(3)).rejects.toMatchObject({
      code: 'environment',
      message: 'FENCED_REDIS_URLS has 1 nodes, 3 are needed',
    });
  });

  test('that do not answer are an error that names the variable and hides the password', async () => {
    vi.stubEnv('FENCED_REDIS_URLS', 'redis://user:secret@127.0.0.1:1');
    const refused = startRedis(1);
    await expect(refused).rejects.toMatchObject({ code: 'environment' });
    await expect(refused).rejects.toThrow(
      /^FENCED_REDIS_URLS=redis:\/\/user:\*\*\*@.*ECONNREFUSED/,
    );
  });

  test.each(['127.0.0.1:6379', 'redis://[', 'http://127.0.0.1:6379'])(
    '%s is not an address',
    async (url) => {
      vi.stubEnv('FENCED_REDIS_URLS', url);
      await expect(startRedis(1)).rejects.toThrow('not an address like redis://127.0.0.1:6379');
    },
  );

  test('without an address are an error', async () => {
    vi.stubEnv('FENCED_SERVICES', 'environment');
    vi.stubEnv('FENCED_REDIS_URLS', '');
    await expect(startRedis(1)).rejects.toThrow(ServiceUnavailableError);
  });
});

test('an unknown value of FENCED_SERVICES is an error', async () => {
  vi.stubEnv('FENCED_SERVICES', 'dokcer');
  await expect(startRedis(1)).rejects.toThrow(
    'FENCED_SERVICES=dokcer is unknown: use environment, program, docker',
  );
});

test.each([0, -1, 1.5, 27, Number.NaN])('%d nodes are refused', async (n) => {
  await expect(startRedis(n)).rejects.toThrow(RangeError);
});
