import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { LockArgumentError, type NodeConfig, Redlock } from '@fenced/lock';
import { Redis } from 'ioredis';
import { UsageError } from './command.js';

/** The options that tell the nodes of a lock, for `parseArgs`. */
export const redisOptions = {
  redis: { type: 'string', multiple: true },
  durable: { type: 'string', multiple: true },
  'key-prefix': { type: 'string' },
  'max-ttl-ms': { type: 'string' },
} as const;

/** What `parseArgs` made of them. */
export interface RedisValues {
  readonly redis?: string[] | undefined;
  readonly durable?: string[] | undefined;
  readonly 'key-prefix'?: string | undefined;
  readonly 'max-ttl-ms'?: string | undefined;
}

export const REDIS_USAGE = `  --redis NAME=URL   a node, once for each: --redis a=redis://10.0.0.1:6379 --redis b=…; without a name it is called
                     host:port. All of them, named as the programs name them. Without --redis, the environment variable
                     FENCED_REDIS has them with commas between
  --durable NAME     the node loses nothing it has acknowledged (appendfsync always), as the programs say
  --key-prefix P     as the programs have it ({fenced}:)
  --max-ttl-ms N     as the programs have it (60000)`;

/** What was wrong with the connection to a node, by its name: requests only say that there is none. */
export type Troubles = ReadonlyMap<string, string>;

const LAST_COMMANDS_MS = 250;

/** Bounds a client's tries to reach its node. */
export interface ClientOptions {
  readonly maxRetriesPerRequest: number;
  readonly retryStrategy: (times: number) => number | null;
  readonly connectTimeout?: number;
}

/** For a command that is over soon: a node that cannot be reached counts as away. */
const ONE_TRY: ClientOptions = { maxRetriesPerRequest: 0, retryStrategy: () => null };

/**
 * Does something with a `Redlock` on the nodes that the options tell, and lets go of everything.
 *
 * @throws {UsageError} where the options do not tell nodes
 */
export async function withRedlock<Result>(
  values: RedisValues,
  routine: (redlock: Redlock, troubles: Troubles) => Promise<Result>,
  clientOptions: ClientOptions = ONE_TRY,
): Promise<Result> {
  const told = values.redis ?? process.env.FENCED_REDIS?.split(',').filter(Boolean) ?? [];
  if (told.length === 0) throw new UsageError('name the nodes: --redis NAME=URL for each');
  const clients: Redis[] = [];
  const troubles = new Map<string, string>();
  try {
    const nodes = told.map((text) => {
      const { name, url } = nameAndUrl(text);
      const client = new Redis(url.href, clientOptions);
      client.on('error', (error) => troubles.set(name, error.message));
      clients.push(client);
      return { name, client, durable: values.durable?.includes(name) ?? false };
    });
    const unknown = values.durable?.find((name) => !nodes.some((node) => node.name === name));
    if (unknown !== undefined) throw new UsageError(`--durable names no node: ${unknown}`);
    await using redlock = makeRedlock(nodes, values);
    return await routine(redlock, troubles);
  } finally {
    // A wait that was aborted gives up its position once all that is ready has run.
    await nextTurn();
    await nextTurn();
    await Promise.all(clients.map(end));
  }
}

/** Lets the last commands leave first. */
async function end(client: Redis): Promise<void> {
  const late = sleep(LAST_COMMANDS_MS, undefined, { ref: false });
  await Promise.race([client.quit().catch(() => {}), late]);
  client.disconnect();
}

function makeRedlock(nodes: readonly NodeConfig[], values: RedisValues): Redlock {
  const { 'key-prefix': keyPrefix, 'max-ttl-ms': maxTtl } = values;
  try {
    return new Redlock({
      nodes,
      ...(keyPrefix === undefined ? {} : { keyPrefix }),
      ...(maxTtl === undefined ? {} : { maxTtlMs: Number(maxTtl) }),
    });
  } catch (error) {
    if (error instanceof LockArgumentError) throw new UsageError(error.message);
    throw error;
  }
}

function nameAndUrl(text: string): { readonly name: string; readonly url: URL } {
  const [, name, address] = /^(?:([^=:/]+(?::\d+)?)=)?(rediss?:\/\/.+)$/.exec(text) ?? [];
  if (address === undefined || !URL.canParse(address)) {
    throw new UsageError(`--redis takes NAME=redis://host:port: ${withoutPassword(text)}`);
  }
  const url = new URL(address);
  return { name: name ?? `${url.hostname}:${url.port || '6379'}`, url };
}

function withoutPassword(text: string): string {
  return text.replace(/:[^:@/]*@/, ':***@');
}
