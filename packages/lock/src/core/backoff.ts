const FIRST_MS = 25;
const LIMIT_MS = 250;

/**
 * Milliseconds to wait after acquisition number `attempt`; the first is 1.
 *
 * Half of the wait is random, so clients that split the votes once do not split them again at each
 * attempt.
 *
 * @param retryAfterMs remaining time of the present lease, according to the nodes; 0 if unknown.
 *   The wait is at most 25 ms longer
 * @param unit a random number, 0 <= unit < 1
 */
export function backoffMs(attempt: number, retryAfterMs: number, unit: number): number {
  const ceiling = Math.min(LIMIT_MS, FIRST_MS * 2 ** Math.min(attempt - 1, 8));
  const jittered = ceiling / 2 + (ceiling / 2) * unit;
  return retryAfterMs > 0 ? Math.min(jittered, retryAfterMs + FIRST_MS * unit) : jittered;
}
