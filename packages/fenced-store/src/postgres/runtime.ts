import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';

/** The source of time and chance. Tests pass their own. */
export interface Runtime {
  /** Monotonic milliseconds. */
  nowMs(): number;
  /** Calls back once after `delayMs`, unless the returned function is called before. */
  after(delayMs: number, callback: () => void): () => void;
  /** Resolves after `delayMs`. Rejects with the signal's reason as soon as it aborts. */
  sleep(delayMs: number, signal: AbortSignal | undefined): Promise<void>;
  /** A number from 0 up to but not including 1. */
  random(): number;
  /** A UUID of version 4, which no other write ever had. */
  uniqueId(): string;
  /** A UUID of version 7 (RFC 9562), which begins with the milliseconds since 1970. */
  timedId(): string;
}

export const systemRuntime: Runtime = {
  nowMs: () => performance.now(),
  after: (delayMs, callback) => {
    // The socket keeps the process alive while an answer is expected. The timer need not.
    const timer = setTimeout(callback, delayMs).unref();
    return () => clearTimeout(timer);
  },
  sleep: async (delayMs, signal) => {
    try {
      await delay(delayMs, undefined, signal && { signal });
    } catch {
      throw signal?.reason;
    }
  },
  random: () => Math.random(),
  uniqueId: () => randomUUID(),
  timedId: () => {
    const timestamp = Date.now().toString(16).padStart(12, '0');
    const chance = randomUUID().slice(15);
    return `${timestamp.slice(0, 8)}-${timestamp.slice(8)}-7${chance}`;
  },
};
