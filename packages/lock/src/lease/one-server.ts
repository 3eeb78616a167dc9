import { type NodeAnswer, nodeAnswer } from '../core/answers.js';
import { type AcquireFailure, failureError } from '../core/failure.js';
import { answerLimitMs, LAST_ANSWERS_MS, NODE_TIMEOUT_MAX_MS } from '../core/validity.js';
import { inTime, nobody, type Runtime, unlessAborted } from '../runtime/runtime.js';
import type { AcquireRequest, AcquisitionResult, LockHandle, LockTransport } from './transport.js';

/** The longest time of `close`: an acquisition may end, and then its lock must be released. */
const CLOSE_LIMIT_MS = 2 * NODE_TIMEOUT_MAX_MS;

/** The reason of a failure, with advice for an operator. */
export type Explanation = Pick<AcquireFailure, 'reason' | 'hint'>;

/**
 * The only server of a lock service, or a cluster that answers as one. Work on it may go on after
 * the caller has its answer.
 */
export class OnlyServer {
  readonly #name: string;
  readonly #explain: (error: Error) => Explanation;
  readonly #runtime: Runtime;
  readonly #open = new Set<Promise<unknown>>();

  /**
   * @param name the server's, among the `nodes` of results and errors
   * @param explain says what an error of the server or its client means
   */
  constructor(name: string, explain: (error: Error) => Explanation, runtime: Runtime) {
    this.#name = name;
    this.#explain = explain;
    this.#runtime = runtime;
  }

  /** Lets `close` wait for this. */
  track<Result>(work: Promise<Result>): Promise<Result> {
    this.#open.add(work);
    const forget = (): boolean => this.#open.delete(work);
    void work.then(forget, forget);
    return work;
  }

  /**
   * Makes one acquisition. If the caller aborts, this returns at once, but the acquisition goes on
   * in the background. If it then gets the lock, the lock is released. Never rejects.
   *
   * @param acquire makes the acquisition. If it fails, it releases a lock that it may have taken
   */
  async acquire(
    { ttlMs, endMs, signal }: AcquireRequest,
    acquire: (limitMs: number) => Promise<AcquisitionResult>,
  ): Promise<AcquisitionResult> {
    const leftMs = Math.max(endMs - this.#runtime.nowMs(), LAST_ANSWERS_MS);
    const acquired = this.track(
      acquire(answerLimitMs(ttlMs, leftMs)).catch((error) => this.failed(error)),
    );
    const result = await unlessAborted(acquired, signal);
    if (result) return result;
    void this.track(acquired.then((late) => (late.ok ? late.handle.release() : null)));
    return this.failure('aborted', { answer: 'pending' });
  }

  /**
   * Extends a lease. If its owner does not hold all resources any more, releases the others.
   *
   * @param extend returns null if the owner does not hold all resources
   * @throws {LockError} the server did not extend it
   */
  async extended<Result>(
    transport: LockTransport,
    { resources, owner }: Pick<LockHandle, 'resources' | 'owner'>,
    extend: () => Promise<Result | null>,
  ): Promise<Result> {
    const extended = await extend().catch((error) => {
      throw failureError(this.failed(error), resources, 0);
    });
    if (extended !== null) return extended;
    void transport.release(resources, owner);
    throw failureError(this.failure('lost', { answer: 'not-held' }), resources, 0);
  }

  /** Resolves when no work is under way, after 4 s at the latest. */
  async close(): Promise<void> {
    // The waiters that were just aborted leave their queues first.
    await new Promise<void>((resolve) => this.#runtime.soon(resolve));
    const all = async (): Promise<void> => {
      while (this.#open.size > 0) await Promise.allSettled(this.#open);
    };
    await inTime(this.#runtime, nobody, all(), CLOSE_LIMIT_MS);
  }

  /**
   * The handle of a lock that the server has granted.
   *
   * @param lock if it has `extend` or `release`, they replace those of the transport
   */
  granted(
    transport: LockTransport,
    lock: Pick<LockHandle, 'resources' | 'token' | 'deadlineMs' | 'owner'> &
      Partial<Pick<LockHandle, 'extend' | 'release'>>,
  ): AcquisitionResult {
    const { resources, owner, token } = lock;
    const handle = {
      extend: (ttlMs: number) => transport.extend(resources, owner, ttlMs, token),
      release: () => transport.release(resources, owner),
      ...lock,
    };
    return { ok: true, handle, answers: () => [nodeAnswer(this.#name, { answer: 'granted' })] };
  }

  held(remainingMs: number): AcquireFailure {
    return this.failure('held', { answer: 'held', remainingMs }, remainingMs);
  }

  failed(error: Error): AcquireFailure {
    const { reason, ...advice } = this.#explain(error);
    return { ...this.failure(reason, { answer: 'error', error }), ...advice };
  }

  failure(
    reason: AcquireFailure['reason'],
    answer: Omit<NodeAnswer, 'name'>,
    retryAfterMs = 0,
  ): AcquireFailure {
    return { ok: false, reason, nodes: [nodeAnswer(this.#name, answer)], retryAfterMs };
  }
}
