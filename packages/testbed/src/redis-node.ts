import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { GuardedProcess } from './lifeline.js';
import { processState } from './process.js';
import { type Launch, launch, untilItAnswers } from './server.js';
import type { Service } from './service.js';

const ASK_LIMIT_MS = 1_000;
const STATE_POLL_MS = 1;

/** What is done to a node. On servers of the environment each of these throws a `TestbedError` with code `not-ours`. */
export interface RedisFaults {
  /** Of the server, where it is a running process of this machine that we started. */
  readonly pid: number | undefined;
  /** SIGKILL: what was not written to disk is lost. Resolves when it has ended. */
  kill(): Promise<void>;
  /** Starts a killed node again on the same port with what it had on disk. Resolves when it answers. */
  start(): Promise<void>;
  /** SIGSTOP: it keeps its memory and its connections and does nothing. Resolves when it is really stopped. */
  pause(): Promise<void>;
  /** SIGCONT: it goes on where it was, its clock having jumped. */
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

/** Reads `INFO server`, so that we know both that it answers and whom we are talking to. */
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
    // What ioredis throws is "Connection is closed."; why it is closed comes only as an event.
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

/** The names of nodes by their place: a, b, c … */
export function nodeName(index: number): string {
  return String.fromCharCode('a'.charCodeAt(0) + index);
}

/** A node that is a process of this machine. */
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

  /** Name and version, known once it has been started. */
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
      // Another server may have taken the port before ours could: ours is about to end with an error then.
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
