import type { JobProcess } from './job.js';
import type { Ended } from './orders.js';

/**
 * Milliseconds in which processes that outlive the command may end by themselves. An example is a
 * `tee` of its output.
 */
const LEFTOVER_MS = 1_000;
/** Milliseconds after SIGKILL after which a process counts as one that cannot be ended. */
const STUCK_MS = 1_000;
/**
 * Milliseconds before SIGKILL in which the processes are searched. At the time of SIGKILL, the
 * search would delay it.
 */
const SEARCH_MS = 250;
/** Milliseconds between two checks of the clock. */
const CHECK_EVERY_MS = 25;

/** The part of a `Job` that a watch uses. */
interface WatchedJob {
  isLed: boolean;
  signal(signal: NodeJS.Signals, processes: readonly JobProcess[]): void;
  processes(): readonly JobProcess[];
}

export interface Watching {
  readonly job: WatchedJob;
  readonly nowMs: () => number;
  /** The time of SIGKILL, by `nowMs`. */
  readonly deadlineMs: number;
  /** The time between SIGTERM and SIGKILL. */
  readonly graceMs: number;
  /** Receives the processes that SIGKILL does not end, each time that they change. */
  readonly onStuck: (processes: readonly string[]) => void;
  readonly onEnd: (ended: Ended) => void;
}

/**
 * Decides when the processes of a job get which signal, and when the job is over.
 *
 * Invariant: `onEnd` without `stuck` means that no process of the job is left, so the lock may be
 * released. SIGKILL does not end a process that the kernel holds, or one of another user. While the
 * lease is extended, the watch then goes on, and so the lock is held. The process may still write,
 * and only a person can judge whether that is harmful. After the deadline nothing is left to hold,
 * so the watch ends and names the processes.
 */
export class JobWatch {
  readonly #watching: Watching;
  #deadlineMs: number;
  #stoppedMs: number | null = null;
  #killedMs: number | null = null;
  #why: Ended['why'] = null;
  #exit: Pick<Ended, 'code' | 'signal'> | null = null;
  #exitedMs = 0;
  /** As of the last search. */
  #found: readonly JobProcess[] = [];
  #stuck = '';
  #timer: NodeJS.Timeout | undefined;
  #isOver = false;

  constructor(watching: Watching) {
    this.#watching = watching;
    this.#deadlineMs = watching.deadlineMs;
  }

  start(): void {
    this.#timer = setInterval(() => this.check(), CHECK_EVERY_MS);
  }

  setDeadline(deadlineMs: number): void {
    this.#deadlineMs = deadlineMs;
  }

  /** The command's own process has ended. Others may be left. */
  exited(exit: Pick<Ended, 'code' | 'signal'>): void {
    this.#exit = exit;
    this.#exitedMs = this.#watching.nowMs();
    this.#watching.job.isLed = false;
  }

  /** Passes a signal to the job. */
  signal(signal: NodeJS.Signals): void {
    const { job } = this.#watching;
    this.#found = job.processes();
    job.signal(signal, this.#found);
  }

  /** Ends the job: SIGTERM now, SIGKILL after the grace period. */
  stop(): void {
    if (this.#stoppedMs !== null) return;
    this.#stoppedMs = this.#watching.nowMs();
    this.signal('SIGTERM');
  }

  check(): void {
    if (this.#isOver) return;
    const { job, graceMs } = this.#watching;
    const nowMs = this.#watching.nowMs();
    if (nowMs >= this.#deadlineMs - graceMs && this.#stoppedMs === null) {
      this.#why = 'deadline';
      this.stop();
    }
    if (this.#exit && nowMs >= this.#exitedMs + LEFTOVER_MS) this.stop();
    const killMs = Math.min(
      this.#deadlineMs,
      (this.#stoppedMs ?? Number.POSITIVE_INFINITY) + graceMs,
    );
    if (nowMs >= killMs) {
      job.signal('SIGKILL', this.#found);
      this.#killedMs ??= nowMs;
    }
    if (this.#exit || this.#killedMs !== null || nowMs >= killMs - SEARCH_MS) this.#search(nowMs);
  }

  #search(nowMs: number): void {
    this.#found = this.#watching.job.processes();
    const left = this.#found.map(({ pid, name }) => `${pid} (${name})`);
    const isStuck = this.#killedMs !== null && nowMs >= this.#killedMs + STUCK_MS;
    if (this.#exit && left.length === 0) this.#end([]);
    else if (isStuck && nowMs >= this.#deadlineMs + STUCK_MS) this.#end(left);
    else if (isStuck && left.join() !== this.#stuck) {
      this.#stuck = left.join();
      this.#watching.onStuck(left);
    }
  }

  #end(stuck: readonly string[]): void {
    this.#isOver = true;
    clearInterval(this.#timer);
    this.#watching.onEnd({ code: null, signal: null, ...this.#exit, why: this.#why, stuck });
  }
}
