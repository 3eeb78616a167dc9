import { mkdir, open, readFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ServiceStartError } from './errors.js';
import { type GuardedProcess, type SpawnOptions, spawnGuarded } from './guardian.js';

const START_LIMIT_MS = 30_000;
const POLL_MS = 20;
const LOG_LINES = 20;
const PORT_TRIES = 5;

/**
 * Ports below those of outgoing connections on Linux and macOS. So the port of a restarted server
 * is still free.
 */
const PORT_FIRST = 20_000;
const PORT_LAST = 32_767;

export interface Launch {
  readonly command: string;
  readonly args: readonly string[];
  readonly options?: Omit<SpawnOptions, 'stdout' | 'stderr'>;
  /** File for the output. It is appended to, so a restart keeps the earlier lines. */
  readonly logPath: string;
}

/** A server that may still be starting. */
export interface Server {
  /** Resolves when it has ended. */
  readonly exited: Promise<unknown>;
  /** Returns the output so far. */
  log(): Promise<string>;
  end(): Promise<void>;
  /** See `GuardedProcess`. */
  unref(): void;
}

/** Starts a program whose output goes to a log file. */
export async function launch({
  command,
  args,
  options,
  logPath,
}: Launch): Promise<GuardedProcess & Server> {
  await mkdir(dirname(logPath), { recursive: true });
  await using log = await open(logPath, 'a');
  const output = { stdout: log.fd, stderr: log.fd };
  const child = await spawnGuarded(command, args, { ...options, ...output });
  return { ...child, log: () => readFile(logPath, 'utf8') };
}

/**
 * Starts a server that can be crashed. It ends when `parts` is disposed.
 *
 * @returns a function that kills it with SIGKILL, starts it again, and resolves when it answers
 */
export async function startCrashable(
  program: Launch,
  ask: () => Promise<unknown>,
  parts: AsyncDisposableStack,
): Promise<() => Promise<void>> {
  let server = await launch(program);
  parts.defer(() => server.end());
  await untilItAnswers(server, ask);
  return async () => {
    server.signal('SIGKILL');
    await server.exited;
    server = await launch(program);
    await untilItAnswers(server, ask);
  };
}

/** Runs a program to its end. @throws {ServiceStartError} with its last lines if it fails */
export async function run(step: Launch): Promise<void> {
  const child = await launch(step);
  const { code, signal } = await child.exited;
  if (code !== 0) throw await startError(`${step.command} ended with ${signal ?? code}`, child);
}

/**
 * Polls the server and returns its first answer. From then on, the server does not keep this
 * process alive.
 *
 * @throws {ServiceStartError} with the last lines of its log, if it ends or takes longer than 30 s.
 *   A slow server is ended.
 */
export async function untilItAnswers<T>(server: Server, ask: () => Promise<T>): Promise<T> {
  const startedMs = performance.now();
  const over = new AbortController();
  void server.exited.then(() => over.abort());
  for (;;) {
    try {
      const answer = await ask();
      if (!over.signal.aborted) {
        server.unref();
        return answer;
      }
    } catch (error) {
      if (performance.now() - startedMs > START_LIMIT_MS) {
        const tooSlow = await startError(`no answer within ${START_LIMIT_MS} ms`, server, error);
        await server.end();
        throw tooSlow;
      }
    }
    if (over.signal.aborted) throw await startError('the server ended at once', server);
    await sleep(POLL_MS);
  }
}

async function startError(
  reason: string,
  server: Server,
  cause?: unknown,
): Promise<ServiceStartError> {
  const lines = (await server.log()).trimEnd().split(/\n+/).slice(-LOG_LINES);
  return new ServiceStartError(`${reason}; its log ends with:\n${lines.join('\n')}`, { cause });
}

/** Starts on a free port. Tries another port if a different program takes the port first. */
export function onFreePort<T>(start: (port: number) => Promise<T>): Promise<T> {
  return onFreePorts(1, ([port = 0]) => start(port));
}

/** As `onFreePort`, with several ports. */
export async function onFreePorts<T>(
  n: number,
  start: (ports: readonly number[]) => Promise<T>,
): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    const ports = new Set<number>();
    while (ports.size < n) ports.add(await freePort());
    try {
      return await start([...ports]);
    } catch (error) {
      const taken =
        error instanceof ServiceStartError && /already (in use|allocated)/i.test(error.message);
      if (!taken || tries === PORT_TRIES) throw error;
    }
  }
}

async function freePort(): Promise<number> {
  for (;;) {
    const port = PORT_FIRST + Math.floor(Math.random() * (PORT_LAST - PORT_FIRST + 1));
    if (await isFree(port)) return port;
  }
}

function isFree(port: number): Promise<boolean> {
  const server = createServer();
  return new Promise((resolve) => {
    server.once('error', () => resolve(false));
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => {
      server.close(() => resolve(true));
    });
  });
}
