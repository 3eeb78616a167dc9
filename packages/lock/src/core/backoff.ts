const FIRST_MS = 25;
const LIMIT_MS = 250;

/**
 * Milliseconds to wait before attempt number `attempt` + 1 (the first is 1).
 *
 * Half of it is chance, so that contenders who split the votes between them do not meet again at every attempt. Where the
 * nodes have said when the lock ends, waiting longer than that serves nobody.
 *
 * @param unit a random number, 0 <= unit < 1
 */
export function backoffMs(attempt: number, retryAfterMs: number, unit: number): number {
  const ceiling = Math.min(LIMIT_MS, FIRST_MS * 2 ** Math.min(attempt - 1, 8));
  const jittered = ceiling / 2 + (ceiling / 2) * unit;
  return retryAfterMs > 0 ? Math.min(jittered, retryAfterMs + FIRST_MS * unit) : jittered;
}
