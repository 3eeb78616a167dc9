import { randomUUID } from 'node:crypto';
import { cp, mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { TestbedError } from './errors.js';
import { makeTemporaryFolder } from './guardian.js';
import { MovableClock } from './movable-clock.js';
import { REDIS } from './needs.js';
import { nodeName, ProgramNode } from './redis-node.js';
import { onFreePort } from './server.js';
import { asService, type Service } from './service.js';

/** Copy of a node's disk. */
export interface Snapshot {
  readonly path: string;
}

export interface LocalRedisOptions {
  /** `aof` writes each change to disk before the reply (`appendfsync always`). @default 'none' */
  readonly persistence?: 'none' | 'aof';
  /** Enables `setClock`, by libfaketime. @default false */
  readonly hasMovableClock?: boolean;
  /** Added to the command line. */
  readonly args?: readonly string[];
}

export interface LocalRedisService extends Service {
  readonly nodes: readonly LocalRedisNode[];
}

/** A Redis server of the testbed whose disk and clock can be changed. */
export class LocalRedisNode extends ProgramNode {
  readonly #folder: string;
  readonly #clock: MovableClock | undefined;

  /** @param command `args` precede the port and the folder */
  constructor(
    name: string,
    port: number,
    folder: string,
    command: { readonly path: string; readonly args: readonly string[] },
    clock?: MovableClock,
  ) {
    super(name, port, {
      command: command.path,
      args: [...command.args, '--port', `${port}`, '--dir', folder],
      logPath: `${folder}.log`,
      ...(clock && { options: { env: { ...process.env, ...clock.env } } }),
    });
    this.#folder = folder;
    this.#clock = clock;
  }

  /** Starts the server with its data, without data, or with the data of a snapshot. */
  override async start(data: 'kept' | 'none' | Snapshot = 'kept'): Promise<void> {
    // `super.start` refuses a running server, so its files must not be touched before.
    if (this.pid === undefined) await this.#prepare(data);
    await super.start();
  }

  /** Copies the node's disk. */
  async snapshot(): Promise<Snapshot> {
    const path = `${this.#folder}-${randomUUID()}`;
    await cp(this.#folder, path, { recursive: true });
    return { path };
  }

  /** Offset of its wall clock in milliseconds. A negative one is in the past. */
  get aheadMs(): number {
    return this.#clock?.aheadMs ?? 0;
  }

  /** Sets the offset of its wall clock, also while it runs. Its monotonic clock is not changed. */
  async setClock(aheadMs: number): Promise<void> {
    if (this.#clock === undefined) throw new Error(`node ${this.name} has no movable clock`);
    await this.#clock.set(aheadMs);
  }

  async #prepare(data: 'kept' | 'none' | Snapshot): Promise<void> {
    if (data !== 'kept') await rm(this.#folder, { recursive: true, force: true });
    if (typeof data === 'object') await cp(data.path, this.#folder, { recursive: true });
    await mkdir(this.#folder, { recursive: true });
  }
}

/**
 * Starts `n` servers of the `redis-server` or `valkey-server` of this machine, or of the program in
 * `FENCED_REDIS_SERVER`.
 *
 * @throws {TestbedError} `unavailable` if there is none, or no libfaketime for a movable clock
 */
export async function startLocalRedis(
  n: number,
  { persistence = 'none', hasMovableClock = false, args = [] }: LocalRedisOptions = {},
): Promise<LocalRedisService> {
  return startServers(n, [...redisArgs(persistence), ...args], hasMovableClock);
}

/** Returns a server's arguments for persistence. */
export function redisArgs(persistence: 'none' | 'aof'): string[] {
  const aof = ['--appendonly', 'yes', '--appendfsync', 'always'];
  return ['--save', '', ...(persistence === 'aof' ? aof : ['--appendonly', 'no'])];
}

/** Starts a Redis Sentinel. It watches nothing until it gets `SENTINEL MONITOR`. */
export async function startSentinel(): Promise<LocalRedisService> {
  // A Sentinel needs a file for its state.
  await using parts = new AsyncDisposableStack();
  const folder = parts.use(await makeTemporaryFolder('sentinel'));
  const path = join(folder.path, 'sentinel.conf');
  await writeFile(path, '');
  const service = parts.use(await startServers(1, [path, '--sentinel']));
  const { origin, program, nodes } = service;
  return asService({ origin, program }, parts.move(), { nodes });
}

async function startServers(
  n: number,
  args: readonly string[],
  hasMovableClock = false,
): Promise<LocalRedisService> {
  const path = REDIS.find();
  if (path === undefined) {
    throw new TestbedError('unavailable', 'these tests need redis-server on this machine');
  }
  await using parts = new AsyncDisposableStack();
  const folder = parts.use(await makeTemporaryFolder('redis'));
  const starting = Array.from({ length: n }, (_, index) =>
    onFreePort(async (port) => {
      const dir = join(folder.path, `${port}`);
      const clock = hasMovableClock ? parts.use(await MovableClock.start()) : undefined;
      const node = new LocalRedisNode(nodeName(index), port, dir, { path, args }, clock);
      await node.start();
      return parts.use(node);
    }),
  );
  // If one fails, the others must have started before they can be ended.
  await Promise.allSettled(starting);
  const nodes = await Promise.all(starting);
  return asService({ origin: 'program', program: nodes[0]?.program ?? path }, parts.move(), {
    nodes,
  });
}
