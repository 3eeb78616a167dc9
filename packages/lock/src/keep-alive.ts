import { LeaseLostError } from './core/errors.js';
import type { Lease } from './lease.js';
import { type Runtime, sleep } from './runtime.js';

const PAUSE_MIN_MS = 5;

/** Extends the lease ahead of time until it is disposed of, the lease is over, or `extensionsMax` is reached. */
export function keepAlive(
  lease: Lease,
  ttlMs: number,
  extensionsMax: number,
  runtime: Runtime,
): Disposable {
  const stop = new AbortController();
  const signal = AbortSignal.any([stop.signal, lease.signal]);

  const run = async (): Promise<void> => {
    for (let extensions = 0; extensions < extensionsMax; ) {
      await sleep(runtime, Math.max(PAUSE_MIN_MS, lease.remainingMs() / 2), signal);
      try {
        await lease.extend(ttlMs);
        extensions += 1;
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
