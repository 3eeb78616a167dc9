/** The clocks of a machine, in milliseconds. */
export interface MachineClocks {
  /** Never goes back. On Linux, it stands still while the machine sleeps. */
  monotonicMs(): number;
  /** Goes on while the machine sleeps, but may be set. */
  wallMs(): number;
  /**
   * Goes on while the machine sleeps, and cannot be set. It has steps of `UPTIME_STEP_MS`. If the
   * monotonic clock also goes on during sleep, this is the same clock.
   */
  uptimeMs(): number;
}

const UPTIME_STEP_MS = 10;
/** To read the uptime takes a hundred times as long as to read both other clocks. */
const READ_UPTIME_EVERY_MS = 1_000;
/** The least change between wall clock and monotonic clock that hints at a sleep. */
const HINT_MS = 5;

/**
 * A monotonic clock in milliseconds that goes on while the machine sleeps. A lease ends during that
 * sleep, too, because its nodes are awake.
 *
 * Invariant: it never counts less than a sleep lasted, and at most 20 ms more. It notices a sleep
 * at once if the wall clock shows it, and within a second of waking time in any case. A sleep of
 * less than 30 ms may go unnoticed.
 */
export function machineClock({ monotonicMs, wallMs, uptimeMs }: MachineClocks): () => number {
  let sleptMs = 0;
  let nextReadMs = 0;
  let wallAheadMs = wallMs() - monotonicMs();
  let uptimeAheadMs = uptimeMs() - monotonicMs();
  return () => {
    const nowMs = monotonicMs();
    const aheadMs = wallMs() - nowMs;
    if (nowMs >= nextReadMs || Math.abs(aheadMs - wallAheadMs) > HINT_MS) {
      nextReadMs = nowMs + READ_UPTIME_EVERY_MS;
      wallAheadMs = aheadMs;
      // The uptime was rounded down, this time and the last time.
      const moreMs = uptimeMs() + UPTIME_STEP_MS - nowMs - uptimeAheadMs;
      if (moreMs > 2 * UPTIME_STEP_MS) {
        sleptMs += moreMs;
        uptimeAheadMs += moreMs;
      }
    }
    return nowMs + sleptMs;
  };
}
