import { LeaseLostError, LockArgumentError } from '../core/errors.js';
import { checkTtlMs } from '../core/options.js';
import type { Runtime } from '../runtime/runtime.js';
import { hasSubscribers, publish } from './events.js';
import type { LockHandle, ReleaseOutcome } from './transport.js';

/** The parts of the lock service that a lease uses. */
export interface LeaseContext {
  readonly runtime: Runtime;
  readonly maxTtlMs: number;
  /** Aborts when the lock service is closed. */
  readonly closing: AbortSignal;
  /** Called when the owner id of a lease is read. */
  shared(owner: string, lease: LocalLease): void;
  /** Called once, when the lease of this owner ends. */
  ended(owner: string): void;
}

/** The reason why a lease has ended. The error is made on first use. */
interface Ending {
  readonly message: string;
  readonly cause: unknown;
  error: LeaseLostError | null;
}

/** The time at which a lease ends even if it is extended. `maxHoldMs` is for the message. */
interface HoldLimit {
  readonly endMs: number;
  readonly maxHoldMs: number;
}

/**
 * The longest time for which a timer runs. Timers stand still while the machine sleeps, so a longer
 * one would tell the holder too late.
 */
const TIMER_MAX_MS = 1_000;

/** Work that was not awaited meets the end of its lease. So the message says how to avoid that. */
const RELEASED =
  'the lease was released; await all work that needs it before, also inside of the function of using';

const noLimit: HoldLimit = {
  endMs: Number.POSITIVE_INFINITY,
  maxHoldMs: Number.POSITIVE_INFINITY,
};

/**
 * Lets the lease end at `endMs` on the runtime's monotonic clock, even if it is extended. It was
 * then held for `maxHoldMs`.
 */
export let limitHold: (lease: LocalLease, endMs: number, maxHoldMs: number) => void;

/** Aborts the lease's signal, because the lock service is closed. The lease is still held. */
export let abortForClose: (lease: LocalLease) => void;

/**
 * A lock that is held for a limited time. It may end earlier than its holder believes. So every
 * write to the protected storage must carry `token`, and the storage must refuse a lower one.
 *
 * Any object with these members is a `Lease`: the leases of all lock services, those of a gateway,
 * and those of a test's own fake.
 */
export type Lease = Pick<LocalLease, keyof LocalLease>;

/** A lease that a lock service of this process acquired. */
export class LocalLease implements AsyncDisposable {
  /** Sorted. */
  readonly resources: readonly string[];
  /**
   * Greater than the token of every lease of the same resources that had been returned when this
   * acquisition began. It began with the call of `acquire`.
   */
  readonly token: bigint;
  readonly #handle: LockHandle;
  readonly #context: LeaseContext;
  #controller: AbortController | null = null;
  /** Null while the lease has not ended. */
  #ending: Ending | null = null;
  #deadlineMs: number;
  #limit = noLimit;
  #extensionError: Error | null = null;
  /** The number of extensions that have no answer yet. */
  #unanswered = 0;
  /**
   * Null until something depends on the exact deadline: a timer costs as much as the rest of a
   * lease.
   */
  #cancelTimer: (() => void) | null = null;
  #released: Promise<ReleaseOutcome> | null = null;

  constructor(handle: LockHandle, context: LeaseContext) {
    this.resources = handle.resources;
    this.token = handle.token;
    this.#deadlineMs = handle.deadlineMs;
    this.#handle = handle;
    this.#context = context;
    if (hasSubscribers('fenced:lock:lost')) this.#watchDeadline();
  }

  static {
    limitHold = (lease, endMs, maxHoldMs) => {
      lease.#limit = { endMs, maxHoldMs };
      lease.#watchDeadline();
    };
    abortForClose = (lease) => lease.#controller?.abort(lease.#context.closing.reason);
  }

  /**
   * The name under which the nodes hold this lease; no other lease had or will have it. With it,
   * another process extends or releases the lease: see `extend` and `release` of the lock service.
   * Anybody with this name can do so.
   */
  get owner(): string {
    const owner = this.#handle.share?.() ?? this.#handle.owner;
    if (!this.#ending) this.#context.shared(owner, this);
    return owner;
  }

  /**
   * Aborts, with a `LeaseLostError` as reason, when the lease may no longer be relied on. Aborts
   * earlier, with an error of code `closed`, when the lock service is closed: then end the work,
   * for which the lease is still held.
   */
  get signal(): AbortSignal {
    this.remainingMs();
    this.#controller ??= new AbortController();
    const { closing } = this.#context;
    if (this.#ending) this.#controller.abort(this.#reasonOf(this.#ending));
    else if (closing.aborted) this.#controller.abort(closing.reason);
    else if (!this.#cancelTimer) this.#watchDeadline();
    return this.#controller.signal;
  }

  /** Milliseconds for which the lease may be relied on, by a monotonic clock; 0 when it is over. */
  remainingMs(): number {
    if (this.#ending) return 0;
    const remainingMs = this.#endMs - this.#context.runtime.nowMs();
    if (remainingMs > 0) return remainingMs;
    // After a pause of the process, a caller may get here before the timer fires.
    const { endMs, maxHoldMs } = this.#limit;
    if (endMs < this.#deadlineMs) {
      this.#lose(`the lease has reached its limit and is over maxHoldMs=${maxHoldMs}`);
      // Releases it, because the nodes would hold it beyond this limit.
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
   * Passes if at least `ms` milliseconds of the lease remain.
   *
   * It cannot promise that they still remain when the next statement runs: only the storage's check
   * of the token can.
   *
   * @throws {LeaseLostError} if less remains
   */
  ensure(ms = 1): void {
    if (!(ms >= 0)) throw new LockArgumentError(`ms must be 0 or more ms=${ms}`);
    const remainingMs = this.remainingMs();
    if (remainingMs >= ms && remainingMs > 0) return;
    const reason = this.#ending && this.#reasonOf(this.#ending);
    throw new LeaseLostError(
      reason?.message ??
        `not enough of the lease is left ${this.#name} remainingMs=${Math.floor(remainingMs)} neededMs=${ms}`,
      { cause: reason ? reason.cause : this.#extensionError },
    );
  }

  /**
   * Lets the lease last at least `ttlMs` from now on, with the same token. A lease that is over is
   * never taken back.
   *
   * @throws {LeaseLostError} if the lease was over before the nodes had answered, or if no majority
   * holds it any more
   * @throws {NoQuorumError} if too few nodes answered: the lease keeps the deadline it had
   */
  async extend(ttlMs: number): Promise<void> {
    this.ensure();
    checkTtlMs(ttlMs, this.#context.maxTtlMs);
    const beforeMs = this.#deadlineMs;
    let deadlineMs: number;
    this.#unanswered += 1;
    try {
      deadlineMs = await this.#handle.extend(ttlMs);
    } catch (error) {
      if (error instanceof LeaseLostError) this.#lose(error.message, error.cause);
      // A later extension may have succeeded before this one failed.
      else if (this.#deadlineMs === beforeMs && error instanceof Error) this.#notExtended(error);
      throw error;
    } finally {
      this.#unanswered -= 1;
    }
    const remainingMs = deadlineMs - this.#context.runtime.nowMs();
    const { resources, token } = this;
    publish('fenced:lock:extended', () => ({ resources, token, remainingMs }));
    this.ensure();
    this.#deadlineMs = Math.max(this.#deadlineMs, deadlineMs);
    this.#extensionError = null;
    if (this.#cancelTimer) this.#watchDeadline();
  }

  /**
   * Gives up the lock. Never throws; a second call returns the outcome of the first.
   *
   * @returns `released` if the nodes that still held it have given it up, and anybody can have the
   * lock; `expired` if others may have held it already; `unknown` if too few nodes answered, and
   * the lock that they hold ends with its TTL
   */
  release(): Promise<ReleaseOutcome> {
    this.#released ??= this.#release();
    this.#lose(RELEASED);
    return this.#released;
  }

  /** For `JSON.stringify`. It omits `owner`, which would allow anybody to release the lease. */
  toJSON(): object {
    const { resources, token } = this;
    return { resources, token: token.toString(), remainingMs: this.remainingMs() };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  #release(): Promise<ReleaseOutcome> {
    const { resources, token } = this;
    const released = this.#handle.release();
    if (hasSubscribers('fenced:lock:released')) {
      void released.then((outcome) => {
        publish('fenced:lock:released', () => ({ resources, token, outcome }));
      });
    }
    return released;
  }

  #watchDeadline(): void {
    this.#cancelTimer?.();
    const { runtime } = this.#context;
    const leftMs = Math.max(0, Math.ceil(this.#endMs - runtime.nowMs()));
    const delayMs = Math.min(leftMs, TIMER_MAX_MS);
    this.#cancelTimer = runtime.after(delayMs, () => this.#onTimer(), 'background');
  }

  get #endMs(): number {
    return Math.min(this.#deadlineMs, this.#limit.endMs);
  }

  // The timer may not be the last one. And it may fire a little before its time.
  #onTimer(): void {
    if (this.remainingMs() > 0) this.#watchDeadline();
  }

  #notExtended(error: Error): void {
    const remainingMs = this.remainingMs();
    if (remainingMs === 0) return;
    this.#extensionError = error;
    const { resources, token } = this;
    publish('fenced:lock:extension-failed', () => ({ resources, token, remainingMs, error }));
  }

  #loseByTime(): void {
    const unanswered = this.#unanswered > 0 ? new Error('it has no answer yet') : null;
    const cause = this.#extensionError ?? unanswered;
    const why = cause ? `; its last extension failed: ${cause.message}` : '';
    this.#lose(`the lease is over: its time has passed${why}`, cause ?? undefined);
  }

  #lose(message: string, cause?: unknown): void {
    this.#cancelTimer?.();
    if (this.#ending) return;
    const ending = { message, cause, error: null };
    this.#ending = ending;
    this.#context.ended(this.#handle.owner);
    if (this.#released === null) {
      const { resources, token } = this;
      publish('fenced:lock:lost', () => ({ resources, token, reason: this.#reasonOf(ending) }));
    }
    this.#controller?.abort(this.#reasonOf(ending));
  }

  #reasonOf(ending: Ending): LeaseLostError {
    const { message, cause } = ending;
    ending.error ??= new LeaseLostError(`${message} ${this.#name}`, { cause });
    return ending.error;
  }

  /** For messages. */
  get #name(): string {
    return `resources=${this.resources.join(',')} token=${this.token}`;
  }
}
