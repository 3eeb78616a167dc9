import { LeaseError } from './problems.js';
import type { Runtime } from './runtime.js';

/** `unknown`: no gateway answered, or too few lock nodes. The lease then ends by itself. */
export type ReleaseOutcome = 'released' | 'expired' | 'unknown';

/**
 * The longest time for which a timer runs. Timers stand still while the machine sleeps, so a longer
 * one would tell the holder too late.
 */
const TIMER_MAX_MS = 1_000;

/** Work that was not awaited meets the end of its lease. So the message says how to avoid that. */
const RELEASED =
  'the lease was released; await all work that needs it before, also inside of the function of using';

/** The answer that granted or extended a lease. */
export interface Granted {
  readonly leaseId: string;
  readonly token: bigint;
  /** The signed token for each of the resources. */
  readonly signedTokens: ReadonlyMap<string, string>;
  /** The end of the lease, on the runtime's monotonic clock. */
  readonly deadlineMs: number;
}

/** The client that a lease belongs to. */
export interface LeaseClient {
  readonly runtime: Runtime;
  /** Aborts when the client is closed. */
  readonly closing: AbortSignal;
  extendHeld(
    resources: readonly string[],
    leaseId: string,
    ttlMs: number,
    signal?: AbortSignal,
  ): Promise<Granted>;
  releaseHeld(resources: readonly string[], leaseId: string): Promise<ReleaseOutcome>;
  /** Called when the lease ends. */
  ended(leaseId: string): void;
}

/** Aborts the lease's signal, because its client is closed. The lease is still held. */
export let abortForClose: (lease: GatewayLease) => void;

/** As `extend` of the lease. An abort closes the connection of the request. */
export let extendUntil: (lease: GatewayLease, ttlMs: number, signal: AbortSignal) => Promise<void>;

/** A lease that a gateway granted. It has the members of `Lease` of `@fenced/lock`. */
export class GatewayLease implements AsyncDisposable {
  /** The names of the locked resources, sorted. */
  readonly resources: readonly string[];
  /**
   * Greater than the token of every earlier holder of each of the resources. For a write with this
   * number, the client also sends the gateway's signature.
   */
  readonly token: bigint;
  #granted: Granted;
  #extensionError: Error | null = null;
  /** The number of extensions that have no answer yet. */
  #unanswered = 0;
  readonly #maxHoldMs: number;
  /** The time at which the lease ends even if it is extended. */
  readonly #limitMs: number;
  readonly #client: LeaseClient;
  readonly #controller = new AbortController();
  /** The reason why the lease is over; null while it is held. */
  #ending: LeaseError | null = null;
  #cancelTimer: () => void = () => undefined;
  #released: Promise<ReleaseOutcome> | undefined;

  static {
    abortForClose = (lease) => lease.#controller.abort(lease.#client.closing.reason);
    extendUntil = (lease, ttlMs, signal) => lease.#extend(ttlMs, signal);
  }

  /** Made by `acquire`. */
  constructor(
    resources: readonly string[],
    granted: Granted,
    maxHoldMs: number,
    client: LeaseClient,
  ) {
    this.resources = resources;
    this.token = granted.token;
    this.#granted = granted;
    this.#maxHoldMs = maxHoldMs;
    this.#limitMs = client.runtime.nowMs() + maxHoldMs;
    this.#client = client;
    this.#watch();
  }

  /**
   * The name of the lease for other processes, which extend or release it by `extend` and `release`
   * of their client. Anybody with this name and the right to `lease` can do so. A gateway accepts
   * this name for its `signing.ttlMs`. Each extension makes a new name.
   */
  get owner(): string {
    return this.#granted.leaseId;
  }

  /**
   * The token with the gateway's signature, `34.k1.…`, for the header `Fencing-Token`, and for
   * `adopt` in another process. An extension renews the signature. For a lease of several
   * resources, this is the token of the first one.
   */
  get signedToken(): string {
    return this.signedTokens.values().next().value ?? '';
  }

  /** The signed token for each of the resources. */
  get signedTokens(): ReadonlyMap<string, string> {
    return this.#granted.signedTokens;
  }

  /**
   * Aborts, with a {@link LeaseError} as reason, when the lease is over. Aborts earlier, with code
   * `closed`, when the client is closed: then end the work, for which the lease is still held.
   */
  get signal(): AbortSignal {
    this.remainingMs();
    const { closing } = this.#client;
    if (closing.aborted) this.#controller.abort(closing.reason);
    return this.#controller.signal;
  }

  /** Milliseconds for which the lease is valid, by a monotonic clock; 0 when it is over. */
  remainingMs(): number {
    if (this.#ending) return 0;
    const remainingMs = this.#endMs - this.#client.runtime.nowMs();
    if (remainingMs > 0) return remainingMs;
    if (this.#limitMs < this.#granted.deadlineMs) {
      this.#lose(`the lease has reached its limit and is over maxHoldMs=${this.#maxHoldMs}`);
      // At the limit of `maxHoldMs`, the lock nodes still hold the lease, so it is released.
      this.#released ??= this.#release();
    } else this.#loseByTime();
    return 0;
  }

  /**
   * The reason why the last extension failed; null if it succeeded, or there was none. The lease
   * goes on for `remainingMs()`, and each further extension may still succeed.
   */
  get extensionError(): Error | null {
    return this.#extensionError;
  }

  /**
   * Returns if at least `ms` milliseconds of the lease remain.
   *
   * @throws {LeaseError} `lease-lost`
   */
  ensure(ms = 1): void {
    const remainingMs = this.remainingMs();
    if (remainingMs > 0 && remainingMs >= ms) return;
    const ending = this.#ending;
    throw ending
      ? lost(ending.message, ending.cause)
      : lost('not enough of the lease is left', this.#extensionError ?? undefined);
  }

  /**
   * Lets the lease last at least `ttlMs` from now on, with the same token.
   *
   * @throws {LeaseError} `lease-lost`; after another code the lease may still last until its
   *   deadline
   */
  extend(ttlMs: number): Promise<void> {
    return this.#extend(ttlMs);
  }

  async #extend(ttlMs: number, signal?: AbortSignal): Promise<void> {
    this.ensure();
    const beforeMs = this.#granted.deadlineMs;
    this.#unanswered += 1;
    try {
      const extended = await this.#client.extendHeld(this.resources, this.owner, ttlMs, signal);
      this.ensure();
      const deadlineMs = Math.max(this.#granted.deadlineMs, extended.deadlineMs);
      this.#granted = { ...extended, deadlineMs };
      this.#extensionError = null;
      this.#watch();
    } catch (error) {
      if (error instanceof LeaseError && error.code === 'lease-lost')
        this.#lose(error.message, error.cause);
      // A later extension may have succeeded before this one failed.
      else if (this.#granted.deadlineMs === beforeMs && error instanceof Error)
        this.#extensionError = error;
      throw error;
    } finally {
      this.#unanswered -= 1;
    }
  }

  /** Releases the lock. Never throws. A second call returns the outcome of the first. */
  release(): Promise<ReleaseOutcome> {
    this.#released ??= this.#release();
    this.#lose(RELEASED);
    return this.#released;
  }

  /** For `JSON.stringify`. Leaves out `owner`, because a reader of it could release the lease. */
  toJSON(): object {
    const { resources, token } = this;
    return { resources, token: token.toString(), remainingMs: this.remainingMs() };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  get #endMs(): number {
    return Math.min(this.#granted.deadlineMs, this.#limitMs);
  }

  #release(): Promise<ReleaseOutcome> {
    return this.#client.releaseHeld(this.resources, this.owner).catch(() => 'unknown');
  }

  #watch(): void {
    this.#cancelTimer();
    const { runtime } = this.#client;
    const leftMs = Math.max(0, Math.ceil(this.#endMs - runtime.nowMs()));
    const delayMs = Math.min(leftMs, TIMER_MAX_MS);
    this.#cancelTimer = runtime.after(delayMs, () => {
      // The timer may not be the last one. And it may fire a little before its time.
      if (this.remainingMs() > 0) this.#watch();
    });
  }

  #loseByTime(): void {
    const unanswered = this.#unanswered > 0 ? new Error('it has no answer yet') : undefined;
    const cause = this.#extensionError ?? unanswered;
    const why = cause ? `; its last extension failed: ${cause.message}` : '';
    this.#lose(`the lease is over: its time has passed${why}`, cause);
  }

  #lose(detail: string, cause?: unknown): void {
    this.#cancelTimer();
    this.#client.ended(this.owner);
    this.#ending ??= lost(detail, cause);
    this.#controller.abort(this.#ending);
  }
}

function lost(detail: string, cause?: unknown): LeaseError {
  const about = { code: 'lease-lost', detail, retryAfterMs: undefined } as const;
  return new LeaseError(about, cause === undefined ? {} : { cause });
}
