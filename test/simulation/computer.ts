import type { Runtime } from '../../packages/lock/src/runtime/runtime.ts';
import type { Random } from './random.ts';
import { type Schedule, settled } from './schedule.ts';

interface Task {
  readonly kind: 'timer' | 'message';
  readonly atMs: number;
  /**
   * The connection of a message. Waiting messages of one source run together, before any promise.
   */
  readonly source: unknown;
  readonly run: () => void;
}

/**
 * A simulated process that runs a client, with an event loop like Node's. It may be paused at any
 * moment. After a pause, the due timers run first, and then the messages that have arrived.
 */
export class Computer {
  /** Chance of a pause each time that the client reads the clock, which it does at every step. */
  pauseChance = 0;
  pauseMaxMs = 0;
  wallOffsetMs = 0;
  readonly name: string;
  readonly #schedule: Schedule;
  readonly #random: Random;
  /** Milliseconds that its monotonic clock counts in one true millisecond. */
  readonly #rate: number;
  readonly #startedAtMs: number;
  #alive = true;
  /** The end of its pause. */
  #stoppedUntilMs = 0;
  #isStopped = false;
  #waiting: Task[] = [];
  /** Callbacks that run after everything else that is ready to run. */
  #soon: (() => void)[] = [];
  #wasStopped = false;
  #lastRequestMs = 0;

  constructor(name: string, schedule: Schedule, random: Random) {
    this.name = name;
    this.#schedule = schedule;
    this.#random = random;
    this.#rate = random.between(0.997, 1.003);
    this.#startedAtMs = random.between(-1e6, schedule.nowMs);
  }

  /** The true time for the code that runs now. It is later than the schedule's after a pause. */
  get trueMs(): number {
    return Math.max(this.#schedule.nowMs, this.#stoppedUntilMs);
  }

  /** The true time at which its clock will have counted `ms` more. */
  trueAfter(ms: number): number {
    return this.trueMs + ms / this.#rate;
  }

  get alive(): boolean {
    return this.#alive;
  }

  /** True if a pause interrupted the code that runs now. */
  get wasStopped(): boolean {
    return this.#wasStopped;
  }

  /** The true time at which the client last sent an ACQUIRE. */
  get lastRequestMs(): number {
    return this.#lastRequestMs;
  }

  noteRequest(): void {
    this.#lastRequestMs = this.trueMs;
  }

  pause(ms: number): void {
    if (ms <= 0 || !this.#alive) return;
    this.#wasStopped = true;
    this.#stoppedUntilMs = this.trueMs + ms;
    this.#schedule.at(this.#stoppedUntilMs, () => this.#resume());
  }

  /** Pauses it until `wake`. */
  stop(): void {
    this.#isStopped = true;
  }

  wake(): Promise<void> {
    this.#isStopped = false;
    return this.#resume();
  }

  /** Ends it at once, as a power cut does. */
  kill(): void {
    this.#alive = false;
    this.#waiting = [];
  }

  /** Runs the callback as soon as the computer runs. */
  hand(kind: Task['kind'], source: unknown, run: () => void): void | Promise<void> {
    if (!this.#alive) return;
    this.#waiting.push({ kind, atMs: this.#schedule.nowMs, source, run });
    // If more tasks wait, the end of a pause or the loop that runs now serves all of them.
    if (this.#waiting.length === 1) return this.#resume();
  }

  readonly runtime: Runtime = {
    nowMs: () => {
      if (this.pauseChance > 0 && this.#random.chance(this.pauseChance)) {
        this.pause(this.#random.between(0, this.pauseMaxMs));
      }
      return (this.trueMs - this.#startedAtMs) * this.#rate;
    },
    wallClockMs: () => EPOCH_MS + this.trueMs + this.wallOffsetMs,
    random: () => this.#random.unit(),
    uniqueId: () => {
      const part = (): string =>
        this.#random
          .below(2 ** 32)
          .toString(16)
          .padStart(8, '0');
      return `${this.name}-${part()}${part()}`;
    },
    soon: (callback) => {
      this.#soon.push(callback);
    },
    after: (delayMs, callback) => {
      let isCancelled = false;
      // A timer may be late. In Node, it may also be up to a millisecond early.
      const lateMs = this.#random.between(-0.9, 0.5);
      this.#schedule.at(this.trueMs + Math.max(0, delayMs / this.#rate + lateMs), () =>
        isCancelled ? undefined : this.hand('timer', null, () => isCancelled || callback()),
      );
      return () => {
        isCancelled = true;
      };
    },
  };

  async #resume(): Promise<void> {
    while (this.#alive && this.#waiting.length > 0) {
      if (this.#isStopped || this.#stoppedUntilMs > this.#schedule.nowMs) return;
      this.#wasStopped = false;
      const timer = this.#waiting.findIndex((task) => task.kind === 'timer');
      const first = this.#waiting.splice(Math.max(timer, 0), 1)[0];
      first?.run();
      while (first?.kind === 'message' && this.#waiting[0]?.source === first.source) {
        this.#waiting.shift()?.run();
      }
      await settled();
      // As in Node, messages that have arrived by now are read before the `soon` callbacks run.
      if (this.#waiting.length > 0) continue;
      while (this.#soon.length > 0) {
        for (const callback of this.#soon.splice(0)) callback();
        await settled();
      }
    }
  }
}

/** The world's wall clock at its beginning: 21 November 2025. */
export const EPOCH_MS = 1_763_690_000_000;
