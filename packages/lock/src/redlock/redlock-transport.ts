import type { NodeAnswer } from '../core/answers.js';
import type { AcquireFailure } from '../core/failure.js';
import { describeMismatch, mismatchIn } from '../core/mismatch.js';
import type { ResolvedOptions } from '../core/options.js';
import { majorityOf } from '../core/quorum.js';
import { answerLimitMs, LAST_ANSWERS_MS, NODE_TIMEOUT_MAX_MS } from '../core/validity.js';
import { publish } from '../lease/events.js';
import type {
  AcquireRequest,
  AcquisitionResult,
  LockTransport,
  ReleaseOutcome,
  Waiter,
} from '../lease/transport.js';
import { LocalQueue } from '../queue/local-queue.js';
import { QueuedWaiter, type WaiterContext } from '../queue/queued-waiter.js';
import type { WakeUps } from '../queue/wake-ups.js';
import type { RedisNode } from '../redis/node.js';
import { Nodes, Ownership } from '../redis/nodes.js';
import { inTime, nobody, type Runtime, unlessAborted } from '../runtime/runtime.js';
import { acquire } from './acquire.js';
import { HeldLock, handleOf } from './held-lock.js';
import type { Readmissions } from './readmission.js';

/**
 * The Redlock algorithm over Redis nodes, with the wait queue. It readmits nodes that lost their
 * memory: only then may they vote again.
 */
export class RedlockTransport implements LockTransport, WaiterContext {
  readonly nodes: Nodes;
  readonly wakeUps: WakeUps;
  readonly localQueue: LocalQueue<QueuedWaiter>;
  readonly #options: ResolvedOptions;
  readonly #readmissions: Readmissions;

  constructor(
    nodes: readonly RedisNode[],
    wakeUps: WakeUps,
    options: ResolvedOptions,
    readmissions: Readmissions,
    runtime: Runtime,
  ) {
    this.nodes = new Nodes(nodes, options, runtime, () => readmissions.call());
    this.localQueue = new LocalQueue(runtime);
    this.wakeUps = wakeUps;
    this.#options = options;
    this.#readmissions = readmissions;
  }

  acquire(request: AcquireRequest): Promise<AcquisitionResult> {
    const { resources, ttlMs, signal } = request;
    const { nodes } = this;
    return this.withReadmission(request, async (limitMs) => {
      const ownership = new Ownership(resources, nodes.runtime.uniqueId(), false);
      const acquisition = { ownership, ttlMs, limitMs: limitMs(), position: null, signal };
      const result = await acquire(nodes, acquisition);
      return result.ok ? handleOf(nodes, acquisition, result, []) : result;
    });
  }

  wait(request: AcquireRequest): Waiter {
    return new QueuedWaiter(this, request);
  }

  waitBehindOthers(request: AcquireRequest): Waiter | null {
    if (!this.localQueue.hasWaiters(request.resources)) return null;
    const waiter = new QueuedWaiter(this, request);
    waiter.enter();
    return waiter;
  }

  extend(
    resources: readonly string[],
    owner: string,
    ttlMs: number,
    token: bigint,
  ): Promise<number> {
    return this.#heldElsewhere(resources, owner, token).extend(ttlMs);
  }

  release(resources: readonly string[], owner: string): Promise<ReleaseOutcome> {
    return this.#heldElsewhere(resources, owner, 0n).release();
  }

  async close(): Promise<void> {
    this.#readmissions.close();
    await this.localQueue.releaseHandedOver();
    const { nodes } = this;
    // Lets the waiters that the closing signal has aborted give up their queue positions first.
    await new Promise<void>((resolve) => nodes.runtime.soon(resolve));
    await nodes.givenUp(NODE_TIMEOUT_MAX_MS);
    this.wakeUps.close();
  }

  async withReadmission(
    request: AcquireRequest,
    acquireOnce: (limitMs: () => number) => Promise<AcquisitionResult>,
  ): Promise<AcquisitionResult> {
    const { runtime } = this.nodes;
    const untilMs = Math.max(request.endMs, runtime.nowMs() + LAST_ANSWERS_MS);
    const limitMs = (): number => answerLimitMs(request.ttlMs, untilMs - runtime.nowMs());
    const first = explained(await acquireOnce(limitMs), request);
    if (first.ok || first.reason !== 'no-quorum') return first;
    if (!first.nodes.some(({ answer }) => answer === 'not-voting')) return first;
    const obstacle = await this.#readmit(first, request, untilMs);
    return obstacle ?? explained(await acquireOnce(limitMs), request);
  }

  /** @returns the reason why the nodes cannot vote yet, or null if a majority votes */
  async #readmit(
    failure: AcquireFailure,
    { signal }: AcquireRequest,
    untilMs: number,
  ): Promise<AcquireFailure | null> {
    const { all, runtime } = this.nodes;
    const leftMs = Math.max(1, untilMs - runtime.nowMs());
    const answer = await unlessAborted(
      inTime(runtime, nobody, this.#readmissions.run(), leftMs),
      signal,
    );
    if (answer === null) {
      return { ok: false, reason: 'aborted', nodes: this.nodes.answers([]), retryAfterMs: 0 };
    }
    const isLate = 'answer' in answer;
    const round = isLate ? this.#readmissions.last : answer;
    const majority = majorityOf(all.length);
    if (round === null || (isLate && round.voting.length >= majority)) {
      return { ...failure, hint: UNDER_WAY };
    }
    const nodes = failure.nodes.map((node, at) => round.mismatches[at] ?? node);
    const mismatch = mismatchIn(nodes);
    if (mismatch) {
      return { ok: false, reason: mismatch, nodes, hint: describeMismatch(nodes), retryAfterMs: 0 };
    }
    if (round.voting.length >= majority) return null;
    return { ...failure, hint: round.reason, retryAfterMs: round.againMs ?? 0 };
  }

  /**
   * A lease that another process may have acquired: any node may hold it, and its end is unknown.
   */
  #heldElsewhere(resources: readonly string[], owner: string, token: bigint): HeldLock {
    const ownership = new Ownership(resources, owner, true, this.nodes.preferred.all);
    const ttlMs = this.#options.maxTtlMs;
    const unknown = { deadlineMs: 0, backfill: null, successors: [] };
    return new HeldLock(this.nodes, { ownership, ttlMs, token, ...unknown });
  }
}

const UNDER_WAY =
  'nodes without a vote are being readmitted, which takes longer than the call may: try again';

const NO_VOTE: ReadonlySet<NodeAnswer['answer']> = new Set([
  'not-voting',
  'not-master',
  'config-mismatch',
  'wrong-version',
  'ttl-too-long',
  'memory-full',
  'token-exhausted',
  'error',
]);

/** Publishes the nodes that did not vote. Adds a hint if other clients set up nodes differently. */
function explained(result: AcquisitionResult, { resources }: AcquireRequest): AcquisitionResult {
  if (result.ok) return result;
  for (const node of result.nodes) {
    if (NO_VOTE.has(node.answer)) publish('fenced:lock:node-refused', () => ({ resources, node }));
  }
  if (!mismatchIn(result.nodes)) return result;
  return { ...result, hint: describeMismatch(result.nodes) };
}
