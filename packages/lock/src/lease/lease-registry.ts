import type { Runtime } from '../runtime/runtime.js';
import { abortForClose, type LeaseContext, type LocalLease } from './lease.js';

/** The interval at which the service looks for leases that have ended without a release. */
const SWEEP_EVERY_MS = 1_000;
/** The number of ended leases from which on it is worth making a new list. */
const ENDED_MIN = 64;

/**
 * The leases that a service holds. Ended leases leave the list many at a time. The list is an
 * array: in a `Map` or a linked list, old entries refer to new ones. Then minor garbage collections
 * could not free the new ones.
 */
export class LeaseRegistry implements LeaseContext {
  readonly runtime: Runtime;
  readonly maxTtlMs: number;
  readonly closing: AbortSignal;
  #leases: LocalLease[] = [];
  #endedCount = 0;
  /** The time at which the timer for the next sweep was set; minus infinity if none is set. */
  #setMs = Number.NEGATIVE_INFINITY;
  /** The leases whose owner id was read. */
  readonly #byOwner = new Map<string, LocalLease>();

  constructor(maxTtlMs: number, runtime: Runtime, closing: AbortSignal) {
    this.maxTtlMs = maxTtlMs;
    this.runtime = runtime;
    this.closing = closing;
  }

  add(lease: LocalLease): void {
    this.#leases.push(lease);
    // Sets an overdue timer again: a test may have dropped its fake timers.
    if (this.runtime.nowMs() > this.#setMs + 2 * SWEEP_EVERY_MS) this.#planSweep();
  }

  shared(owner: string, lease: LocalLease): void {
    this.#byOwner.set(owner, lease);
  }

  ended(owner: string): void {
    this.#byOwner.delete(owner);
    this.#endedCount += 1;
    if (this.#endedCount >= ENDED_MIN && 2 * this.#endedCount > this.#leases.length) this.#sweep();
  }

  of(owner: string): LocalLease | undefined {
    return this.#byOwner.get(owner);
  }

  /** Called when `closing` has aborted: a listener of it for each lease would cost too much. */
  abortSignals(): void {
    for (const lease of this.#leases) abortForClose(lease);
  }

  async releaseAllBut(kept: ReadonlyMap<LocalLease, unknown>): Promise<void> {
    const released = this.#leases.filter((lease) => !kept.has(lease));
    await Promise.all(released.map((lease) => lease.release()));
  }

  #planSweep(): void {
    this.#setMs = this.runtime.nowMs();
    const sweep = (): void => {
      this.#setMs = Number.NEGATIVE_INFINITY;
      this.#sweep();
      if (this.#leases.length > 0) this.#planSweep();
    };
    this.runtime.after(SWEEP_EVERY_MS, sweep, 'background');
  }

  /** Drops the ended leases. If a lease's time has passed, `remainingMs` publishes the loss. */
  #sweep(): void {
    this.#endedCount = 0;
    this.#leases = this.#leases.filter((lease) => lease.remainingMs() > 0);
  }
}
