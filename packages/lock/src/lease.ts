import { LeaseLostError, LockArgumentError } from './core/errors.js';
import type { ReleaseOutcome } from './holding.js';
import type { Runtime } from './runtime.js';

/** What a lease asks of the nodes. */
export interface LeaseNodes {
  /** Random, of one attempt, never used again: under this name the nodes hold the lease. */
  readonly owner: string;
  /** The owner id, which may become known to other processes from now on; another one that nobody has, where the lease was handed on. */
  share?(): string;
  /** @returns the new deadline on the runtime's monotonic clock */
  extend(ttlMs: number): Promise<number>;
  release(): Promise<ReleaseOutcome>;
}

/** Those, and who is to know of its end. */
export interface LeaseParts extends LeaseNodes {
  /** Called once, when the lease ends; `reason` makes the error, `wasLost` unless it was released. */
  ended(reason: () => LeaseLostError, wasLost: boolean): void;
}

/** Ends the lease at that time, by the runtime's clock, at the latest: it is held for `maxHoldMs` then. */
export let limitHold: (lease: Lease, endMs: number, maxHoldMs: number) => void;

/**
 * A lock that is held for a limited time. It may end earlier than its holder believes, so what it protects must be
 * written with `token`, to storage that refuses a lower one.
 */
export class Lease implements AsyncDisposable {
  /** Sorted. */
  readonly resources: readonly string[];
  /** Greater than the token of every earlier holder of each of the resources. */
  readonly token: bigint;
  readonly #nodes: LeaseParts;
  readonly #runtime: Runtime;
  #controller: AbortController | null = null;
  /** Why it has ended; null while it has not. */
  #reason: (() => LeaseLostError) | null = null;
  #deadlineMs: number;
  /** When it ends even if it is extended; `maxHoldMs` is for the message. */
  #limit: { readonly endMs: number; readonly maxHoldMs: number } = {
    endMs: Number.POSITIVE_INFINITY,
    maxHoldMs: Number.POSITIVE_INFINITY,
  };
  #cancelTimer: () => void = () => {};
  #released: Promise<ReleaseOutcome> | null = null;

  constructor(
    resources: readonly string[],
    token: bigint,
    deadlineMs: number,
    nodes: LeaseParts,
    runtime: Runtime,
  ) {
    this.resources = resources;
    this.token = token;
    this.#deadlineMs = deadlineMs;
    this.#nodes = nodes;
    this.#runtime = runtime;
    this.#watchDeadline();
  }

  static {
    limitHold = (lease, endMs, maxHoldMs) => {
      lease.#limit = { endMs, maxHoldMs };
      lease.#watchDeadline();
    };
  }

  /**
   * The name under which the nodes hold this lease; nobody else had or will have it. With it, another process extends or
   * releases the lease: see `extend` and `release` of the lock service. Whoever knows it can.
   */
  get owner(): string {
    return this.#nodes.share?.() ?? this.#nodes.owner;
  }

  /** Aborts, with a `LeaseLostError` as reason, when the lease may no longer be relied on. */
  get signal(): AbortSignal {
    this.remainingMs();
    // Made only for who asks: it costs as much as all else in a lease.
    this.#controller ??= new AbortController();
    if (this.#reason) this.#controller.abort(this.#reason());
    return this.#controller.signal;
  }

  /** Milliseconds for which the lease may be relied on, by a monotonic clock; 0 when it is over. */
  remainingMs(): number {
    if (this.#reason) return 0;
    const remainingMs = this.#endMs - this.#runtime.nowMs();
    if (remainingMs > 0) return remainingMs;
    // A process that was paused gets here before its timer does.
    const { endMs, maxHoldMs } = this.#limit;
    if (endMs < this.#deadlineMs) {
      this.#lose(`the lease has reached its limit and is over maxHoldMs=${maxHoldMs}`);
      // The nodes hold it for longer than that.
      this.#released ??= this.#nodes.release();
    } else this.#lose('the lease is over: its time has passed');
    return 0;
  }

  /**
   * Passes if at least `ms` milliseconds of the lease remain.
   *
   * It cannot promise that they still remain when the next statement runs: only the storage's check of the token can.
   *
   * @throws {LeaseLostError} where less remains
   */
  ensure(ms = 1): void {
    if (!(ms >= 0)) throw new LockArgumentError(`ms must be 0 or more ms=${ms}`);
    const remainingMs = this.remainingMs();
    if (remainingMs >= ms && remainingMs > 0) return;
    const cause = this.#reason?.();
    throw new LeaseLostError(
      cause?.message ??
        `not enough of the lease is left ${this.#facts()} remainingMs=${Math.floor(remainingMs)} neededMs=${ms}`,
      { cause },
    );
  }

  /**
   * Lets the lease last at least `ttlMs` from now on, with the same token. A lease that is over is never taken back.
   *
   * @throws {LeaseLostError} where the lease was over before the nodes had answered, or no majority holds it any more
   * @throws {NoQuorumError} where too few nodes answered: the lease keeps the deadline it had
   */
  async extend(ttlMs: number): Promise<void> {
    this.ensure();
    let deadlineMs: number;
    try {
      deadlineMs = await this.#nodes.extend(ttlMs);
    } catch (error) {
      if (error instanceof LeaseLostError) this.#lose(error.message, error);
      throw error;
    }
    this.ensure();
    this.#deadlineMs = Math.max(this.#deadlineMs, deadlineMs);
    this.#watchDeadline();
  }

  /**
   * Gives the lock up. Never throws; a second call returns the outcome of the first.
   *
   * @returns `released`, where nodes that still held it have given it up, and anybody can have the lock; `expired` where others may have
   * held it already; `unknown` where too few nodes answered, and what they hold ends with its TTL
   */
  release(): Promise<ReleaseOutcome> {
    this.#released ??= this.#nodes.release();
    this.#lose('the lease was released');
    return this.#released;
  }

  /** For `JSON.stringify`. Without `owner`: whoever knows that can release the lease. */
  toJSON(): object {
    const { resources, token } = this;
    return { resources, token: token.toString(), remainingMs: this.remainingMs() };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  #watchDeadline(): void {
    this.#cancelTimer();
    const delayMs = Math.max(0, Math.ceil(this.#endMs - this.#runtime.nowMs()));
    this.#cancelTimer = this.#runtime.after(delayMs, () => this.#onTimer(), 'background');
  }

  get #endMs(): number {
    return Math.min(this.#deadlineMs, this.#limit.endMs);
  }

  // Timers may fire a little early by the clock that counts.
  #onTimer(): void {
    if (this.remainingMs() > 0) this.#watchDeadline();
  }

  #lose(message: string, cause?: unknown): void {
    this.#cancelTimer();
    if (this.#reason) return;
    let error: LeaseLostError | null = null;
    const reason = (): LeaseLostError => {
      error ??= new LeaseLostError(`${message} ${this.#facts()}`, { cause });
      return error;
    };
    this.#reason = reason;
    this.#nodes.ended(reason, this.#released === null);
    this.#controller?.abort(reason());
  }

  #facts(): string {
    return `resources=${this.resources.join(',')} token=${this.token}`;
  }
}
