import { withJson } from '../core/json.js';
import { inTime, nobody, type Runtime } from '../runtime/runtime.js';
import { keepAlive } from './keep-alive.js';
import type { Lease, LocalLease } from './lease.js';

/** A lease whose routine still ran when the time of `close` was over. */
export interface AbandonedLease {
  /** Sorted. */
  readonly resources: readonly string[];
  readonly token: bigint;
}

/** A routine of `using`, with all that `close` has to know of it. */
interface Running {
  readonly renewal: Disposable;
  /** Settles when the routine has ended and its lease was released. */
  readonly ended: Promise<unknown>;
}

/** The routines of `using` that run in this process. */
export class Routines {
  readonly #runtime: Runtime;
  readonly #running = new Map<LocalLease, Running>();

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  /** Runs the routine, extends its lease meanwhile, and releases the lease. */
  run<Result>(
    lease: LocalLease,
    { ttlMs, maxHoldMs }: { readonly ttlMs: number; readonly maxHoldMs: number },
    routine: (lease: Lease) => Promise<Result> | Result,
  ): Promise<Result> {
    const renewal = keepAlive(lease, ttlMs, maxHoldMs, this.#runtime);
    const ended = this.#run(lease, renewal, routine);
    this.#running.set(lease, { renewal, ended });
    return ended;
  }

  /**
   * Advice for a caller to whom these resources were refused. The caller may be inside of a routine
   * that holds one of them, and would wait for itself. Nobody can tell whether it is, so the advice
   * says so too. A gateway has no routines, so its callers do not get it.
   */
  advice(resources: readonly string[]): string | undefined {
    for (const lease of this.#running.keys()) {
      const held = lease.resources.find((name) => resources.includes(name));
      if (held === undefined || lease.remainingMs() === 0) continue;
      return `a function of using in this process holds ${held}, token=${lease.token}: code inside of it uses its lease, and does not lock again`;
    }
    return undefined;
  }

  /**
   * Waits until all routines have ended, for `drainMs` at most.
   *
   * A routine that still runs then may still write, so its lease is not released: the next holder
   * would work at the same time. The lease is not extended any longer, either. A routine that hangs
   * would hold it for ever, and the caller closes the clients next. So the lease ends by its TTL,
   * or with its routine if that ends earlier. If the process ends first, nothing needed the rest of
   * the TTL; but `close` cannot know that.
   *
   * @returns the leases of the routines that still run
   */
  async drain(drainMs: number): Promise<ReadonlyMap<LocalLease, AbandonedLease>> {
    const ends = [...this.#running.values()].map(({ ended }) => ended);
    await inTime(this.#runtime, nobody, Promise.allSettled(ends), drainMs);
    const abandoned = new Map<LocalLease, AbandonedLease>();
    for (const [lease, { renewal }] of this.#running) {
      renewal[Symbol.dispose]();
      const { resources, token } = lease;
      abandoned.set(lease, withJson({ resources, token }));
    }
    return abandoned;
  }

  async #run<Result>(
    lease: LocalLease,
    renewal: Disposable,
    routine: (lease: Lease) => Promise<Result> | Result,
  ): Promise<Result> {
    try {
      await using _lease = lease;
      using _renewal = renewal;
      const result = await routine(lease);
      lease.ensure();
      return result;
    } finally {
      this.#running.delete(lease);
    }
  }
}
