// The clocks of two machines may run at different speeds, and a node's times are whole
// milliseconds. The fraction and the constant are those of the Redis documentation's Redlock page.
const DRIFT_FRACTION = 0.01;
const DRIFT_CONSTANT_MS = 2;

/** Milliseconds by which a node may end a lease earlier than this process counts. */
export function driftMs(ttlMs: number): number {
  return ttlMs * DRIFT_FRACTION + DRIFT_CONSTANT_MS;
}

/**
 * Milliseconds for which a lease may be relied on, from the last vote on; 0 or less: not at all.
 *
 * `elapsedMs` must be monotonic and count from before the first request was sent: on a node, the
 * lease may have begun as early as that.
 */
export function validityMs(ttlMs: number, elapsedMs: number): number {
  return ttlMs - elapsedMs - driftMs(ttlMs);
}

/** The end of a lease for its holder, on the monotonic clock of `startedMs`; see `validityMs`. */
export function deadlineOf(startedMs: number, ttlMs: number): number {
  return startedMs + validityMs(ttlMs, 0);
}

/** The longest time in milliseconds for the answer of a node. */
export const NODE_TIMEOUT_MAX_MS = 2_000;

/**
 * Milliseconds after which a silent node counts as unreachable. A busy node can still vote in that
 * time. If a majority answers just in time, half of the lease is left.
 */
export function nodeTimeoutMs(ttlMs: number): number {
  return Math.min(NODE_TIMEOUT_MAX_MS, Math.ceil(ttlMs / 2));
}

/**
 * Milliseconds for the answers to an acquisition that begins when the caller's time is almost over.
 */
export const LAST_ANSWERS_MS = 250;

/** Milliseconds for the answers to an acquisition whose caller waits for another `leftMs`. */
export function answerLimitMs(ttlMs: number, leftMs: number): number {
  return Math.max(1, Math.min(nodeTimeoutMs(ttlMs), leftMs));
}
