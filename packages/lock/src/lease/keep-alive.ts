import { type Runtime, sleep } from '../runtime/runtime.js';
import { type LocalLease, limitHold } from './lease.js';

const PAUSE_MIN_MS = 5;

/**
 * Extends the lease each time half of the remaining time has passed. It does not wait for answers
 * to earlier extensions, which may be lost with their connection. It stops when it is disposed of,
 * when the lease is over, or when `maxHoldMs` is reached.
 */
export function keepAlive(
  lease: LocalLease,
  ttlMs: number,
  maxHoldMs: number,
  runtime: Runtime,
): Disposable {
  const stop = new AbortController();
  const endMs = runtime.nowMs() + maxHoldMs;
  if (maxHoldMs < Number.POSITIVE_INFINITY) limitHold(lease, endMs, maxHoldMs);

  const halfTime = (woken?: Promise<void>): Promise<void> =>
    sleep(runtime, Math.max(PAUSE_MIN_MS, lease.remainingMs() / 2), stop.signal, woken);
  const run = async (): Promise<void> => {
    let isAnswered = true;
    const answered = (): void => {
      isAnswered = true;
    };
    // The signal of the lease does not end this: it also aborts when the lock service is closed.
    // A lease that lasts beyond `endMs` would only keep other clients out.
    const isDue = (leftMs: number): boolean =>
      leftMs > 0 && runtime.nowMs() + Math.ceil(leftMs) < endMs;
    while (isDue(lease.remainingMs())) {
      if (isAnswered) await halfTime();
      isAnswered = false;
      // Tries again after a failure: nodes that were silent may answer in the time that is left.
      await halfTime(lease.extend(ttlMs).then(answered, answered));
    }
  };
  // `sleep` rejects when it is stopped.
  run().catch(() => {});
  return { [Symbol.dispose]: () => stop.abort() };
}
