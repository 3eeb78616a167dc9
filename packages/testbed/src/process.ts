import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Breakpoint, BreakpointError, type Location, locate, type Place } from './breakpoint.js';
import { type Exit, type GuardedProcess, spawnWithLifeline } from './lifeline.js';

/** What a program says last tells most; what it said before that is cut. */
const STDERR_CHARACTERS_MAX = 65_536;

/** There is no event for "the process is stopped now", so its state is asked for this often. */
const STATE_POLL_MS = 1;

/** What Node says on stderr about its inspector, which is our doing and not the program's. */
const INSPECTOR_CHATTER =
  /^(?:Debugger (?:listening|ending) on (ws:.+)|For help, see: https:\/\/nodejs\.org\/.*|Debugger attached\.|Waiting for the debugger to disconnect\.\.\.)$/;

/** The worker has ended, so what was asked for cannot happen any more. */
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
  /** Where the worker is to be held when it first comes there; see `reachedStop`. */
  readonly stopAt?: Place;
  /** Called with each line that the worker prints, in order, and before `exited` resolves. */
  readonly onLine?: (line: string) => void;
}

/** A Node program in a process of its own that can be stopped, woken and killed, and that never outlives this one. */
export class WorkerProcess implements AsyncDisposable {
  /** Resolves when it has ended and everything that it printed has been read. */
  readonly exited: Promise<Exit>;
  readonly #process: GuardedProcess;
  readonly #inspectorUrl: Promise<string>;
  #stderr = '';
  #breakpoint: Breakpoint | undefined;

  /**
   * @throws {BreakpointError} where the place to stop at is not in its file.
   * @throws {WorkerEndedError} where the worker ended before its breakpoint could be set.
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
    const worker = new WorkerProcess(
      await spawnWithLifeline(process.execPath, args, { env }),
      options,
    );
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

  /** The end of what it printed to stderr, without what Node says about our breakpoint. */
  get stderr(): string {
    return this.#stderr;
  }

  /**
   * Resolves when it is held at `stopAt`: the statement there has not begun, the one before it has run.
   * V8 holds it there until `proceed` or `wake`. Its process still runs: stopping that is for `pause`.
   *
   * @throws {WorkerEndedError} where it ended without coming there.
   * @throws {BreakpointError} where it was started without `stopAt`, or no statement begins there.
   */
  async reachedStop(): Promise<void> {
    if (!this.#breakpoint) throw new BreakpointError('the worker was started without stopAt');
    await Promise.race([this.#breakpoint.reached, this.#endedBefore('reaching its stop')]);
  }

  /** Lets it go on from `stopAt`, where it does not stop again. */
  proceed(): void {
    this.#breakpoint?.pass();
  }

  /**
   * Stops it with SIGSTOP, which a program can neither see coming nor refuse, and resolves when it is really stopped.
   *
   * @throws {WorkerEndedError} where it has ended.
   */
  async pause(): Promise<void> {
    this.#process.signal('SIGSTOP');
    while (!(await this.isStopped())) {
      await Promise.race([setTimeout(STATE_POLL_MS), this.#endedBefore('being stopped')]);
    }
  }

  /** Lets it run on with SIGCONT, past `stopAt` where it is held there, and resolves when it is no longer stopped. */
  async wake(): Promise<void> {
    this.proceed();
    this.#process.signal('SIGCONT');
    while (await this.isStopped()) await setTimeout(STATE_POLL_MS);
  }

  /** What the kernel says, not what we asked for. */
  async isStopped(): Promise<boolean> {
    return (await processState(this.pid)) === 'T';
  }

  /** Sends a signal; resolves when it has ended. */
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

/** One letter: `T` stopped, `R` running, `S` sleeping, `Z` ended but not yet reaped. Null where there is no such process. */
export async function processState(pid: number): Promise<string | null> {
  try {
    if (process.platform === 'linux') return stateIn(await readFile(`/proc/${pid}/stat`, 'utf8'));
    const { stdout } = await promisify(execFile)('ps', ['-o', 'state=', '-p', String(pid)]);
    return stdout.charAt(0);
  } catch (error) {
    // `ps` exits with 1 where it finds nothing.
    const code = error instanceof Error && 'code' in error && error.code;
    if (code === 'ENOENT' || code === 'ESRCH' || code === 1) return null;
    throw error;
  }
}

/** The state in a line of `/proc/<pid>/stat`. It follows the program's name, which may hold spaces and parentheses. */
export function stateIn(stat: string): string {
  return stat.charAt(stat.lastIndexOf(')') + 2);
}
