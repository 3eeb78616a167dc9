import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import type { RedisService } from '@fenced/testbed';
import type {
  CyclesReport,
  CyclesTask,
  HoldReport,
  HoldTask,
  ProgramOptions,
  Task,
} from './lock-tasks.ts';

const PROGRAM = new URL('./lock-program.ts', import.meta.url);
const TTL_MS = 10_000;
const RETRY_DELAY_MS = 10;
const STDERR_CHARACTERS_MAX = 2_000;

/** A lock in a process of its own. */
export class LockProcess implements AsyncDisposable {
  readonly subject: string;
  readonly #child: ChildProcess;
  #stderr = '';

  static async start(
    redis: RedisService,
    subject: string,
    options: Partial<ProgramOptions> = {},
  ): Promise<LockProcess> {
    const ports = redis.nodes.map(({ port }) => port);
    const lock = { ttlMs: TTL_MS, retryDelayMs: RETRY_DELAY_MS, autoPipelining: false };
    const started = new LockProcess({ subject, ports, ...lock, ...options });
    await started.#answer();
    return started;
  }

  private constructor(options: ProgramOptions) {
    this.subject = options.subject;
    this.#child = fork(PROGRAM, [JSON.stringify(options)], {
      execArgv: ['--expose-gc'],
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    });
    this.#child.stderr?.on('data', (chunk) => {
      this.#stderr = `${this.#stderr}${chunk}`.slice(-STDERR_CHARACTERS_MAX);
    });
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** A lock that crashes its process counts as one failure and no cycle. */
  async cycles(task: Omit<CyclesTask, 'kind'>): Promise<CyclesReport> {
    try {
      return await this.#ask<CyclesReport>({ kind: 'cycles', ...task });
    } catch (error) {
      if (!(error instanceof LockProcessEndedError)) throw error;
      return {
        durationsMs: [task.durationMs],
        elapsedMs: task.durationMs,
        served: Array.from({ length: task.workers }, () => 0),
        failures: 1,
        unfinished: 1,
        queuedCommands: 0,
        heapGrowthBytes: 0,
      };
    }
  }

  hold(task: Omit<HoldTask, 'kind'>): Promise<HoldReport> {
    return this.#ask<HoldReport>({ kind: 'hold', ...task });
  }

  async #ask<Report>(task: Task): Promise<Report> {
    const answer = this.#answer();
    if (this.#child.connected) this.#child.send(task);
    return (await answer) as Report;
  }

  async #answer(): Promise<unknown> {
    const ended = (): Error => new LockProcessEndedError(`${this.subject} ended: ${this.#stderr}`);
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) throw ended();
    const controller = new AbortController();
    const { signal } = controller;
    const exit = once(this.#child, 'close', { signal }).then(() => {
      throw ended();
    });
    // Resolves with the reply, or fails at the exit. The signal then ends the wait for the other.
    try {
      return await Promise.race([
        once(this.#child, 'message', { signal }).then(([message]) => message),
        exit,
      ]);
    } finally {
      controller.abort();
      exit.catch(() => {});
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const closed = once(this.#child, 'close');
    this.#child.kill('SIGKILL');
    await closed;
  }
}

class LockProcessEndedError extends Error {}
