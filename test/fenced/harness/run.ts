import { randomUUID } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { type Lease, Redlock } from '@fenced/lock';
import { type LocalRedisService, startLocalRedis, WorkerProcess } from '@fenced/testbed';
import { Redis } from 'ioredis';

export const bin = fileURLToPath(
  new URL('../../../packages/fenced/bin/fenced.js', import.meta.url),
);
const beats = fileURLToPath(new URL('beats.mjs', import.meta.url));

/** Three nodes, a lock of this process over them, and their options for `fenced run`. */
export async function startLock(parts: AsyncDisposableStack, hasMovableClock = false) {
  const redis = parts.use(await startLocalRedis(3, { hasMovableClock }));
  const nodes = redis.nodes.map(({ name, port }) => {
    const client = new Redis(port, { maxRetriesPerRequest: 0 });
    client.on('error', () => {});
    parts.defer(() => client.disconnect());
    return { name, client };
  });
  const hasWaiter = async (resource: string): Promise<boolean> =>
    ((await nodes[0]?.client.zcard(`{fenced}:queue:${resource}`)) ?? 0) > 0;
  /** The end of the lease on one node, which each extension changes. */
  const endOf = async (resource: string): Promise<number> =>
    Number(
      (await nodes[0]?.client.hget('{fenced}:node', `{fenced}:queue:${resource}`))?.slice(0, 15),
    );
  return { redis, lock: new Redlock({ nodes }), options: optionsOf(redis), hasWaiter, endOf };
}

function optionsOf({ nodes }: LocalRedisService): string[] {
  return nodes.flatMap(({ name, port }) => ['--redis', `${name}=redis://127.0.0.1:${port}`]);
}

/** A folder that is removed with `parts`. */
export async function startFolder(parts: AsyncDisposableStack): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'fenced-run-'));
  parts.defer(() => rm(folder, { recursive: true }));
  return folder;
}

/** A `fenced run`. */
export class Run {
  readonly lines: string[] = [];
  readonly process: WorkerProcess;

  static async start(args: readonly string[], env: Record<string, string> = {}): Promise<Run> {
    const lines: string[] = [];
    const onLine = (line: string): void => void lines.push(line);
    const process = await WorkerProcess.start(bin, { args: ['run', ...args], env, onLine });
    return new Run(process, lines);
  }

  private constructor(process: WorkerProcess, lines: string[]) {
    this.process = process;
    this.lines = lines;
  }

  async ended(): Promise<{ code: number | null; stdout: string; stderr: string }> {
    const { code } = await this.process.exited;
    return { code, stdout: this.lines.join('\n'), stderr: this.process.stderr };
  }
}

export const fenced = async (...args: Parameters<typeof Run.start>) =>
  (await Run.start(...args)).ended();

/** A command that ignores SIGTERM, and the times that the command and its children have noted. */
export function beating(folder: string, children = 0) {
  const file = join(folder, randomUUID());
  const text = (): string => (existsSync(file) ? readFileSync(file, 'utf8') : '');
  const times = (): number[] =>
    [...text().matchAll(/^\d+ (\d+)$/gm)].map(([, time]) => Number(time));
  const processes = (): number[] => [...new Set(text().match(/^\d+(?= )/gm))].map(Number);
  return {
    command: [process.execPath, beats, file, String(children)],
    last: () => Math.max(...times()),
    hadSigterm: () => text().includes('SIGTERM'),
    hasBegun: (count = children + 1) => until(() => processes().length === count),
    /** The processes that have noted a time and still run. */
    running: async () => {
      const states = processes().map(async (pid) => ((await hasEnded(pid)) ? [] : [pid]));
      return (await Promise.all(states)).flat();
    },
  };
}

/** A process of which only the first thread has ended is a zombie in name, but runs. */
export async function hasEnded(pid: number): Promise<boolean> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => 'State:\tX');
  return (
    /^State:\tX/m.test(status) || (/^State:\tZ/m.test(status) && /^Threads:\t1$/m.test(status))
  );
}

/** Polls a condition. Only the time limit of the test limits the wait. */
export async function until(condition: () => Promise<boolean> | boolean): Promise<void> {
  while (!(await condition())) await sleep(5);
}

/**
 * Waits for the lock that the command holds. @returns the lease, and when this process began to
 * hold it
 */
export async function next(
  lock: Redlock,
  resource: string,
): Promise<{ lease: Lease; atMs: number }> {
  const lease = await lock.acquire(resource, { ttlMs: 5_000, waitMs: 20_000 });
  return { lease, atMs: Date.now() };
}
