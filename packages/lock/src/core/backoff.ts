const FIRST_MS = 25;
const LIMIT_MS = 250;

/**
 * Milliseconds to wait after acquisition number `attempt`; the first is 1.
 *
 * Half of it is random, so contenders that split the votes do not meet again each time. If the
 * nodes reported the end of the lease, the wait is hardly longer than that.
 *
 * @param unit a random number, 0 <= unit < 1
 */
export function backoffMs(attempt: number, retryAfterMs: number, unit: number): number {
  const ceiling = Math.min(LIMIT_MS, FIRST_MS * 2 ** Math.min(attempt - 1, 8));
  const jittered = ceiling / 2 + (ceiling / 2) * unit;
  return retryAfterMs > 0 ? Math.min(jittered, retryAfterMs + FIRST_MS * unit) : jittered;
}
