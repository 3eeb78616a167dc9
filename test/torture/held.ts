/** The TTL of every lease. */
export const TTL_MS = 300;

/** A lease under which a client writes. */
export interface Held {
  readonly token: bigint;
  /** Milliseconds for which the holder may still rely on it. Absent if its library does not say. */
  readonly remainingMs?: () => number;
  readonly extend?: () => Promise<void>;
  release(): Promise<void>;
}

/**
 * Takes the lock of all resources, or none.
 *
 * @param waitMs 0: one acquisition
 * @throws if it was not taken
 */
export type Acquire = (resources: readonly string[], waitMs: number) => Promise<Held>;
