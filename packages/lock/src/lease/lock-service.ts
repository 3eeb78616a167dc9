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
import { keepAlive } from './keep-alive.js';
import { type Lease, LocalLease } from './lease.js';
import { LeaseRegistry } from './lease-registry.js';
import type {
  AcquireRequest,
  AcquisitionResult,
  LockHandle,
  LockTransport,
  ReleaseOutcome,
} from './transport.js';

export interface TryAcquireOptions {
  /** Milliseconds for which the lock is taken, 10 to `maxTtlMs`. */
  readonly ttlMs: number;
  /** An abort gives up, and releases everything that may have been taken. */
  readonly signal?: AbortSignal;
}

export interface AcquireOptions extends TryAcquireOptions {
  /**
   * Milliseconds to go on trying while somebody else holds the lock or too few nodes answer. The
   * call settles within `waitMs` plus 250 ms, which are for the answers to its last acquisition. A
   * holder in this process may hand its lock over to a waiter. Up to a tenth of the waiter's
   * `ttlMs` has then passed already.
   *
   * 0: one acquisition, as by `tryAcquire`.
   * @default 0
   */
  readonly waitMs?: number;
}

export interface UsingOptions extends AcquireOptions {
  /**
   * Milliseconds for which the lease may be held in all, at least `ttlMs`. It ends then even if the
   * routine still runs, so a routine that hangs does not hold the lock for ever. Without it, the
   * lease is extended for as long as the routine runs.
   */
  readonly maxHoldMs?: number;
}

/** A reference to a lease that any process acquired, by resource and owner. */
export interface LeaseReference {
  readonly resource: string | readonly string[];
  /** The lease's `owner`. */
  readonly owner: string;
}

/** A reference to a lease that shall be extended. */
export interface HeldLeaseReference extends LeaseReference {
  /** The lease's `token`. By it, Redis nodes tell the lease from a later one. */
  readonly token: bigint;
}

/**
 * The time limit of a call that does not wait. First, silent nodes time out. The last 250 ms are
 * for a readmission, which may help, or gives the reason of the failure.
 */
const READMISSION_MS = NODE_TIMEOUT_MAX_MS + LAST_ANSWERS_MS;

const TRY_FIELDS = ['ttlMs', 'signal'];
const ACQUIRE_FIELDS = [...TRY_FIELDS, 'waitMs'];
const USING_FIELDS = [...ACQUIRE_FIELDS, 'maxHoldMs'];

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
    this.#leases = new LeaseRegistry(maxTtlMs, runtime);
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
          throw failureError(explained(result, request), resources, waitMs);
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
    checkFields('the options of tryAcquire', options, TRY_FIELDS);
    const request = this.#check(resource, options);
    const startedMs = this.#runtime.nowMs();
    const result = this.#settled(await this.#transport.acquire(request), request, startedMs);
    if (!result.ok) return explained(result, request);
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
    checkFields('the options of using', options, USING_FIELDS);
    const { maxHoldMs: limitMs, ...rest } = options;
    const ttlMs = checkTtlMs(rest.ttlMs, this.#maxTtlMs);
    const maxHoldMs = checkMaxHoldMs(limitMs, ttlMs);
    if (typeof routine !== 'function')
      throw new LockArgumentError('routine must be a function, the third argument');
    await using lease = (await this.acquire(resource, rest)) as LocalLease;
    using _ = keepAlive(lease, ttlMs, maxHoldMs, this.#runtime);
    const result = await routine(lease);
    lease.ensure();
    return result;
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
    const { resources, owner } = checkReference(reference);
    const own = this.#leases.of(owner);
    return own ? own.release() : this.#transport.release(resources, owner);
  }

  /**
   * Releases all leases, and ends waits with an error of code `closed`. Resolves when the servers
   * have answered, or after some seconds. Clients and pools stay open: they belong to the
   * caller. Close them after that.
   */
  async close(): Promise<void> {
    this.#closing.abort(new LockError('closed', `this ${this.#name} was closed`));
    await Promise.all([this.#leases.releaseAll(), this.#transport.close()]);
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

/** The failure, with advice if the caller's time limit is the cause. */
function explained(failure: AcquireFailure, { ttlMs }: AcquireRequest): AcquireFailure {
  if (failure.reason !== 'too-slow') return failure;
  return { ...failure, hint: `ttlMs=${ttlMs} is too short for these nodes` };
}

function checkReference(reference: LeaseReference) {
  checkFields('a lease of another process', reference, ['resource', 'owner', 'token']);
  const { resource, owner } = reference;
  if (typeof owner !== 'string' || owner === '' || !owner.isWellFormed()) {
    throw new LockArgumentError(`owner must be the owner of a lease owner=${String(owner)}`);
  }
  return { resources: checkResources(resource), owner };
}

function checkToken(token: bigint): bigint {
  if (typeof token === 'bigint' && token > 0n) return token;
  const given = typeof token === 'bigint' ? `${token}` : JSON.stringify(token);
  throw new LockArgumentError(`token must be the token of a lease, a bigint token=${given}`);
}
