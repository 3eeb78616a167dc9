import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import type { Ended, Order, Report } from './orders.js';
import { signalGroup } from './process-group.js';

/**
 * The guard ended before the command did, so nothing would have stopped the command in time. The
 * command was killed.
 */
export class GuardLostError extends Error {}

/** A command under a guard: see `guard.ts`. */
export class GuardedCommand implements Disposable {
  readonly #guard: ChildProcess;
  #pid: number | null = null;

  /**
   * Starts the guard without the command. This takes a while, so it comes before the acquisition.
   */
  static async ready(): Promise<GuardedCommand> {
    const guard = fork(new URL('./guard.js', import.meta.url), {
      detached: true,
      execArgv: [],
      stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
    });
    await once(guard, 'message');
    return new GuardedCommand(guard);
  }

  private constructor(guard: ChildProcess) {
    this.#guard = guard;
  }

  /**
   * Starts the command, and waits until it and all of its process group have ended.
   *
   * @param deadlineMs the time of SIGKILL, in milliseconds of `machineMs`
   * @param graceMs the time between SIGTERM and SIGKILL
   * @throws {GuardLostError}
   */
  run(order: Omit<Extract<Order, { kind: 'start' }>, 'kind'>): Promise<Ended> {
    this.#send({ kind: 'start', ...order });
    return new Promise((resolve, reject) => {
      this.#guard.on('message', (report: Report) => {
        if (report.kind === 'started') this.#pid = report.pid;
        if (report.kind !== 'ended') return;
        this.#pid = null;
        resolve(report);
      });
      // This event comes after all messages. It has no effect if the end was reported.
      this.#guard.once('close', () => {
        if (this.#pid !== null) signalGroup(this.#pid, 'SIGKILL');
        reject(new GuardLostError('the process that guards the command was killed'));
      });
    });
  }

  setDeadline(deadlineMs: number): void {
    this.#send({ kind: 'deadline', deadlineMs });
  }

  signal(signal: NodeJS.Signals): void {
    this.#send({ kind: 'signal', signal });
  }

  /** Ends the guard, which first stops a command that still runs. */
  [Symbol.dispose](): void {
    if (this.#guard.connected) this.#guard.disconnect();
  }

  #send(order: Order): void {
    // Errors are ignored, because the guard may have ended just now.
    this.#guard.send(order, () => {});
  }
}
