import type { NodeAnswer } from '../core/answers.js';
import { LockArgumentError, LockError } from '../core/errors.js';
import { type AcquireFailure, failureError } from '../core/failure.js';
import {
  checkFields,
  checkMaxHoldMs,
  checkResources,
  checkTtlMs,
  checkWaitMs,
} from '../core/options.js';
import { LAST_ANSWERS_MS, NODE_TIMEOUT_MAX_MS } from '../core/validity.js';
import type { Runtime } from '../runtime/runtime.js';
import { publish } from './events.js';
import { type Lease, LocalLease } from './lease.js';
import {
  ACQUIRE_FIELDS,
  type AcquireOptions,
  type CloseOptions,
  type CloseResult,
  checkDrainMs,
  checkReference,
  checkToken,
  type HeldLeaseReference,
  type LeaseReference,
  TRY_FIELDS,
  type TryAcquireOptions,
  USING_FIELDS,
  type UsingOptions,
} from './lease-arguments.js';
import { LeaseRegistry } from './lease-registry.js';
import { Routines } from './routines.js';
import type {
  AcquireRequest,
  AcquisitionResult,
  LockHandle,
  LockTransport,
  ReleaseOutcome,
} from './transport.js';

/**
 * The time limit of a call that does not wait. First, silent nodes time out. The last 250 ms are
 * for a readmission, which may help, or gives the reason of the failure.
 */
const READMISSION_MS = NODE_TIMEOUT_MAX_MS + LAST_ANSWERS_MS;

/** The failures that may end by themselves. Others, such as a misconfiguration, need a change. */
const WAITABLE: ReadonlySet<AcquireFailure['reason']> = new Set([
  'held',
  'no-quorum',
  'memory-full',
  'too-slow',
]);

/** A lease, or the reason why there is none. */
export type AcquireResult =
  | {
      readonly ok: true;
      readonly lease: Lease;
      /** Every node's own answer. */
      readonly nodes: readonly NodeAnswer[];
    }
  | AcquireFailure;

/** The methods that every lock service has, on any transport. */
export class LockService implements AsyncDisposable {
  readonly #name: string;
  readonly #maxTtlMs: number;
  readonly #transport: LockTransport;
  readonly #runtime: Runtime;
  readonly #closing = new AbortController();
  readonly #leases: LeaseRegistry;
  readonly #routines: Routines;
  #closed: Promise<CloseResult> | null = null;

  /** @param name for messages */
  protected constructor(
    name: string,
    maxTtlMs: number,
    transport: LockTransport,
    runtime: Runtime,
  ) {
    this.#name = name;
    this.#maxTtlMs = maxTtlMs;
    this.#transport = transport;
    this.#runtime = runtime;
    this.#leases = new LeaseRegistry(maxTtlMs, runtime, this.#closing.signal);
    this.#routines = new Routines(runtime);
  }

  /**
   * Takes the lock of one resource, or of all in a set or none.
   *
   * @throws {LockHeldError} somebody else holds it, and `waitMs` is 0
   * @throws {AcquireTimeoutError} it did not become free within `waitMs`
   * @throws {NoQuorumError} too few nodes voted
   * @throws {LockArgumentError} before anything is sent
   * @throws the signal's reason, if it aborted
   */
  async acquire(resource: string | readonly string[], options: AcquireOptions): Promise<Lease> {
    checkService(this, 'acquire');
    checkFields('the options of acquire', options, ACQUIRE_FIELDS);
    const request = this.#check(resource, options);
    const { resources, waitMs } = request;
    const transport = this.#transport;
    let waiter = waitMs > 0 ? (transport.waitBehindOthers?.(request) ?? null) : null;
    try {
      for (let attempts = 1; ; attempts += 1) {
        const startedMs = this.#runtime.nowMs();
        const answered = await (waiter ? waiter.acquire() : transport.acquire(request));
        const result = this.#settled(answered, request, startedMs);
        if (result.ok) return this.#track(result.handle);
        request.signal.throwIfAborted();
        const leftMs = request.endMs - this.#runtime.nowMs();
        if (waitMs === 0 || leftMs <= 0 || !WAITABLE.has(result.reason)) {
          throw failureError(this.#explained(result, request), resources, waitMs);
        }
        waiter ??= transport.wait(request);
        await waiter.pause(attempts, result, leftMs);
      }
    } finally {
      waiter?.[Symbol.dispose]();
    }
  }

  /**
   * Makes one acquisition. It waits for answers for half of `ttlMs`, at most 2 s. If nodes must be
   * readmitted before they can vote, it takes 2.25 s in all. Contention, unreachable nodes and an
   * abort on the way are results here, not exceptions: `reason`, `hint` and `nodes` explain them.
   *
   * @throws {LockArgumentError} before anything is sent
   * @throws the signal's reason, if it has aborted before the call
   * @throws {LockError} of code `closed`, if the service was closed before the call
   */
  async tryAcquire(
    resource: string | readonly string[],
    options: TryAcquireOptions,
  ): Promise<AcquireResult> {
    checkService(this, 'tryAcquire');
    checkFields('the options of tryAcquire', options, TRY_FIELDS);
    const request = this.#check(resource, options);
    const startedMs = this.#runtime.nowMs();
    const result = this.#settled(await this.#transport.acquire(request), request, startedMs);
    if (!result.ok) return this.#explained(result, request);
    return { ok: true, lease: this.#track(result.handle), nodes: result.answers() };
  }

  /**
   * Runs `routine` under a lease that is extended while the routine runs and the event loop turns:
   * see docs/leases.md. If the routine throws, `using` throws the same error. If the routine
   * succeeds but its lease was over earlier, `using` throws a `LeaseLostError`. Its message names
   * `maxHoldMs` if that limit was reached.
   *
   * @throws the errors of `acquire`
   * @throws {LeaseLostError} even if the routine resolved: another holder may have worked meanwhile
   */
  async using<Result>(
    resource: string | readonly string[],
    options: UsingOptions,
    routine: (lease: Lease) => Promise<Result> | Result,
  ): Promise<Result> {
    checkService(this, 'using');
    checkFields('the options of using', options, USING_FIELDS);
    const { maxHoldMs: limitMs, ...rest } = options;
    const ttlMs = checkTtlMs(rest.ttlMs, this.#maxTtlMs);
    const maxHoldMs = checkMaxHoldMs(limitMs, ttlMs);
    if (typeof routine !== 'function')
      throw new LockArgumentError('routine must be a function, the third argument');
    const lease = (await this.acquire(resource, rest)) as LocalLease;
    // If `close` was called at this moment, it releases the lease: it does not know the routine.
    this.#closing.signal.throwIfAborted();
    return this.#routines.run(lease, { ttlMs, maxHoldMs }, routine);
  }

  /**
   * Lets a lease that any process acquired last at least `ttlMs` from now on, with the same token.
   * A lease that is over is never taken back.
   *
   * @returns milliseconds for which it may be relied on from now on; 0 if the answer came too late
   * @throws {LeaseLostError} no majority holds it for its owner any more
   * @throws {NoQuorumError} too few nodes answered: the lease keeps the end that it had
   * @throws {LockArgumentError} before anything is sent
   */
  async extend(reference: HeldLeaseReference, ttlMs: number): Promise<number> {
    checkService(this, 'extend');
    const { resources, owner } = checkReference(reference);
    const token = checkToken(reference.token);
    checkTtlMs(ttlMs, this.#maxTtlMs);
    const deadlineMs = await this.#transport.extend(resources, owner, ttlMs, token);
    return Math.max(0, deadlineMs - this.#runtime.nowMs());
  }

  /**
   * Gives up a lease that any process acquired.
   *
   * @returns as `release` of a lease
   * @throws {LockArgumentError} before anything is sent
   */
  async release(reference: LeaseReference): Promise<ReleaseOutcome> {
    checkService(this, 'release');
    const { resources, owner } = checkReference(reference);
    const own = this.#leases.of(owner);
    return own ? own.release() : this.#transport.release(resources, owner);
  }

  /**
   * Ends this lock service in an order that lets no two holders overlap:
   *
   * 1. Waits end with an error of code `closed`, and new calls are refused with it. The signals of
   *    all leases abort with it, too. The leases are still held.
   * 2. The routines of `using` go on, and their leases are extended, until the routines end or
   *    `drainMs` is over.
   * 3. All leases are released, also those of `acquire`, whose work it cannot know. Only the leases
   *    of routines that still run are not released: they end with the routine, or by their TTL.
   *
   * Then it waits for the answers of the servers, for some seconds at most. Clients and pools stay
   * open: they belong to the caller. Close them after that. A further call returns the promise of
   * the first. A routine that awaits `close` waits for itself: after `drainMs`, its lease is among
   * the abandoned ones.
   *
   * @throws {LockArgumentError} at once
   */
  close(options: CloseOptions = {}): Promise<CloseResult> {
    checkService(this, 'close');
    const drainMs = checkDrainMs(options);
    this.#closed ??= this.#close(drainMs);
    return this.#closed;
  }

  async #close(drainMs: number): Promise<CloseResult> {
    this.#closing.abort(new LockError('closed', `this ${this.#name} was closed`));
    this.#leases.abortSignals();
    const abandoned = await this.#routines.drain(drainMs);
    await Promise.all([this.#leases.releaseAllBut(abandoned), this.#transport.close()]);
    return { abandoned: [...abandoned.values()] };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #check(resource: string | readonly string[], options: AcquireOptions): AcquireRequest {
    const resources = checkResources(resource);
    this.#transport.checkResources?.(resources);
    const ttlMs = checkTtlMs(options.ttlMs, this.#maxTtlMs);
    const waitMs = checkWaitMs(options.waitMs ?? 0);
    const closing = this.#closing.signal;
    if (options.signal !== undefined && !(options.signal instanceof AbortSignal)) {
      throw new LockArgumentError('signal must be an AbortSignal, such as controller.signal');
    }
    const signal = options.signal ? AbortSignal.any([options.signal, closing]) : closing;
    signal.throwIfAborted();
    const endMs = this.#runtime.nowMs() + (waitMs > 0 ? waitMs : READMISSION_MS);
    return { resources, ttlMs, signal, waitMs, endMs };
  }

  /**
   * The result that the caller may see. If the caller aborted after the last vote, or if the lock's
   * time has passed, the lock is released, and the result is a failure.
   */
  #settled(
    result: AcquisitionResult,
    { resources, ttlMs, signal }: AcquireRequest,
    startedMs: number,
  ): AcquisitionResult {
    const nowMs = this.#runtime.nowMs();
    if (!result.ok) {
      if (result.reason !== 'held') return result;
      const { nodes, retryAfterMs } = result;
      publish('fenced:lock:contended', () => ({ resources, nodes, retryAfterMs }));
      return result;
    }
    const { handle, answers } = result;
    if (signal.aborted || handle.deadlineMs <= nowMs) {
      void handle.release();
      const reason = signal.aborted ? 'aborted' : 'too-slow';
      return { ok: false, reason, nodes: answers(), retryAfterMs: 0 };
    }
    const { token } = handle;
    publish('fenced:lock:acquire', () => ({ resources, token, ttlMs, tookMs: nowMs - startedMs }));
    return result;
  }

  /** The failure, with advice if the caller's time limit or a routine is the cause. */
  #explained(failure: AcquireFailure, { ttlMs, resources }: AcquireRequest): AcquireFailure {
    const hint =
      failure.reason === 'too-slow'
        ? `ttlMs=${ttlMs} is too short for these nodes`
        : failure.reason === 'held' && this.#routines.advice(resources);
    return hint ? { ...failure, hint } : failure;
  }

  /** The lease of this lock, which is released at the latest when the service is closed. */
  #track(handle: LockHandle): LocalLease {
    const lease = new LocalLease(handle, this.#leases);
    this.#leases.add(lease);
    return lease;
  }
}

/**
 * A lock service: `Redlock`, `PostgresLock`, `EtcdLock`, `ZooKeeperLock`, `S3Lock` or `MemoryLock`
 * of this package, or `FencedGateway` of `@fenced/client`.
 *
 * A parameter of this type accepts any of them. A fake needs only the methods that the code under
 * test calls: `Pick<Lock, 'using'>`.
 */
export interface Lock extends Omit<LockService, 'tryAcquire'> {
  /** As `tryAcquire` of `Redlock`, with only the facts that all lock services report. */
  tryAcquire(
    resource: string | readonly string[],
    options: TryAcquireOptions,
  ): Promise<
    | { readonly ok: true; readonly lease: Lease }
    | { readonly ok: false; readonly reason: string; readonly retryAfterMs: number }
  >;
}

/** Requires that a method was called on a lock service, and not after `const { using } = lock`. */
function checkService(service: unknown, method: string): void {
  if (service instanceof LockService) return;
  throw new LockArgumentError(
    `${method} was called without its lock service: write lock.${method}(…), or pass on a function that does`,
  );
}
