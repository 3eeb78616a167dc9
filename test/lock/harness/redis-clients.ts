import type { RedisClient } from '@fenced/lock';
import { GlideClient, Logger } from '@valkey/valkey-glide';
import { Redis } from 'ioredis';
import { Redis as Redis5 } from 'ioredis-5';
import { Redis as Valkey } from 'iovalkey';
import { createClient } from 'redis';
import { createClient as createClient5 } from 'redis-5';

// GLIDE prints every error reply, NOSCRIPT among them.
Logger.setLoggerConfig('off');

/** A client, and a function that closes it as its owner does. */
interface OpenClient {
  readonly client: RedisClient;
  close(): void;
}

/** Opens a client of one node, as its owner does. */
export type Open = (port: number) => Promise<OpenClient>;

const RETRY_MS = 20;
const silent = (): undefined => undefined;

/** Every kind of client that the lock accepts, each connected to one node. */
export const CLIENTS: readonly (readonly [name: string, open: Open])[] = [
  ['ioredis 6', async (port) => ioredis(new Redis(port, { retryStrategy: () => RETRY_MS }))],
  ['ioredis 5', async (port) => ioredis(new Redis5(port, { retryStrategy: () => RETRY_MS }))],
  ['iovalkey', async (port) => ioredis(new Valkey(port, { retryStrategy: () => RETRY_MS }))],
  ['node-redis 6', (port) => nodeRedis(createClient(nodeRedisOptions(port)))],
  ['node-redis 5', (port) => nodeRedis(createClient5(nodeRedisOptions(port)))],
  ['Valkey GLIDE', glide],
];

function nodeRedisOptions(port: number) {
  return { socket: { host: '127.0.0.1', port, reconnectStrategy: RETRY_MS } };
}

function ioredis(client: Redis | Redis5 | Valkey): OpenClient {
  client.on('error', silent);
  return { client, close: () => client.disconnect() };
}

async function nodeRedis(
  client: ReturnType<typeof createClient> | ReturnType<typeof createClient5>,
): Promise<OpenClient> {
  client.on('error', silent);
  await client.connect();
  return { client, close: () => client.destroy() };
}

async function glide(port: number): Promise<OpenClient> {
  const client = await GlideClient.createClient({ addresses: [{ host: '127.0.0.1', port }] });
  return { client, close: () => client.close() };
}
