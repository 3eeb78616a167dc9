import { createHash } from 'node:crypto';
import { type AdmissionOutcome, admitFirstStart } from './admission.js';
import { Attempt, type FailedAttempt } from './attempt.js';
import { backoffMs } from './core/backoff.js';
import { LockError } from './core/errors.js';
import { failureError } from './core/failure.js';
import {
  checkCount,
  checkResources,
  checkTtlMs,
  checkWaitMs,
  type RedlockOptions,
  type ResolvedOptions,
  resolveOptions,
} from './core/options.js';
import { extendOnAll, releaseOnAll } from './holding.js';
import { keepAlive } from './keep-alive.js';
import { Lease } from './lease.js';
import { type NodeConfig, nameNodes } from './names.js';
import { type Holding, RedisNode } from './redis/node.js';
import { type Runtime, sleep, systemRuntime } from './runtime.js';

export interface RedlockConfig extends RedlockOptions {
  /** Independent Redis masters, 1 to 15; 3 or 5 as a rule. All programs must name them alike. */
  readonly nodes: readonly NodeConfig[];
}

export interface TryAcquireOptions {
  /** Milliseconds for which the lock is taken, 10 to `maxTtlMs`. */
  readonly ttlMs: number;
  /** Gives the attempt up; what it may have taken is released. */
  readonly signal?: AbortSignal;
}

export interface AcquireOptions extends TryAcquireOptions {
  /**
   * Milliseconds to go on trying while somebody else holds the lock or too few nodes answer.
   * @default 0
   */
  readonly waitMs?: number;
}

export interface UsingOptions extends AcquireOptions {
  /**
   * How often the lease may be extended while the routine runs. A limit keeps a routine that hangs from holding the
   * lock for ever.
   * @default 10
   */
  readonly extensionsMax?: number;
}

/** A lease, or why there is none. */
export type AcquireAttempt = { readonly ok: true; readonly lease: Lease } | FailedAttempt;

/**
 * Leases with fencing tokens over independent Redis nodes.
 * The clients stay their owner's: they are neither configured nor closed here.
 */
export class Redlock implements AsyncDisposable {
  readonly #nodes: readonly RedisNode[];
  readonly #members: string;
  readonly #options: ResolvedOptions;
  readonly #runtime: Runtime;
  readonly #closing = new AbortController();
  readonly #held = new Set<Lease>();
  #admission: Promise<AdmissionOutcome> | null = null;

  /** @throws {InvalidArgumentError} where a node has no name, a name is used twice or an option is out of range */
  constructor(config: RedlockConfig, runtime: Runtime = systemRuntime) {
    this.#options = resolveOptions(config);
    this.#runtime = runtime;
    const named = nameNodes(config.nodes);
    const names = JSON.stringify(named.map(({ name }) => name));
    this.#members = createHash('sha1').update(names).digest('hex');
    const options = { ...this.#options, members: this.#members };
    this.#nodes = named.map(({ name, client }) => new RedisNode(name, client, options));
  }

  /**
   * Takes the lock of one resource, or of all in a set or none.
   *
   * @throws {LockHeldError} somebody else holds it, and `waitMs` is 0
   * @throws {AcquireTimeoutError} it did not become free within `waitMs`
   * @throws {NoQuorumError} too few nodes voted
   * @throws {InvalidArgumentError} before anything is sent
   * @throws the signal's reason, where it aborted
   */
  async acquire(resource: string | readonly string[], options: AcquireOptions): Promise<Lease> {
    const waitMs = checkWaitMs(options?.waitMs ?? 0);
    const request = this.#check(resource, options);
    const endMs = this.#runtime.nowMs() + waitMs;
    for (let attempts = 1; ; attempts += 1) {
      const attempt = await this.#attempt(request);
      if (attempt.ok) return attempt.lease;
      request.signal.throwIfAborted();
      const leftMs = endMs - this.#runtime.nowMs();
      const delayMs = backoffMs(attempts, attempt.retryAfterMs, this.#runtime.random());
      // Waiting changes nothing about a misconfiguration.
      const waitable = ['held', 'no-quorum', 'too-slow'].includes(attempt.reason);
      if (leftMs <= 0 || !waitable) throw failureError(attempt, request.resources, waitMs);
      await sleep(this.#runtime, Math.min(delayMs, leftMs), request.signal);
    }
  }

  /**
   * Makes one attempt. Contention and unreachable nodes are results here, not exceptions.
   *
   * @throws {InvalidArgumentError} before anything is sent
   */
  async tryAcquire(
    resource: string | readonly string[],
    options: TryAcquireOptions,
  ): Promise<AcquireAttempt> {
    return this.#attempt(this.#check(resource, options));
  }

  /**
   * Runs `routine` under a lease that is extended as long as the routine runs, at most `extensionsMax` times.
   * The routine's own error comes first; then, where the lease was lost before the routine ended, a `LeaseLostError`.
   *
   * @throws whatever `acquire` throws
   * @throws {LeaseLostError} even where the routine resolved: what it did may have been done by two at once
   */
  async using<Result>(
    resource: string | readonly string[],
    options: UsingOptions,
    routine: (lease: Lease) => Promise<Result> | Result,
  ): Promise<Result> {
    const extensionsMax = checkCount('extensionsMax', options.extensionsMax ?? 10);
    await using lease = await this.acquire(resource, options);
    using _ = keepAlive(lease, options.ttlMs, extensionsMax, this.#runtime);
    const result = await routine(lease);
    lease.ensure();
    return result;
  }

  /** Releases what is held and ends waits with an error of code `closed`. Leaves the clients to their owner. */
  async close(): Promise<void> {
    this.#closing.abort(new LockError('closed', 'this Redlock was closed'));
    await Promise.all([...this.#held].map((lease) => lease.release()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #check(resource: string | readonly string[], options: TryAcquireOptions): Request {
    const resources = checkResources(resource);
    const ttlMs = checkTtlMs(options?.ttlMs, this.#options.maxTtlMs);
    const closing = this.#closing.signal;
    const signal = options.signal ? AbortSignal.any([options.signal, closing]) : closing;
    signal.throwIfAborted();
    return { resources, ttlMs, signal };
  }

  async #attempt(request: Request): Promise<AcquireAttempt> {
    const first = await this.#attemptOnce(request);
    if (first.ok || first.reason !== 'no-quorum') return first;
    if (!first.nodes.some((node) => node.answer === 'not-admitted')) return first;
    const admission = await this.#admitFirstStart();
    if (!admission.ok) return { ...first, hint: admission.reason };
    return this.#attemptOnce(request);
  }

  async #attemptOnce({ resources, ttlMs, signal }: Request): Promise<AcquireAttempt> {
    const holding = { resources, owner: this.#runtime.uniqueId() };
    const attempt = new Attempt(this.#nodes, holding, ttlMs, this.#runtime);
    const outcome = await attempt.run(signal);
    if (!outcome.ok) return outcome;
    return { ok: true, lease: this.#lease(holding, ttlMs, outcome.token, outcome.deadlineMs) };
  }

  #lease(holding: Holding, ttlMs: number, token: bigint, deadlineMs: number): Lease {
    const release = () => releaseOnAll(this.#nodes, holding, ttlMs, this.#runtime);
    const extend = async (newTtlMs: number): Promise<number> => {
      checkTtlMs(newTtlMs, this.#options.maxTtlMs);
      const outcome = await extendOnAll(this.#nodes, holding, newTtlMs, this.#runtime);
      if (outcome.ok) return outcome.deadlineMs;
      // What a minority may still hold would only be in the way of the next holder.
      if (outcome.reason === 'lost') void release();
      throw failureError(outcome, holding.resources, 0);
    };
    const lease = new Lease(
      holding.resources,
      token,
      deadlineMs,
      { extend, release },
      this.#runtime,
    );
    this.#held.add(lease);
    lease.signal.addEventListener('abort', () => this.#held.delete(lease), { once: true });
    return lease;
  }

  /** At most one at a time, however many acquire. */
  #admitFirstStart(): Promise<AdmissionOutcome> {
    const { firstToken } = this.#options;
    const seed = firstToken
      ? firstToken - 1n
      : BigInt(Math.floor(this.#runtime.wallClockMs() * 1000));
    this.#admission ??= admitFirstStart(this.#nodes, this.#members, seed, this.#runtime).finally(
      () => {
        this.#admission = null;
      },
    );
    return this.#admission;
  }
}

interface Request {
  readonly resources: readonly string[];
  readonly ttlMs: number;
  readonly signal: AbortSignal;
}
