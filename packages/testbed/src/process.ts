import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Breakpoint, BreakpointError, type Location, locate, type Place } from './breakpoint.js';
import { type Exit, type GuardedProcess, spawnGuarded } from './guardian.js';

/** Earlier output is cut: the last lines explain most. */
const STDERR_CHARACTERS_MAX = 65_536;

/** Interval of polling: there is no event for "the process is stopped". */
const STATE_POLL_MS = 1;

/** Node's messages about its inspector. They are not the program's output. */
const INSPECTOR_CHATTER =
  /^(?:Debugger (?:listening|ending) on (ws:.+)|For help, see: https:\/\/nodejs\.org\/.*|Debugger attached\.|Waiting for the debugger to disconnect\.\.\.)$/;

/** The worker ended before the awaited event. */
export class WorkerEndedError extends Error {
  readonly exit: Exit;
  readonly stderr: string;

  constructor(event: string, exit: Exit, stderr: string) {
    super(
      `the worker ended before ${event} code=${exit.code} signal=${exit.signal} stderr=${stderr.trim() || 'nothing'}`,
    );
    this.name = new.target.name;
    this.exit = exit;
    this.stderr = stderr;
  }
}

export interface WorkerOptions {
  readonly args?: readonly string[];
  /** Added to the environment of this process. */
  readonly env?: Readonly<Record<string, string>>;
  /** Place at which the worker is held when it first reaches it; see `reachedStop`. */
  readonly stopAt?: Place;
  /** Called with each line that the worker prints, in order, and before `exited` resolves. */
  readonly onLine?: (line: string) => void;
}

/**
 * A Node program in a process of its own. It can be stopped, woken and killed, and ends with this
 * one.
 */
export class WorkerProcess implements AsyncDisposable {
  /** Resolves when it has ended and all its output was read. */
  readonly exited: Promise<Exit>;
  readonly #process: GuardedProcess;
  readonly #inspectorUrl: Promise<string>;
  #stderr = '';
  #breakpoint: Breakpoint | undefined;

  /**
   * @throws {BreakpointError} if `stopAt` is not in its file
   * @throws {WorkerEndedError} if the worker ended before its breakpoint was set
   */
  static async start(
    modulePath: URL | string,
    options: WorkerOptions = {},
  ): Promise<WorkerProcess> {
    const path = modulePath instanceof URL ? fileURLToPath(modulePath) : modulePath;
    const location = options.stopAt && (await locate(options.stopAt));
    const nodeArgs = location ? ['--inspect-wait=127.0.0.1:0'] : [];
    const args = [...nodeArgs, path, ...(options.args ?? [])];
    const env = { ...process.env, ...options.env };
    const worker = new WorkerProcess(await spawnGuarded(process.execPath, args, { env }), options);
    if (location) await worker.#startWithBreakpoint(location);
    return worker;
  }

  private constructor(process: GuardedProcess, { onLine, stopAt }: WorkerOptions) {
    this.#process = process;
    let foundInspector: (url: string) => void;
    this.#inspectorUrl = new Promise((resolve) => {
      foundInspector = resolve;
    });
    const stdout = readLines(process.stdout, (line) => onLine?.(line));
    const stderr = readLines(process.stderr, (line) => {
      const chatter = stopAt && INSPECTOR_CHATTER.exec(line);
      if (chatter?.[1]) foundInspector(chatter[1]);
      if (!chatter) this.#stderr = `${this.#stderr}${line}\n`.slice(-STDERR_CHARACTERS_MAX);
    });
    this.exited = Promise.all([process.exited, stdout, stderr]).then(([exit]) => exit);
  }

  get pid(): number {
    return this.#process.pid;
  }

  /** The last part of its standard error, without Node's messages about the breakpoint. */
  get stderr(): string {
    return this.#stderr;
  }

  /**
   * Resolves when the worker is held at `stopAt`: the statement there has not begun, and the
   * statement before it has run. V8 holds the program until `proceed` or `wake`. Its process still
   * runs, until `pause` stops it.
   *
   * @throws {WorkerEndedError} if the worker ended before that place
   * @throws {BreakpointError} if it was started without `stopAt`, or no statement begins there
   */
  async reachedStop(): Promise<void> {
    if (!this.#breakpoint) throw new BreakpointError('the worker was started without stopAt');
    await Promise.race([this.#breakpoint.reached, this.#endedBefore('reaching its stop')]);
  }

  /** Continues it from `stopAt`. It does not stop there again. */
  proceed(): void {
    this.#breakpoint?.pass();
  }

  /**
   * Stops it with SIGSTOP, which a program can neither notice nor refuse. Resolves when it is
   * stopped.
   *
   * @throws {WorkerEndedError} if it has ended
   */
  async pause(): Promise<void> {
    this.#process.signal('SIGSTOP');
    while (!(await this.isStopped())) {
      await Promise.race([setTimeout(STATE_POLL_MS), this.#endedBefore('being stopped')]);
    }
  }

  /** Continues it with SIGCONT, also past `stopAt`. Resolves when it is no longer stopped. */
  async wake(): Promise<void> {
    this.proceed();
    this.#process.signal('SIGCONT');
    while (await this.isStopped()) await setTimeout(STATE_POLL_MS);
  }

  /** Returns the kernel's report, which may lag behind a signal. */
  async isStopped(): Promise<boolean> {
    return (await processState(this.pid)) === 'T';
  }

  /** Sends a signal. Resolves when the worker has ended. */
  kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<Exit> {
    this.#process.signal(signal);
    return this.exited;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }

  async #startWithBreakpoint(location: Location): Promise<void> {
    try {
      const url = await Promise.race([this.#inspectorUrl, this.#endedBefore('its first line')]);
      this.#breakpoint = await Breakpoint.set(url, location);
    } catch (error) {
      await this.kill();
      throw error;
    }
  }

  async #endedBefore(event: string): Promise<never> {
    const exit = await this.exited;
    throw new WorkerEndedError(event, exit, this.#stderr);
  }
}

async function readLines(stream: Readable | null, onLine: (line: string) => void): Promise<void> {
  if (stream === null) return;
  await once(createInterface({ input: stream }).on('line', onLine), 'close');
}

/**
 * One letter: `T` stopped, `R` running, `S` sleeping, `Z` ended but not reaped. Null if unknown.
 */
export async function processState(pid: number): Promise<string | null> {
  try {
    if (process.platform === 'linux') return stateIn(await readFile(`/proc/${pid}/stat`, 'utf8'));
    const { stdout } = await promisify(execFile)('ps', ['-o', 'state=', '-p', String(pid)]);
    return stdout.charAt(0);
  } catch (error) {
    // `ps` exits with 1 if it finds no process.
    const code = error instanceof Error && 'code' in error && error.code;
    if (code === 'ENOENT' || code === 'ESRCH' || code === 1) return null;
    throw error;
  }
}

/** Returns the state in `/proc/<pid>/stat`. The name before it may have spaces and parentheses. */
export function stateIn(stat: string): string {
  return stat.charAt(stat.lastIndexOf(')') + 2);
}

/** Returns the id of the parent in `/proc/<pid>/stat`. */
export function parentIn(stat: string): number {
  return Number(stat.slice(stat.lastIndexOf(')')).split(' ')[2]);
}
