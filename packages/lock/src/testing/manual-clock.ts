import { randomUUID } from 'node:crypto';
import { type Runtime, systemRuntime } from '../runtime/runtime.js';

/** A clock that stands still until a test moves it. It begins at 0. */
export class ManualClock implements Runtime {
  #nowMs = 0;
  readonly #timers = new Set<{ readonly atMs: number; readonly callback: () => void }>();

  nowMs(): number {
    return this.#nowMs;
  }

  wallClockMs(): number {
    return this.#nowMs;
  }

  random(): number {
    return 0.5;
  }

  uniqueId(): string {
    return randomUUID();
  }

  soon(callback: () => void): void {
    systemRuntime.soon(callback);
  }

  after(delayMs: number, callback: () => void): () => void {
    const timer = { atMs: this.#nowMs + delayMs, callback };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  /**
   * Moves the time forward, and runs each timer when it is due. Resolves when everything that was
   * ready to run has run.
   *
   * @param ms milliseconds, 0 or more
   * @throws {RangeError} if `ms` is less than 0, or no number
   */
  async advance(ms: number): Promise<void> {
    if (!(ms >= 0)) throw new RangeError(`ms must be 0 or more ms=${ms}`);
    const endMs = this.#nowMs + ms;
    await settled();
    for (;;) {
      const [next] = [...this.#timers].sort((one, other) => one.atMs - other.atMs);
      if (next === undefined || next.atMs > endMs) break;
      this.#timers.delete(next);
      this.#nowMs = Math.max(this.#nowMs, next.atMs);
      next.callback();
      await settled();
    }
    this.#nowMs = endMs;
    await settled();
  }
}

/** Resolves after everything that is ready to run has run, with all that becomes ready by it. */
function settled(): Promise<void> {
  const { soon } = systemRuntime;
  return new Promise((resolve) => soon(() => soon(resolve)));
}
