import { driftMs } from '../core/validity.js';
import type { LockRecord } from './records.js';

/**
 * More than a process reads within one TTL. If it read more records, it would forget each of them
 * before the lease ends, and never take over.
 */
const RECORDS_MAX = 100_000;

interface Seen {
  readonly version: string | null;
  readonly sinceMs: number;
}

/**
 * The versions of held locks, and the times at which this process saw them first.
 *
 * Invariant: this process takes a lease as over only after it has seen one version of its record
 * for the whole TTL. The holder counts from before it wrote that version, and a renewal writes
 * another version. So no clock is compared with that of another machine.
 */
export class Observations {
  readonly #seen = new Map<string, Seen>();

  /**
   * Milliseconds until the lock may be taken; 0 if it is free, or its lease is over.
   *
   * @param nowMs the monotonic clock after the record was read
   */
  remainingMs({ resource, version, held }: LockRecord, nowMs: number): number {
    const before = this.#seen.get(resource);
    if (!held) {
      this.#seen.delete(resource);
      return 0;
    }
    const seen = before?.version === version ? before : { version, sinceMs: nowMs };
    if (seen !== before) this.#add(resource, seen);
    return Math.max(0, seen.sinceMs + held.ttlMs + driftMs(held.ttlMs) - nowMs);
  }

  #add(resource: string, seen: Seen): void {
    this.#seen.delete(resource);
    this.#seen.set(resource, seen);
    // A Map keeps the order of insertion, so its first key was observed longest.
    const [oldest] = this.#seen.keys();
    if (this.#seen.size > RECORDS_MAX && oldest !== undefined) this.#seen.delete(oldest);
  }
}
