import { platform, uptime } from 'node:os';
import { machineClock } from './machine-clock.js';

/** The source of time and chance. Tests pass their own. */
export interface Runtime {
  /** Monotonic milliseconds, also of the time that the machine sleeps. */
  nowMs(): number;
  /**
   * Calls back once after `delayMs`, unless the returned function is called before. The timer keeps
   * no process alive.
   */
  after(delayMs: number, callback: () => void): () => void;
  /** Between 0 and 1, for jitter. */
  random(): number;
  /** Rejects with the signal's reason as soon as it aborts. */
  sleep(delayMs: number, signal: AbortSignal | undefined): Promise<void>;
}

export const systemRuntime: Runtime = {
  nowMs: machineClock({
    monotonicMs: () => performance.now(),
    wallMs: () => Date.now(),
    uptimeMs: platform() === 'linux' ? () => uptime() * 1_000 : () => performance.now(),
  }),
  after: (delayMs, callback) => {
    const timer = setTimeout(callback, delayMs);
    timer.unref();
    return () => clearTimeout(timer);
  },
  random: () => Math.random(),
  sleep: async (delayMs, signal) => {
    signal?.throwIfAborted();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, delayMs);
    const stop = (): void => reject(signal?.reason);
    signal?.addEventListener('abort', stop, { once: true });
    try {
      await promise;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', stop);
    }
  },
};
