import { LeaseLostError } from '../core/errors.js';
import { type Runtime, sleep } from '../runtime/runtime.js';
import { type LocalLease, limitHold } from './lease.js';

const PAUSE_MIN_MS = 5;

/**
 * Extends the lease each time half of the remaining time has passed. It stops when it is disposed
 * of, when the lease is over, or when `maxHoldMs` is reached.
 */
export function keepAlive(
  lease: LocalLease,
  ttlMs: number,
  maxHoldMs: number,
  runtime: Runtime,
): Disposable {
  const stop = new AbortController();
  const signal = AbortSignal.any([stop.signal, lease.signal]);
  const endMs = runtime.nowMs() + maxHoldMs;
  if (maxHoldMs < Number.POSITIVE_INFINITY) limitHold(lease, endMs, maxHoldMs);

  const run = async (): Promise<void> => {
    // A lease that lasts beyond `endMs` would only keep other clients out.
    while (runtime.nowMs() + Math.ceil(lease.remainingMs()) < endMs) {
      await sleep(runtime, Math.max(PAUSE_MIN_MS, lease.remainingMs() / 2), signal);
      try {
        await lease.extend(ttlMs);
      } catch (error) {
        // Tries again: nodes that were silent may answer in the remaining time of the lease.
        if (error instanceof LeaseLostError) return;
      }
    }
  };
  // `sleep` rejects when the signal aborts: then there is nothing left to keep alive.
  run().catch(() => {});
  return { [Symbol.dispose]: () => stop.abort() };
}
