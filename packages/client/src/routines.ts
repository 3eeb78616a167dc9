import { extendUntil, type GatewayLease } from './lease.js';
import type { AbandonedLease } from './lease-arguments.js';
import type { Runtime } from './runtime.js';

/** The least time between two extensions. */
const PAUSE_MIN_MS = 5;

/** After this time without an answer, the connection of an extension may be dead. */
const SILENT_MS = 2_000;

/** A request without an answer. */
interface Pending {
  readonly end: AbortController;
  readonly settled: Promise<void>;
}

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
   *
   * A connection may be dead without a sign, and `fetch` would wait for minutes. So an extension
   * without an answer is sent again, after half of the time that is left and 2 s at most. The
   * earlier request keeps its connection busy, so the next one takes another. It is not given up
   * yet, because a slow gateway may still answer. The first answer ends all others, and their
   * connections with them.
   */
  async #keepAlive(
    lease: GatewayLease,
    ttlMs: number,
    endMs: number,
    signal: AbortSignal,
  ): Promise<void> {
    const pending = new Set<Pending>();
    const isDue = (leftMs: number): boolean =>
      leftMs > 0 && this.#runtime.nowMs() + Math.ceil(leftMs) < endMs;
    const halfMs = (): number => Math.max(PAUSE_MIN_MS, lease.remainingMs() / 2);
    while (isDue(lease.remainingMs())) {
      // After a failure, the next try comes after half of the remaining time.
      if (pending.size === 0) await this.#runtime.sleep(halfMs(), signal);
      this.#extend(lease, ttlMs, signal, pending);
      const woken = new AbortController();
      const limitMs = Math.min(halfMs(), SILENT_MS);
      const silence = this.#runtime.sleep(limitMs, AbortSignal.any([signal, woken.signal]));
      await Promise.race([silence, ...[...pending].map(({ settled }) => settled)]);
      silence.catch(() => undefined);
      woken.abort();
    }
  }

  /** Sends one extension, which is pending until it fails, or until any of them succeeds. */
  #extend(lease: GatewayLease, ttlMs: number, signal: AbortSignal, pending: Set<Pending>): void {
    const end = new AbortController();
    const extended = extendUntil(lease, ttlMs, AbortSignal.any([signal, end.signal]));
    const succeeded = (): void => {
      pending.delete(one);
      for (const other of pending) other.end.abort();
      pending.clear();
    };
    const failed = (): void => void pending.delete(one);
    const one: Pending = { end, settled: extended.then(succeeded, failed) };
    pending.add(one);
  }
}
