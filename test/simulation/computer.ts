import type { Runtime } from '../../packages/lock/src/runtime/runtime.ts';
import type { Random } from './random.ts';
import { type Schedule, settled } from './schedule.ts';

interface Task {
  readonly kind: 'timer' | 'message';
  readonly atMs: number;
  /** Messages of one source that wait together are read together, before any promise reacts. */
  readonly source: unknown;
  readonly run: () => void;
}

/**
 * A process that runs a client: one event loop as Node's, which may stop at any moment and go on later. After a pause all
 * timers that are due come first, then what has arrived.
 */
export class Computer {
  /** Chance that it stops at any one look at its clock, that is: between any two steps of the client's code. */
  pauseChance = 0;
  pauseMaxMs = 0;
  wallOffsetMs = 0;
  readonly name: string;
  readonly #schedule: Schedule;
  readonly #random: Random;
  /** Monotonic milliseconds that its clock counts in one millisecond. */
  readonly #rate: number;
  readonly #startedAtMs: number;
  #alive = true;
  /** Until when it stands still. */
  #stoppedUntilMs = 0;
  #waiting: Task[] = [];
  /** What is to run once everything that is ready to run has run. */
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

  /** What time it really is when the code that runs now does its next step. */
  get trueMs(): number {
    return Math.max(this.#schedule.nowMs, this.#stoppedUntilMs);
  }

  /** What time it really is when its clock has counted this much. */
  trueAfter(ms: number): number {
    return this.trueMs + ms / this.#rate;
  }

  get alive(): boolean {
    return this.#alive;
  }

  /** Whether it was stopped in the midst of the code that runs now. */
  get wasStopped(): boolean {
    return this.#wasStopped;
  }

  /** What time it really was when a node was last asked for a lock. */
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

  /** It is as if its power were cut. */
  kill(): void {
    this.#alive = false;
    this.#waiting = [];
  }

  /** Does this as soon as it runs. */
  hand(kind: Task['kind'], source: unknown, run: () => void): void | Promise<void> {
    if (!this.#alive) return;
    this.#waiting.push({ kind, atMs: this.#schedule.nowMs, source, run });
    // Whoever waits already is served when the pause ends, or by the loop that runs now.
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
      // A timer may be late, and in Node up to a millisecond early.
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
      if (this.#stoppedUntilMs > this.#schedule.nowMs) return;
      this.#wasStopped = false;
      const timer = this.#waiting.findIndex((task) => task.kind === 'timer');
      const first = this.#waiting.splice(Math.max(timer, 0), 1)[0];
      first?.run();
      while (first?.kind === 'message' && this.#waiting[0]?.source === first.source) {
        this.#waiting.shift()?.run();
      }
      await settled();
      // What has come by then is read before.
      if (this.#waiting.length > 0) continue;
      while (this.#soon.length > 0) {
        for (const callback of this.#soon.splice(0)) callback();
        await settled();
      }
    }
  }
}

/** What the world's clock shows at its beginning: 21 November 2025. */
export const EPOCH_MS = 1_763_690_000_000;
