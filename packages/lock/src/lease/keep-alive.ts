import { LeaseLostError } from '../core/errors.js';
import { type Runtime, sleep } from '../runtime/runtime.js';
import { type Lease, limitHold } from './lease.js';

const PAUSE_MIN_MS = 5;

/** Extends the lease each time half of what is left has passed, until it is disposed of, is over, or lasts for `maxHoldMs`. */
export function keepAlive(
  lease: Lease,
  ttlMs: number,
  maxHoldMs: number,
  runtime: Runtime,
): Disposable {
  const stop = new AbortController();
  const signal = AbortSignal.any([stop.signal, lease.signal]);
  const endMs = runtime.nowMs() + maxHoldMs;
  if (maxHoldMs < Number.POSITIVE_INFINITY) limitHold(lease, endMs, maxHoldMs);

  const run = async (): Promise<void> => {
    // Extensions beyond the limit would only keep others out.
    while (runtime.nowMs() + Math.ceil(lease.remainingMs()) < endMs) {
      await sleep(runtime, Math.max(PAUSE_MIN_MS, lease.remainingMs() / 2), signal);
      try {
        await lease.extend(ttlMs);
      } catch (error) {
        // Nodes that did not answer may do so in what is left; each time, half of that is waited.
        if (error instanceof LeaseLostError) return;
      }
    }
  };
  // Ends by the sleep's rejection, too: then there is nothing left to keep alive.
  run().catch(() => {});
  return { [Symbol.dispose]: () => stop.abort() };
}
