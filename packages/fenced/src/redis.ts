import { setTimeout as sleep } from 'node:timers/promises';
import { LockArgumentError, type NodeConfig, Redlock, type RedlockConfig } from '@fenced/lock';
import { Redis, type RedisOptions } from 'ioredis';
import { UsageError } from './command.js';

/** The options that name the nodes of a lock, for `parseArgs`. */
export const redisOptions = {
  redis: { type: 'string', multiple: true },
  durable: { type: 'string', multiple: true },
  'key-prefix': { type: 'string' },
  'max-ttl-ms': { type: 'string' },
} as const;

/** Their values, as `parseArgs` returns them. */
export interface RedisValues {
  readonly redis?: string[] | undefined;
  readonly durable?: string[] | undefined;
  readonly 'key-prefix'?: string | undefined;
  readonly 'max-ttl-ms'?: string | undefined;
  readonly next?: string[] | undefined;
  readonly 'next-key-prefix'?: string | undefined;
}

/** The options that name the next node set of a move. */
export const nextOptions = {
  next: { type: 'string', multiple: true },
  'next-key-prefix': { type: 'string' },
} as const;

export const REDIS_USAGE = `  --redis NAME=URL   one node, such as a=redis://10.0.0.1:6379; repeat it for
                     each. Name all nodes as your programs do. Without a name, a
                     node is called host:port. Or set the environment variable
                     FENCED_REDIS, with commas between the nodes
  --durable NAME     this node loses nothing that it acknowledged (appendfsync
                     always); repeatable
  --key-prefix P     the keyPrefix of your programs ({fenced}:)
  --max-ttl-ms N     the longest lease that this command may take (60000).
                     Nodes keep the limit that they have`;

/**
 * The connection error of each node, by its name. Requests only report that there is no connection.
 */
export type ConnectionErrors = ReadonlyMap<string, string>;

const LAST_COMMANDS_MS = 250;

/** Bounds a client's tries to reach its node. */
type ClientOptions = Pick<
  RedisOptions,
  | 'maxRetriesPerRequest'
  | 'retryStrategy'
  | 'enableOfflineQueue'
  | 'connectTimeout'
  | 'socketTimeout'
  | 'keepAlive'
>;

/** For a short command: a node that cannot be reached counts as unreachable. */
export const ONE_TRY: ClientOptions = { maxRetriesPerRequest: 0, retryStrategy: () => null };

/**
 * For a process that goes on for long: nodes may go away and come back. A silent connection ends
 * after `socketTimeout`. The lock does not wait for that: it makes another connection before.
 */
export const PATIENT_CLIENT: ClientOptions = {
  // A command that cannot be sent fails at once: the other nodes may have a majority.
  maxRetriesPerRequest: 0,
  enableOfflineQueue: false,
  connectTimeout: 5_000,
  socketTimeout: 5_000,
  keepAlive: 10_000,
  retryStrategy: (times: number) => Math.min(50 * times, 1_000),
};

/**
 * Runs `routine` with a `Redlock` on the nodes that the options name, and then disconnects.
 *
 * @throws {UsageError} if the options do not name nodes
 */
export async function withRedlock<Result>(
  values: RedisValues,
  routine: (redlock: Redlock, connectionErrors: ConnectionErrors) => Promise<Result>,
  clientOptions: ClientOptions = ONE_TRY,
): Promise<Result> {
  const given = values.redis ?? listIn(process.env.FENCED_REDIS);
  if (given.length === 0) throw new UsageError('name the nodes: --redis NAME=URL for each');
  const clients: Redis[] = [];
  const connectionErrors = new Map<string, string>();
  const connect = (text: string): NamedNode => {
    const { name, url } = nameAndUrl(text);
    const client = new Redis(url.href, clientOptions);
    client.on('error', (error) => connectionErrors.set(name, error.message));
    clients.push(client);
    return { name, client, durable: values.durable?.includes(name) ?? false };
  };
  try {
    const nodes = given.map(connect);
    const next = nextSetIn(values, connect);
    const unknown = values.durable?.find((name) => !nodes.some((node) => node.name === name));
    if (unknown !== undefined)
      throw new UsageError(`--durable is not the name of a node: ${unknown}`);
    await using redlock = usable(() => new Redlock({ nodes, ...next, ...settingsIn(values) }));
    return await routine(redlock, connectionErrors);
  } finally {
    await Promise.all(clients.map(end));
  }
}

function nextSetIn(
  values: RedisValues,
  connect: (text: string) => NamedNode,
): Pick<RedlockConfig, 'next'> {
  const keyPrefix = values['next-key-prefix'];
  if (keyPrefix === undefined) return {};
  const given = values.next ?? listIn(process.env.FENCED_REDIS_NEXT);
  return { next: { nodes: given.map(connect), keyPrefix } };
}

/** Sends the last commands first, then disconnects. */
async function end(client: Redis): Promise<void> {
  const late = sleep(LAST_COMMANDS_MS, undefined, { ref: false });
  await Promise.race([client.quit().catch(() => {}), late]);
  client.disconnect();
}

type NamedNode = Extract<NodeConfig, { readonly name: string; readonly client: unknown }>;

function listIn(text: string | undefined): readonly string[] {
  return text?.split(',').filter(Boolean) ?? [];
}

function settingsIn(values: RedisValues): Pick<RedlockConfig, 'keyPrefix' | 'maxTtlMs'> {
  const { 'key-prefix': keyPrefix, 'max-ttl-ms': maxTtl } = values;
  return {
    ...(keyPrefix === undefined ? {} : { keyPrefix }),
    ...(maxTtl === undefined ? {} : { maxTtlMs: Number(maxTtl) }),
  };
}

/** Turns an error about an argument of the lock into an error about the command line. */
export function usable<Lock>(open: () => Lock): Lock {
  try {
    return open();
  } catch (error) {
    if (error instanceof LockArgumentError) throw new UsageError(error.message);
    throw error;
  }
}

function nameAndUrl(text: string): { readonly name: string; readonly url: URL } {
  const [, name, address] =
    /^(?:([^=:/]+(?::\d+)?)=)?(rediss?:\/\/(?!.*:\/\/).+)$/.exec(text) ?? [];
  if (address === undefined || !URL.canParse(address)) {
    throw new UsageError(
      `--redis must be NAME=redis://host:port, once for each node: ${withoutPassword(text)}`,
    );
  }
  const url = new URL(address);
  return { name: name ?? `${url.hostname}:${url.port || '6379'}`, url };
}

function withoutPassword(text: string): string {
  return text.replace(/:[^:@/]*@/g, ':***@');
}
