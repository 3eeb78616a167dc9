/** The TTL of every lease on Redis nodes, Postgres and gateways. */
export const TTL_MS = 300;
/** The TTL of leases on etcd, ZooKeeper and S3. etcd ends no lease earlier, and S3 is slow. */
const SLOW_TTL_MS = 2_000;

export function ttlMsOf(subject: string): number {
  return ['etcd', 'zookeeper', 's3'].includes(subject) ? SLOW_TTL_MS : TTL_MS;
}

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
