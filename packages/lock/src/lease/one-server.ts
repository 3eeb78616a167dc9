import { type NodeAnswer, nodeAnswer } from '../core/answers.js';
import type { AcquireFailure } from '../core/failure.js';
import { answerLimitMs, LAST_ANSWERS_MS, NODE_TIMEOUT_MAX_MS } from '../core/validity.js';
import { inTime, nobody, type Runtime, unlessAborted } from '../runtime/runtime.js';
import type { AcquireRequest, AcquisitionResult, LockHandle, LockTransport } from './transport.js';

/** For an acquisition, and for the release of what it took. */
const CLOSE_LIMIT_MS = 2 * NODE_TIMEOUT_MAX_MS;

/** The work of a lock service on its only server. It may go on after the caller has its answer. */
export class OpenWork {
  readonly #runtime: Runtime;
  readonly #open = new Set<Promise<unknown>>();

  constructor(runtime: Runtime) {
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
   * Makes one acquisition. An abort ends it for its caller. It goes on until it is known what it
   * has taken, and that is released.
   *
   * @param name the server's, among the `nodes` of results and errors
   * @param acquire never rejects. If it fails, it releases what it may have taken.
   */
  async acquire(
    name: string,
    { ttlMs, endMs, signal }: AcquireRequest,
    acquire: (limitMs: number) => Promise<AcquisitionResult>,
  ): Promise<AcquisitionResult> {
    const leftMs = Math.max(endMs - this.#runtime.nowMs(), LAST_ANSWERS_MS);
    const acquired = this.track(acquire(answerLimitMs(ttlMs, leftMs)));
    const result = await unlessAborted(acquired, signal);
    if (result) return result;
    void this.track(acquired.then((late) => (late.ok ? late.handle.release() : null)));
    return failure(name, 'aborted', { answer: 'pending' });
  }

  /** Resolves when nothing is open, after 4 s at the latest. */
  async close(): Promise<void> {
    // The waiters that were just aborted leave their queues first.
    await new Promise<void>((resolve) => this.#runtime.soon(resolve));
    const all = async (): Promise<void> => {
      while (this.#open.size > 0) await Promise.allSettled(this.#open);
    };
    await inTime(this.#runtime, nobody, all(), CLOSE_LIMIT_MS);
  }
}

/**
 * The handle of a lock that the only server of a lock service has granted.
 *
 * @param name the server's, among the `nodes` of results and errors
 * @param lock its `extend` and `release` replace those of the transport
 */
export function granted(
  name: string,
  transport: LockTransport,
  lock: Pick<LockHandle, 'resources' | 'token' | 'deadlineMs' | 'owner'> &
    Partial<Pick<LockHandle, 'extend' | 'release'>>,
): AcquisitionResult {
  const { resources, owner } = lock;
  const handle = {
    extend: (ttlMs: number) => transport.extend(resources, owner, ttlMs),
    release: () => transport.release(resources, owner),
    ...lock,
  };
  return { ok: true, handle, answers: () => [nodeAnswer(name, { answer: 'granted' })] };
}

/** The failure of such a service, with the answer of its server. */
export function failure(
  name: string,
  reason: AcquireFailure['reason'],
  answer: Omit<NodeAnswer, 'name'>,
  retryAfterMs = 0,
): AcquireFailure {
  return { ok: false, reason, nodes: [nodeAnswer(name, answer)], retryAfterMs };
}
