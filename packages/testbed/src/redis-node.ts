import { Redis } from 'ioredis';
import type { Launch } from './server.js';
import type { Service } from './service.js';
import { type ServerFaults, StoppableServer } from './stoppable-server.js';

const ASK_LIMIT_MS = 1_000;

export interface RedisNode extends ServerFaults {
  /** `a`, `b`, `c` … */
  readonly name: string;
  readonly host: string;
  readonly port: number;
  readonly url: string;
}

export interface RedisService extends Service {
  readonly nodes: readonly RedisNode[];
}

/** Returns `INFO server`, which shows that a server answers, and which one. */
export async function askRedis(url: string): Promise<ReadonlyMap<string, string>> {
  const client = new Redis(url, {
    lazyConnect: true,
    retryStrategy: () => null,
    connectTimeout: ASK_LIMIT_MS,
    commandTimeout: ASK_LIMIT_MS,
  });
  let cause: unknown;
  client.on('error', (error) => {
    cause = error;
  });
  try {
    await client.connect();
    await client.ping();
    const lines = (await client.info('server')).split('\r\n');
    return new Map(lines.map((line) => [line.split(':')[0] ?? '', line.replace(/^[^:]*:/, '')]));
  } catch (error) {
    // ioredis throws "Connection is closed." and reports the reason only as an event.
    throw cause ?? error;
  } finally {
    client.disconnect();
  }
}

export function programOf(info: ReadonlyMap<string, string>): string {
  const valkey = info.get('valkey_version');
  return valkey === undefined
    ? `redis-server ${info.get('redis_version')}`
    : `valkey-server ${valkey}`;
}

/** Returns the name of the node with this index: a, b, c … */
export function nodeName(index: number): string {
  return String.fromCharCode('a'.charCodeAt(0) + index);
}

/** A node that is a process of the testbed. */
export class ProgramNode extends StoppableServer implements RedisNode {
  readonly name: string;
  readonly host: string = '127.0.0.1';
  readonly port: number;
  readonly url: string;

  constructor(name: string, port: number, launch: Launch) {
    const url = `redis://127.0.0.1:${port}`;
    super(`Redis node ${name}`, launch, async (pid) => {
      const answer = await askRedis(url);
      // If another server took the port first, the node's own server is about to end with an error.
      if (answer.get('process_id') !== `${pid}`) throw new Error('another server answers');
      return programOf(answer);
    });
    this.name = name;
    this.port = port;
    this.url = url;
  }
}
