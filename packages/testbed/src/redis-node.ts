import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { GuardedProcess } from './guardian.js';
import { processState } from './process.js';
import { type Launch, launch, untilItAnswers } from './server.js';
import type { Service } from './service.js';

const ASK_LIMIT_MS = 1_000;
const STATE_POLL_MS = 1;

/**
 * Faults of a node. On servers of the environment they throw a `TestbedError` with code `not-ours`.
 */
export interface RedisFaults {
  /** Process id. Undefined if the server does not run, or is no process of the testbed. */
  readonly pid: number | undefined;
  /** Kills it with SIGKILL. Data that are not on disk are lost. Resolves when it has ended. */
  kill(): Promise<void>;
  /** Restarts a killed node on its port, with the data on its disk. Resolves when it answers. */
  start(): Promise<void>;
  /** Stops it with SIGSTOP. It keeps memory and connections. Resolves when it is stopped. */
  pause(): Promise<void>;
  /** Continues it with SIGCONT. Its clock has jumped. */
  wake(): Promise<void>;
}

export interface RedisNode extends RedisFaults {
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
export class ProgramNode implements RedisNode, AsyncDisposable {
  readonly name: string;
  readonly host: string = '127.0.0.1';
  readonly port: number;
  readonly url: string;
  readonly #launch: Launch;
  #process: GuardedProcess | undefined;
  #program = '';

  constructor(name: string, port: number, launch: Launch) {
    this.name = name;
    this.port = port;
    this.url = `redis://${this.host}:${port}`;
    this.#launch = launch;
  }

  get pid(): number | undefined {
    return this.#process?.pid;
  }

  /** Name and version, after the first start. */
  get program(): string {
    return this.#program;
  }

  async start(): Promise<void> {
    if (this.#process !== undefined) throw new Error(`Redis node ${this.name} runs already`);
    const started = await launch(this.#launch);
    this.#process = started;
    void started.exited.then(() => {
      if (this.#process === started) this.#process = undefined;
    });
    const info = await untilItAnswers(started, async () => {
      const answer = await askRedis(this.url);
      // If another server took the port first, ours is about to end with an error.
      if (answer.get('process_id') !== `${started.pid}`) throw new Error('another server answers');
      return answer;
    });
    this.#program = programOf(info);
  }

  async kill(): Promise<void> {
    const running = this.#running();
    running.signal('SIGKILL');
    await running.exited;
  }

  async pause(): Promise<void> {
    const { pid, signal } = this.#running();
    signal('SIGSTOP');
    while ((await processState(pid)) !== 'T') await sleep(STATE_POLL_MS);
  }

  async wake(): Promise<void> {
    const { pid, signal } = this.#running();
    signal('SIGCONT');
    while ((await processState(pid)) === 'T') await sleep(STATE_POLL_MS);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#process?.end();
  }

  #running(): GuardedProcess {
    if (this.#process === undefined) throw new Error(`Redis node ${this.name} is not running`);
    return this.#process;
  }
}
