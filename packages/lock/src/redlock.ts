import { createHash } from 'node:crypto';
import { type AdmissionOutcome, Admissions } from './admission.js';
import { Attempt, type FailedAttempt } from './attempt.js';
import type { NodeAnswer } from './core/answers.js';
import { backoffMs } from './core/backoff.js';
import { InvalidArgumentError, type LeaseLostError, LockError } from './core/errors.js';
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
import type { NodeStatus } from './core/status.js';
import { nodeTimeoutMs } from './core/validity.js';
import { tell } from './events.js';
import { extendOnAll, type ReleaseOutcome, releaseOnAll } from './holding.js';
import { keepAlive } from './keep-alive.js';
import { Lease } from './lease.js';
import { type NodeConfig, nameNodes } from './names.js';
import { type Holding, RedisNode } from './redis/node.js';
import { type Runtime, sleep, systemRuntime, unlessAborted } from './runtime.js';
import { statusOf } from './status.js';

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

export interface AdmitOptions {
  /** The name of one node. Without it, all are meant. */
  readonly node?: string;
  /** @default false */
  readonly force?: boolean;
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
  readonly #options: ResolvedOptions;
  readonly #runtime: Runtime;
  readonly #closing = new AbortController();
  readonly #held = new Set<Lease>();
  readonly #admissions: Admissions;

  /** @throws {InvalidArgumentError} where a node has no name, a name is used twice or an option is out of range */
  constructor(config: RedlockConfig, runtime: Runtime = systemRuntime) {
    this.#options = resolveOptions(config);
    this.#runtime = runtime;
    const named = nameNodes(config.nodes);
    const names = named.map(({ name }) => name);
    this.#nodes = named.map((node) => {
      // With its own name, so that clients who swap the names of two nodes are refused, too.
      const members = createHash('sha1')
        .update(JSON.stringify([names, node.name]))
        .digest('hex');
      const service = { ...this.#options, members, nodeCount: named.length };
      return new RedisNode(node, service, (callback) => runtime.soon(callback));
    });
    this.#admissions = new Admissions(this.#nodes, this.#options, runtime);
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
   * Makes one attempt. Contention, unreachable nodes and an abort on the way are results here, not exceptions:
   * `reason` and `hint` tell why there is no lease, `nodes` what each node said.
   *
   * @throws {InvalidArgumentError} before anything is sent
   * @throws the signal's reason, or an error of code `closed`, where that was so before
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
    const extensionsMax = checkCount('extensionsMax', options?.extensionsMax ?? 10);
    if (typeof routine !== 'function') throw new InvalidArgumentError('routine must be a function');
    await using lease = await this.acquire(resource, options);
    using _ = keepAlive(lease, options.ttlMs, extensionsMax, this.#runtime);
    const result = await routine(lease);
    lease.ensure();
    return result;
  }

  /**
   * What every node is and whether its vote counts, as `fenced status` shows it. Changes nothing and never rejects; a node
   * that has not answered after two seconds counts as unreachable.
   */
  async status(): Promise<readonly NodeStatus[]> {
    return statusOf(this.#nodes, this.#runtime);
  }

  /**
   * Lets nodes vote that may do so now. Clients do that by themselves whenever they meet such a node; with `force`, an operator
   * decides what no node can know:
   *
   * - Nodes that do not answer are gone for good: the others need not wait for them where no majority votes.
   * - Nobody holds a lease that a node has forgotten: nothing is waited for.
   * - With `node`, that one node's data has gone back in time while its process went on: it begins anew, as if restarted.
   *
   * Where that is wrong, two may hold a lock at once; where a node that had been given up comes back with its vote, tokens rest
   * on the clock.
   *
   * @returns whether a majority may vote now, and if not, why
   * @throws {InvalidArgumentError} where no node has that name
   */
  async admit(options: AdmitOptions = {}): Promise<AdmissionOutcome> {
    const { node = null, force = false } = options;
    const index = node === null ? null : this.#nodes.findIndex(({ name }) => name === node);
    if (index === -1) throw new InvalidArgumentError(`no node has that name node=${String(node)}`);
    return force ? this.#admissions.force({ index }) : this.#admissions.admit();
  }

  /** Releases what is held and ends waits with an error of code `closed`. Leaves the clients to their owner. */
  async close(): Promise<void> {
    this.#closing.abort(new LockError('closed', 'this Redlock was closed'));
    this.#admissions.close();
    await Promise.all([...this.#held].map((lease) => lease.release()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #check(resource: string | readonly string[], options: TryAcquireOptions): Request {
    const resources = checkResources(resource);
    const ttlMs = checkTtlMs(options?.ttlMs, this.#options.maxTtlMs);
    const closing = this.#closing.signal;
    if (options.signal !== undefined && !(options.signal instanceof AbortSignal)) {
      throw new InvalidArgumentError('signal must be an AbortSignal');
    }
    const signal = options.signal ? AbortSignal.any([options.signal, closing]) : closing;
    signal.throwIfAborted();
    return { resources, ttlMs, signal };
  }

  async #attempt(request: Request): Promise<AcquireAttempt> {
    const first = await this.#attemptOnce(request);
    if (first.ok || first.reason !== 'no-quorum') return first;
    if (!first.nodes.some((node) => node.answer === 'not-admitted')) return first;
    const admission = await unlessAborted(this.#admissions.admit(), request.signal);
    if (admission === null) return aborted(this.#nodes);
    if (!admission.ok) {
      return { ...first, hint: admission.reason, retryAfterMs: admission.retryAfterMs };
    }
    return this.#attemptOnce(request);
  }

  async #attemptOnce({ resources, ttlMs, signal }: Request): Promise<AcquireAttempt> {
    const holding = { resources, owner: this.#runtime.uniqueId() };
    const attempt = new Attempt(this.#nodes, holding, ttlMs, this.#runtime, () =>
      this.#admissions.call(),
    );
    const startedMs = this.#runtime.nowMs();
    const outcome = await attempt.run(signal);
    if (!outcome.ok) return tellLost(resources, outcome);
    const { token, deadlineMs, nodes } = outcome;
    const lease = this.#lease(holding, ttlMs, token, deadlineMs);
    if (!signal.aborted && lease.remainingMs() > 0) {
      const tookMs = this.#runtime.nowMs() - startedMs;
      tell('fenced:lock:acquire', () => ({ resources, token, ttlMs, tookMs }));
      return { ok: true, lease };
    }
    // Aborted after the last vote, or stopped since: whoever waited must not see this lease.
    void lease.release();
    if (signal.aborted) return aborted(this.#nodes);
    return tellLost(resources, { ok: false, reason: 'too-slow', retryAfterMs: 0, nodes });
  }

  #lease(holding: Holding, ttlMs: number, token: bigint, deadlineMs: number): Lease {
    const { resources } = holding;
    const release = async (): Promise<ReleaseOutcome> => {
      const limitMs = nodeTimeoutMs(ttlMs);
      const outcome = await releaseOnAll(this.#nodes, holding, limitMs, this.#runtime);
      tell('fenced:lock:released', () => ({ resources, token, outcome }));
      return outcome;
    };
    const extend = async (newTtlMs: number): Promise<number> => {
      checkTtlMs(newTtlMs, this.#options.maxTtlMs);
      const outcome = await extendOnAll(this.#nodes, holding, newTtlMs, this.#runtime);
      if (outcome.ok) {
        const remainingMs = outcome.deadlineMs - this.#runtime.nowMs();
        tell('fenced:lock:extended', () => ({ resources, token, remainingMs }));
        return outcome.deadlineMs;
      }
      // What a minority may still hold would only be in the way of the next holder.
      if (outcome.reason === 'lost') void release();
      throw failureError(outcome, holding.resources, 0);
    };
    const lost = (reason: LeaseLostError): void =>
      tell('fenced:lock:lost', () => ({ resources, token, reason }));
    const lease = new Lease(resources, token, deadlineMs, { extend, release, lost }, this.#runtime);
    const { signal } = lease;
    if (signal.aborted) return lease;
    this.#held.add(lease);
    signal.addEventListener('abort', () => this.#held.delete(lease), { once: true });
    return lease;
  }
}

function tellLost(resources: readonly string[], attempt: FailedAttempt): FailedAttempt {
  const { reason, nodes, retryAfterMs } = attempt;
  if (reason === 'held') {
    tell('fenced:lock:contended', () => ({ resources, nodes, retryAfterMs }));
  }
  for (const node of nodes) {
    if (voteless.has(node.answer)) tell('fenced:lock:node-refused', () => ({ resources, node }));
  }
  return attempt;
}

const voteless: ReadonlySet<NodeAnswer['answer']> = new Set([
  'not-admitted',
  'wrong-members',
  'ttl-too-long',
  'token-exhausted',
  'error',
]);

function aborted(nodes: readonly RedisNode[]): FailedAttempt {
  const pending = nodes.map(({ name }) => ({ name, answer: 'pending' as const }));
  return { ok: false, reason: 'aborted', nodes: pending, retryAfterMs: 0 };
}

interface Request {
  readonly resources: readonly string[];
  readonly ttlMs: number;
  readonly signal: AbortSignal;
}
