import { randomUUID } from 'node:crypto';

/** The source of time and chance. Tests pass their own. */
export interface Runtime {
  /** Monotonic milliseconds. */
  nowMs(): number;
  /** Milliseconds since 1970, for the end of a signature. */
  wallClockMs(): number;
  /** Runs `callback` once after `delayMs`, unless the returned function is called before. */
  after(delayMs: number, callback: () => void): () => void;
  uniqueId(): string;
}

export const systemRuntime: Runtime = {
  nowMs: () => performance.now(),
  wallClockMs: () => Date.now(),
  after: (delayMs, callback) => {
    const timer = setTimeout(callback, delayMs);
    timer.unref();
    return () => clearTimeout(timer);
  },
  uniqueId: () => randomUUID(),
};
