import type { Runtime } from '../runtime/runtime.js';

/** A lease, as its node shows it. */
export interface LeaseRecord {
  readonly owner: string;
  /** The longest of the times to live that its holder has asked for. */
  readonly ttlMs: number;
  /** The token: the transaction that created the node. */
  readonly czxid: bigint;
  /** The transaction of the last extension. */
  readonly mzxid: bigint;
  /** The time of that transaction by the leader's wall clock, in milliseconds since 1970. */
  readonly mtimeMs: number;
  readonly version: number;
}

/** Milliseconds by which the wall clocks of servers that lead after each other may differ. */
const SKEW_MAX_MS = 10_000;
/** Milliseconds after which the leader's clock is read again. */
const SAMPLE_MS = 10_000;
/** The number of leases that a process remembers. */
const SEEN_MAX = 1_000;

/**
 * Decides when the lease of a silent holder is over. ZooKeeper does not: its servers have no timer
 * for leases, and a session's timer belongs to a connection.
 *
 * A lease is over if this process has seen it for its whole TTL without an extension. The holder
 * began to count earlier. So only the rates of the two clocks matter, and not their times. A
 * process that came later may use the leader's wall clock instead. It adds 10 s, because the lease
 * may be from the clock of an earlier leader.
 */
export class Expiry {
  readonly #runtime: Runtime;
  /** For each node, the last extension and when this process has seen it first. */
  readonly #seen = new Map<string, { readonly mzxid: bigint; readonly sinceMs: number }>();
  #sample: { readonly leaderMs: number; readonly atMs: number } | null = null;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  /** True if the leader's clock was not read in the last 10 s. */
  get needsSample(): boolean {
    return this.#leaderMs() === null;
  }

  /** Notes the time of the leader's wall clock, which a reply has just shown. */
  onLeaderTime(leaderMs: number): void {
    this.#sample = { leaderMs, atMs: this.#runtime.nowMs() };
  }

  /** Milliseconds until the lease of this node is over; 0 if it is. */
  remainingMs(path: string, { mzxid, mtimeMs, ttlMs }: LeaseRecord): number {
    const nowMs = this.#runtime.nowMs();
    const seen = this.#seen.get(path);
    const sinceMs = seen?.mzxid === mzxid ? seen.sinceMs : nowMs;
    if (seen?.mzxid !== mzxid) this.#note(path, { mzxid, sinceMs });
    const leaderMs = this.#leaderMs();
    const byLeaderMs =
      leaderMs === null ? Number.POSITIVE_INFINITY : mtimeMs + ttlMs + SKEW_MAX_MS - leaderMs;
    return Math.max(0, Math.min(sinceMs + ttlMs - nowMs, byLeaderMs));
  }

  #leaderMs(): number | null {
    if (!this.#sample) return null;
    const ageMs = this.#runtime.nowMs() - this.#sample.atMs;
    return ageMs > SAMPLE_MS ? null : this.#sample.leaderMs + ageMs;
  }

  #note(path: string, seen: { readonly mzxid: bigint; readonly sinceMs: number }): void {
    this.#seen.delete(path);
    this.#seen.set(path, seen);
    const [oldest] = this.#seen.keys();
    if (this.#seen.size > SEEN_MAX && oldest !== undefined) this.#seen.delete(oldest);
  }
}
