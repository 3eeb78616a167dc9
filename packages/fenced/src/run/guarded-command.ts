import { type ChildProcess, fork } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { JOB_VARIABLE, Job } from './job.js';
import { JobWatch } from './job-watch.js';
import { machineMs } from './machine-clock.js';
import type { Ended, Order, Report } from './orders.js';

/** A command under a guard: see `guard.ts`. */
export class GuardedCommand implements Disposable {
  readonly #guard: ChildProcess;
  readonly #id = randomUUID();
  readonly #lost = new AbortController();
  readonly #onStuck: (processes: readonly string[]) => void;
  #deadlineMs = 0;
  /** Does the guard's work after its death. */
  #watch: JobWatch | null = null;

  /**
   * Starts the guard without the command. This takes a while, so it comes before the acquisition.
   *
   * @param onStuck receives the processes that SIGKILL does not end while the lock is held
   * @throws an error if the guard does not start, or the signal aborts
   */
  static async ready(
    signal: AbortSignal,
    onStuck: (processes: readonly string[]) => void,
  ): Promise<GuardedCommand> {
    const guard = fork(new URL('./guard.js', import.meta.url), {
      detached: true,
      execArgv: [],
      stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
    });
    const command = new GuardedCommand(guard, onStuck);
    try {
      await once(guard, 'message', { signal: AbortSignal.any([signal, command.lost]) });
      return command;
    } catch (error) {
      guard.kill('SIGKILL');
      throw Object(error).cause ?? error;
    }
  }

  private constructor(guard: ChildProcess, onStuck: (processes: readonly string[]) => void) {
    this.#guard = guard;
    this.#onStuck = onStuck;
    guard.on('error', () => {});
    // This event comes after all messages.
    guard.once('close', () => this.#lost.abort(new Error('it was killed')));
  }

  /** Aborts with the death of the guard. Nothing would stop the command in time. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /**
   * Starts the command, and waits until it and all of its job have ended. If the guard dies, kills
   * the job.
   */
  run(order: Omit<Extract<Order, { kind: 'start' }>, 'kind' | 'id'>): Promise<Ended> {
    const ids = [process.env[JOB_VARIABLE], this.#id].filter(Boolean).join(',');
    const env = { ...order.env, [JOB_VARIABLE]: ids };
    this.#deadlineMs = order.deadlineMs;
    this.#send({ kind: 'start', id: this.#id, ...order, env });
    return new Promise((resolve) => {
      let pid: number | null = null;
      let isEnded = false;
      this.#guard.on('message', (report: Report) => {
        if (report.kind === 'started') pid = report.pid;
        if (report.kind === 'stuck') this.#onStuck(report.processes);
        if (report.kind !== 'ended') return;
        isEnded = true;
        resolve(report);
      });
      const onLost = (): void => {
        if (!isEnded) resolve(this.#kill(new Job(this.#id, pid)));
      };
      if (this.lost.aborted) onLost();
      else this.lost.addEventListener('abort', onLost);
    });
  }

  /** @param deadlineMs the time of SIGKILL, in milliseconds of `machineMs` */
  setDeadline(deadlineMs: number): void {
    this.#deadlineMs = deadlineMs;
    this.#watch?.setDeadline(deadlineMs);
    this.#send({ kind: 'deadline', deadlineMs });
  }

  signal(signal: NodeJS.Signals): void {
    this.#send({ kind: 'signal', signal });
  }

  /** Ends the guard, which first stops a command that still runs. */
  [Symbol.dispose](): void {
    if (this.#guard.connected) this.#guard.disconnect();
  }

  #kill(job: Job): Promise<Ended> {
    return new Promise((resolve) => {
      const watch = new JobWatch({
        job,
        nowMs: machineMs,
        deadlineMs: this.#deadlineMs,
        graceMs: 0,
        onStuck: this.#onStuck,
        onEnd: (ended) => resolve({ ...ended, why: 'guard-lost' }),
      });
      this.#watch = watch;
      // The status of the command was for the guard.
      watch.exited({ code: null, signal: null });
      watch.start();
      watch.stop();
      watch.check();
    });
  }

  #send(order: Order): void {
    // Errors are ignored, because the guard may have ended just now.
    this.#guard.send(order, () => {});
  }
}
