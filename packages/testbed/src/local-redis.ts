import { randomUUID } from 'node:crypto';
import { cp, mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { TestbedError } from './errors.js';
import { makeTemporaryFolder } from './guardian.js';
import { REDIS } from './needs.js';
import { FAKETIME_PACKAGE, findFakeTime } from './programs.js';
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
  readonly #clockPath: string | undefined;
  #aheadMs = 0;

  /** @param command `args` precede the port and the folder */
  constructor(
    name: string,
    port: number,
    folder: string,
    command: { readonly path: string; readonly args: readonly string[] },
    clock?: { readonly libraryPath: string },
  ) {
    const clockPath = clock && `${folder}.clock`;
    super(name, port, {
      command: command.path,
      args: [...command.args, '--port', `${port}`, '--dir', folder],
      logPath: `${folder}.log`,
      ...(clock &&
        clockPath && { options: { env: clockEnvironment(clock.libraryPath, clockPath) } }),
    });
    this.#folder = folder;
    this.#clockPath = clockPath;
  }

  /** Starts it with its data, without data, or with those of a snapshot. */
  override async start(data: 'kept' | 'none' | Snapshot = 'kept'): Promise<void> {
    // The files of a running server are not touched. `super.start` refuses it.
    if (this.pid === undefined) await this.#prepare(data);
    await super.start();
  }

  /** Copies its disk. */
  async snapshot(): Promise<Snapshot> {
    const path = `${this.#folder}-${randomUUID()}`;
    await cp(this.#folder, path, { recursive: true });
    return { path };
  }

  /** Offset of its wall clock in milliseconds. A negative one is in the past. */
  get aheadMs(): number {
    return this.#aheadMs;
  }

  /** Sets the offset of its wall clock, also while it runs. Its monotonic clock is not changed. */
  async setClock(aheadMs: number): Promise<void> {
    if (this.#clockPath === undefined) throw new Error(`node ${this.name} has no movable clock`);
    const next = `${this.#clockPath}.next`;
    await writeFile(next, `${aheadMs < 0 ? '' : '+'}${aheadMs / 1_000}`);
    // The server reads the file all the time, and must not find it half written.
    await rename(next, this.#clockPath);
    this.#aheadMs = aheadMs;
  }

  async #prepare(data: 'kept' | 'none' | Snapshot): Promise<void> {
    if (data !== 'kept') await rm(this.#folder, { recursive: true, force: true });
    if (typeof data === 'object') await cp(data.path, this.#folder, { recursive: true });
    await mkdir(this.#folder, { recursive: true });
    if (this.#clockPath !== undefined) await this.setClock(this.#aheadMs);
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
  const clock = hasMovableClock ? { libraryPath: fakeTime() } : undefined;
  return startServers(n, [...redisArgs(persistence), ...args], clock);
}

/** Returns a server's arguments for persistence. */
export function redisArgs(persistence: 'none' | 'aof'): string[] {
  const aof = ['--appendonly', 'yes', '--appendfsync', 'always'];
  return ['--save', '', ...(persistence === 'aof' ? aof : ['--appendonly', 'no'])];
}

/** Starts a Redis Sentinel. It watches nothing until it gets `SENTINEL MONITOR`. */
export async function startSentinel(): Promise<LocalRedisService> {
  // It needs a file for its state.
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
  clock?: { readonly libraryPath: string },
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

function fakeTime(): string {
  const path = findFakeTime();
  if (path !== undefined) return path;
  throw new TestbedError(
    'unavailable',
    `a movable clock needs libfaketime: install the package ${FAKETIME_PACKAGE}`,
  );
}

function clockEnvironment(libraryPath: string, clockPath: string): NodeJS.ProcessEnv {
  return {
    ...process.env,
    // jemalloc reads the time before libfaketime is ready, which is an endless loop. So libc
    // allocates.
    LD_PRELOAD: `${libraryPath}:libc.so.6`,
    FAKETIME_TIMESTAMP_FILE: clockPath,
    FAKETIME_NO_CACHE: '1',
    FAKETIME_DONT_FAKE_MONOTONIC: '1',
  };
}
