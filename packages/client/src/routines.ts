import type { GatewayLease } from './lease.js';
import type { AbandonedLease } from './lease-arguments.js';
import type { Runtime } from './runtime.js';

/** The least time between two extensions. */
const PAUSE_MIN_MS = 5;

/** A routine of `using`, with all that `close` has to know of it. */
interface Running {
  /** Ends the extensions of its lease. */
  readonly renewal: AbortController;
  /** Settles when the routine has ended and its lease was released. */
  readonly ended: Promise<unknown>;
}

/** The routines of `using` that run in this process. */
export class Routines {
  readonly #runtime: Runtime;
  readonly #running = new Map<GatewayLease, Running>();

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  /** Runs the routine, extends its lease meanwhile, and releases the lease. */
  run<Result>(
    lease: GatewayLease,
    { ttlMs, maxHoldMs }: { readonly ttlMs: number; readonly maxHoldMs: number },
    routine: (lease: GatewayLease) => Promise<Result> | Result,
  ): Promise<Result> {
    const renewal = new AbortController();
    const endMs = this.#runtime.nowMs() + maxHoldMs;
    // At the end of the routine, the signal ends this loop, even in its sleep.
    this.#keepAlive(lease, ttlMs, endMs, renewal.signal).catch(() => undefined);
    const ended = this.#run(lease, renewal, routine);
    this.#running.set(lease, { renewal, ended });
    return ended;
  }

  /**
   * Waits until all routines have ended, for `drainMs` at most. The lease of a routine that still
   * runs is neither released nor extended any longer. The routine may still write, so its lease
   * ends with it, or by its TTL.
   *
   * @returns the leases of the routines that still run
   */
  async drain(drainMs: number): Promise<ReadonlyMap<GatewayLease, AbandonedLease>> {
    const drained = new AbortController();
    const ends = Promise.allSettled([...this.#running.values()].map(({ ended }) => ended));
    const late = this.#runtime.sleep(drainMs, drained.signal).catch(() => undefined);
    await Promise.race([ends, late]);
    drained.abort();
    const abandoned = new Map<GatewayLease, AbandonedLease>();
    for (const [lease, { renewal }] of this.#running) {
      renewal.abort();
      const { resources, token } = lease;
      const toJSON = (): object => ({ resources, token: token.toString() });
      abandoned.set(
        lease,
        Object.defineProperty({ resources, token }, 'toJSON', { value: toJSON }),
      );
    }
    return abandoned;
  }

  async #run<Result>(
    lease: GatewayLease,
    renewal: AbortController,
    routine: (lease: GatewayLease) => Promise<Result> | Result,
  ): Promise<Result> {
    try {
      const result = await routine(lease);
      lease.ensure();
      return result;
    } finally {
      renewal.abort();
      await lease.release();
      this.#running.delete(lease);
    }
  }

  /**
   * Extends the lease each time half of its remaining time has passed, until it lasts to `endMs`.
   * The lease's own signal does not end this: it also aborts when the client is closed.
   */
  async #keepAlive(
    lease: GatewayLease,
    ttlMs: number,
    endMs: number,
    signal: AbortSignal,
  ): Promise<void> {
    const isDue = (leftMs: number): boolean =>
      leftMs > 0 && this.#runtime.nowMs() + Math.ceil(leftMs) < endMs;
    while (isDue(lease.remainingMs())) {
      await this.#runtime.sleep(Math.max(PAUSE_MIN_MS, lease.remainingMs() / 2), signal);
      // After a failure, the next try comes after half of the remaining time.
      await lease.extend(ttlMs).catch(() => undefined);
    }
  }
}
