import type { NodeAnswer } from '../core/answers.js';
import { LockArgumentError, LockError } from '../core/errors.js';
import { failureError } from '../core/failure.js';
import {
  checkFields,
  checkMaxHoldMs,
  checkResources,
  checkTtlMs,
  checkWaitMs,
} from '../core/options.js';
import { LAST_ANSWERS_MS, NODE_TIMEOUT_MAX_MS, nodeTimeoutMs } from '../core/validity.js';
import type { FailedAttempt } from '../redlock/attempt.js';
import type { ReleaseOutcome } from '../redlock/holding.js';
import { type Runtime, shareSignal } from '../runtime/runtime.js';
import { tell } from './events.js';
import { keepAlive } from './keep-alive.js';
import { Lease, type LeaseNodes } from './lease.js';
import { LeaseRegistry } from './lease-registry.js';

export interface TryAcquireOptions {
  /** Milliseconds for which the lock is taken, 10 to `maxTtlMs`. */
  readonly ttlMs: number;
  /** Gives the attempt up; what it may have taken is released. */
  readonly signal?: AbortSignal;
}

export interface AcquireOptions extends TryAcquireOptions {
  /**
   * Milliseconds to go on trying while somebody else holds the lock or too few nodes answer. The call settles within `waitMs` and 250 ms
   * for the answers to its last attempt. A waiter may be handed the lock by another in this process, and a tenth of `ttlMs` may be over then.
   *
   * 0: one attempt, as by `tryAcquire`.
   * @default 0
   */
  readonly waitMs?: number;
}

export interface UsingOptions extends AcquireOptions {
  /**
   * Milliseconds for which the lease may be held in all, at least `ttlMs`. It ends then even if the routine still runs, so that a routine
   * that hangs does not hold the lock for ever. Without it the lease is extended for as long as the routine runs.
   */
  readonly maxHoldMs?: number;
}

/** A lease as any process can name it. */
export interface HeldLease {
  readonly resource: string | readonly string[];
  /** The lease's `owner`. */
  readonly owner: string;
}

/** How long a call takes that is not to wait: nodes that do not answer are waited for, and then it is said why others have no vote. */
const ADMISSION_MS = NODE_TIMEOUT_MAX_MS + LAST_ANSWERS_MS;

const TRY_FIELDS = ['ttlMs', 'signal'];
const ACQUIRE_FIELDS = [...TRY_FIELDS, 'waitMs'];
const USING_FIELDS = [...ACQUIRE_FIELDS, 'maxHoldMs'];

/** A lease, or why there is none. */
export type AcquireAttempt =
  | {
      readonly ok: true;
      readonly lease: Lease;
      /** Every node's own answer. */
      readonly nodes: readonly NodeAnswer[];
    }
  | FailedAttempt;

/** The same, for which nobody has asked yet what each node answered. */
export type Attempted =
  | {
      readonly ok: true;
      readonly lease: Lease;
      readonly answers: () => readonly NodeAnswer[];
    }
  | FailedAttempt;

/** What is asked of a lock service, checked. `signal` aborts with the caller's, and when the service is closed. */
export interface Request {
  /** Sorted. */
  readonly resources: readonly string[];
  readonly ttlMs: number;
  readonly signal: AbortSignal;
  /** 0 where nothing is to be waited for. */
  readonly waitMs: number;
  /** When the caller's time is over, on the runtime's monotonic clock. */
  readonly endMs: number;
}

/** How one caller waits between its attempts. */
export interface Wait extends Disposable {
  /**
   * Rejects with the signal's reason as soon as it aborts.
   *
   * @param attempts how many there have been
   * @param attempt the last of them
   * @param leftMs for how long the caller is ready to wait
   */
  pause(attempts: number, attempt: FailedAttempt, leftMs: number): Promise<void>;
}

/** What all lock services do alike; each has its own ways to make an attempt and to wait for another. */
export abstract class LockService<Waiting extends Wait = Wait> implements AsyncDisposable {
  protected readonly runtime: Runtime;
  readonly #name: string;
  readonly #maxTtlMs: number;
  readonly #closing = new AbortController();
  readonly #leases: LeaseRegistry;

  /** @param name for messages */
  protected constructor(name: string, maxTtlMs: number, runtime: Runtime) {
    this.#name = name;
    this.#maxTtlMs = maxTtlMs;
    this.runtime = runtime;
    this.#leases = new LeaseRegistry(maxTtlMs, runtime);
    shareSignal(this.#closing.signal);
  }

  /** What is asked of the nodes about the lease of that owner. */
  protected abstract nodesOf(resources: readonly string[], owner: string): LeaseNodes;

  /** Makes one attempt, for a caller who waits or for one who does not. Never rejects. */
  protected abstract attempt(request: Request, waiting: Waiting | null): Promise<Attempted>;

  protected abstract wait(request: Request): Waiting;

  /** Where it is known that others wait, so that an attempt would be refused. */
  protected waitAtOnce(_request: Request): Waiting | null {
    return null;
  }

  /**
   * Takes the lock of one resource, or of all in a set or none.
   *
   * @throws {LockHeldError} somebody else holds it, and `waitMs` is 0
   * @throws {AcquireTimeoutError} it did not become free within `waitMs`
   * @throws {NoQuorumError} too few nodes voted
   * @throws {LockArgumentError} before anything is sent
   * @throws the signal's reason, where it aborted
   */
  async acquire(resource: string | readonly string[], options: AcquireOptions): Promise<Lease> {
    checkFields('the options of acquire', options, ACQUIRE_FIELDS);
    const request = this.check(resource, options);
    const { waitMs, endMs } = request;
    let waiting = waitMs > 0 ? this.waitAtOnce(request) : null;
    try {
      for (let attempts = 1; ; attempts += 1) {
        const startedMs = this.runtime.nowMs();
        const attempt = this.#told(request, await this.attempt(request, waiting), startedMs);
        if (attempt.ok) return attempt.lease;
        request.signal.throwIfAborted();
        const leftMs = endMs - this.runtime.nowMs();
        // Waiting changes nothing about a misconfiguration.
        const waitable = ['held', 'no-quorum', 'memory-full', 'too-slow'].includes(attempt.reason);
        if (waitMs === 0 || leftMs <= 0 || !waitable)
          throw failureError(attempt, request.resources, waitMs);
        waiting ??= this.wait(request);
        await waiting.pause(attempts, attempt, leftMs);
      }
    } finally {
      waiting?.[Symbol.dispose]();
    }
  }

  /**
   * Makes one attempt. It waits for answers for half of `ttlMs`, at most 2 s; where nodes have to be admitted before they can vote, for
   * 2.25 s in all. Contention, unreachable nodes and an abort on the way are results here, not exceptions:
   * `reason` and `hint` tell why there is no lease, `nodes` what each node said.
   *
   * @throws {LockArgumentError} before anything is sent
   * @throws the signal's reason, or an error of code `closed`, where that was so before
   */
  async tryAcquire(
    resource: string | readonly string[],
    options: TryAcquireOptions,
  ): Promise<AcquireAttempt> {
    checkFields('the options of tryAcquire', options, TRY_FIELDS);
    const request = this.check(resource, options);
    const startedMs = this.runtime.nowMs();
    const attempt = this.#told(request, await this.attempt(request, null), startedMs);
    return attempt.ok ? { ok: true, lease: attempt.lease, nodes: attempt.answers() } : attempt;
  }

  /**
   * Runs `routine` under a lease that is extended while the routine runs and the event loop turns: see docs/leases.md.
   * The routine's own error comes first; then, if the lease was over before the routine ended, a `LeaseLostError`, which names
   * `maxHoldMs` if that has ended it.
   *
   * @throws whatever `acquire` throws
   * @throws {LeaseLostError} even where the routine resolved: what it did may have been done by two at once
   */
  async using<Result>(
    resource: string | readonly string[],
    options: UsingOptions,
    routine: (lease: Lease) => Promise<Result> | Result,
  ): Promise<Result> {
    checkFields('the options of using', options, USING_FIELDS);
    const { maxHoldMs: limitMs, ...rest } = options;
    const ttlMs = checkTtlMs(rest.ttlMs, this.#maxTtlMs);
    const maxHoldMs = checkMaxHoldMs(limitMs, ttlMs);
    if (typeof routine !== 'function') throw new LockArgumentError('routine must be a function');
    await using lease = await this.acquire(resource, rest);
    using _ = keepAlive(lease, ttlMs, maxHoldMs, this.runtime);
    const result = await routine(lease);
    lease.ensure();
    return result;
  }

  /**
   * Lets a lease that any process acquired last at least `ttlMs` from now on, with the same token. A lease that is over is never
   * taken back.
   *
   * @returns milliseconds for which it may be relied on from now on; 0 where the answer came too late for that
   * @throws {LeaseLostError} where no majority holds it for its owner any more
   * @throws {NoQuorumError} too few nodes answered: it ends when it would have ended
   * @throws {LockArgumentError} before anything is sent
   */
  async extend(held: HeldLease, ttlMs: number): Promise<number> {
    const { resources, owner } = checkHeld(held);
    const deadlineMs = await this.nodesOf(resources, owner).extend(
      checkTtlMs(ttlMs, this.#maxTtlMs),
    );
    return Math.max(0, deadlineMs - this.runtime.nowMs());
  }

  /**
   * Gives up a lease that any process acquired.
   *
   * @returns as `release` of a lease
   * @throws {LockArgumentError} before anything is sent
   */
  async release(held: HeldLease): Promise<ReleaseOutcome> {
    const { resources, owner } = checkHeld(held);
    const own = this.#leases.of(owner);
    return own ? own.release() : this.nodesOf(resources, owner).release();
  }

  /** Releases what is held and ends waits with an error of code `closed`. Leaves clients and pools to their owner. */
  async close(): Promise<void> {
    this.#closing.abort(new LockError('closed', `this ${this.#name} was closed`));
    await this.#leases.releaseAll();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** How an attempt ended that began then, which whoever has subscribed is told. */
  #told({ resources, ttlMs, signal }: Request, ended: Attempted, startedMs: number): Attempted {
    const attempt = rejectIfExpired(ended, signal);
    if (attempt.ok) {
      const { token } = attempt.lease;
      tell('fenced:lock:acquire', () => {
        return { resources, token, ttlMs, tookMs: this.runtime.nowMs() - startedMs };
      });
    } else if (attempt.reason === 'held') {
      const { nodes, retryAfterMs } = attempt;
      tell('fenced:lock:contended', () => ({ resources, nodes, retryAfterMs }));
    }
    return attempt;
  }

  protected check(resource: string | readonly string[], options: AcquireOptions): Request {
    const resources = checkResources(resource);
    const ttlMs = checkTtlMs(options.ttlMs, this.#maxTtlMs);
    const waitMs = checkWaitMs(options.waitMs ?? 0);
    const closing = this.#closing.signal;
    if (options.signal !== undefined && !(options.signal instanceof AbortSignal)) {
      throw new LockArgumentError('signal must be an AbortSignal');
    }
    const signal = options.signal ? AbortSignal.any([options.signal, closing]) : closing;
    signal.throwIfAborted();
    const endMs = this.runtime.nowMs() + (waitMs > 0 ? waitMs : ADMISSION_MS);
    return { resources, ttlMs, signal, waitMs, endMs };
  }

  /** Until when an attempt that begins now goes on, by the runtime's clock: it leaves the nodes time to answer. */
  protected untilMs({ endMs }: Request): number {
    return Math.max(endMs, this.runtime.nowMs() + LAST_ANSWERS_MS);
  }

  /** For how long such an attempt waits for answers now. */
  protected answersMs({ ttlMs }: Request, untilMs: number): number {
    return Math.max(1, Math.min(nodeTimeoutMs(ttlMs), untilMs - this.runtime.nowMs()));
  }

  /** The lease that was won, released at the latest when the service is closed. */
  protected track(
    resources: readonly string[],
    token: bigint,
    deadlineMs: number,
    nodes: LeaseNodes,
  ): Lease {
    const lease = new Lease(resources, token, deadlineMs, nodes, this.#leases);
    this.#leases.add(lease);
    return lease;
  }
}

/** The attempt, unless it was aborted after the last vote or its lease is over: whoever asked must not see that lease. */
function rejectIfExpired(attempt: Attempted, signal: AbortSignal): Attempted {
  if (!attempt.ok || (!signal.aborted && attempt.lease.remainingMs() > 0)) return attempt;
  void attempt.lease.release();
  const reason = signal.aborted ? 'aborted' : 'too-slow';
  return { ok: false, reason, nodes: attempt.answers(), retryAfterMs: 0 };
}

function checkHeld(held: HeldLease) {
  checkFields('a lease of another process', held, ['resource', 'owner']);
  const { resource, owner } = held;
  if (typeof owner !== 'string' || owner === '' || !owner.isWellFormed()) {
    throw new LockArgumentError(`owner must be the owner of a lease owner=${String(owner)}`);
  }
  return { resources: checkResources(resource), owner };
}
