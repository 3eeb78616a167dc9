import type { Given } from '../core/answers.js';
import type { AcquireFailure } from '../core/failure.js';
import { mismatchIn } from '../core/mismatch.js';
import { consistentQuorum, majorityOf } from '../core/quorum.js';
import { callsForAdmission } from '../core/tally.js';
import { validityMs } from '../core/validity.js';
import type { ReleaseOutcome } from '../lease/transport.js';
import type { Holding, Nodes, ReleaseOptions } from '../redis/nodes.js';
import type { ExtendReply, ReleaseReply } from '../redis/replies.js';
import type { Runtime } from '../runtime/runtime.js';

/**
 * How an extension ended. `lost`: no majority holds the lease any more. `no-quorum`: too few nodes answered to tell.
 * `deadlineMs` is on the runtime's monotonic clock.
 */
export type ExtendOutcome = { readonly ok: true; readonly deadlineMs: number } | AcquireFailure;

/** Hears what an extension shows beside its outcome, also of nodes that answer after that. */
export interface ExtendListener {
  /** A node has no vote, or one that does not count. */
  readonly callForAdmission: () => void;
  /** A node votes, but does not hold the lease, and nobody else holds the locks there. */
  readonly free: (index: number, given: Given) => void;
}

/** Asks all nodes to give the lease `ttlMs` from now on; settles as soon as they have decided. Never rejects. */
export function extendOnAll(
  nodes: Nodes,
  holding: Holding,
  ttlMs: number,
  runtime: Runtime,
  listener: ExtendListener | null = null,
): Promise<ExtendOutcome> {
  const startedMs = runtime.nowMs();
  const count = nodes.all.length;
  const replies: (ExtendReply | { readonly answer: 'pending' })[] = nodes.all.map(() => ({
    answer: 'pending',
  }));
  const fail = (reason: AcquireFailure['reason']): ExtendOutcome => ({
    ok: false,
    reason,
    nodes: nodes.answers(replies),
    retryAfterMs: 0,
  });
  const decide = (): ExtendOutcome | null => {
    const extended = replies.flatMap((reply, index) =>
      reply.answer === 'extended' ? [{ index, ...reply }] : [],
    );
    // An old master, or a node before it lost its memory, may extend what its successor has forgotten.
    if (consistentQuorum(extended, majorityOf(count))) {
      const nowMs = runtime.nowMs();
      return { ok: true, deadlineMs: nowMs + validityMs(ttlMs, nowMs - startedMs) };
    }
    const has = (answer: string): number =>
      replies.filter((reply) => reply.answer === answer).length;
    if (has('not-held') > count - majorityOf(count)) return fail('lost');
    const mismatch = mismatchIn(replies);
    if (mismatch) return fail(mismatch);
    if (has('pending') > 0) return null;
    return fail(has('ttl-too-long') > 0 ? 'ttl-too-long' : 'no-quorum');
  };
  return new Promise((resolve) => {
    const question = nodes.extend(holding, ttlMs, (index, reply, isMore) => {
      replies[index] = reply;
      if (listener && callsForAdmission(replies, index)) listener.callForAdmission();
      if (reply.answer === 'not-held' && reply.given) listener?.free(index, reply.given);
      if (isMore) return;
      const outcome = decide();
      if (outcome === null) return;
      question.endLimit();
      resolve(outcome);
    });
  });
}

/**
 * Has a lease held by nodes that have told, in their answer to EXTEND or KEEP, that they lack it and nobody else holds the locks.
 *
 * Invariant: a majority extends the lease *after* these nodes told their numbers. What they had granted until then belongs to
 * no lease after this one, else that majority would not hold this one any more. A node takes it only if it has granted nothing
 * since; see keep.lua.
 *
 * @param free what those nodes told
 */
export async function writeBack(
  nodes: Nodes,
  holding: Holding,
  free: ReadonlyMap<number, Given>,
  ttlMs: number,
  runtime: Runtime,
): Promise<void> {
  if (holding.isGivenUp) return;
  const extended = await extendOnAll(nodes, holding, ttlMs, runtime);
  if (!extended.ok || holding.isGivenUp || extended.deadlineMs <= runtime.nowMs()) return;
  for (const [index, given] of free) nodes.keep([index], holding, given, ttlMs, () => {});
}

/**
 * Releases on the nodes that were asked; settles once a majority has decided. Never rejects.
 *
 * Where no more were asked than were needed, those that have given it up and those that were not asked may be a majority before all have
 * answered. Nobody needs the others then: they are not waited for, unless the lease is over.
 */
export function releaseWhereAsked(
  nodes: Nodes,
  holding: Holding,
  options: ReleaseOptions,
): Promise<ReleaseOutcome> {
  const count = nodes.all.length;
  const majority = majorityOf(count);
  let [released, notHeld, pending] = [0, 0, holding.asked.length];
  const unasked = count - pending;
  return new Promise((resolve) => {
    const end = (outcome: ReleaseOutcome): void => {
      question.endLimit();
      resolve(outcome);
    };
    const late = (): void => {
      if (unasked > 0) nodes.first.doubt();
    };
    const hear = (_: number, { answer }: ReleaseReply): void => {
      pending -= 1;
      if (answer === 'released') released += 1;
      if (answer === 'not-held') notHeld += 1;
      const isFree = !options.isOver && notHeld === 0 && released + unasked >= majority;
      if (isFree || released >= majority) end('released');
      else if (notHeld > 0 && notHeld + unasked > count - majority) end('expired');
      else if (pending === 0) end('unknown');
    };
    const question = nodes.release(holding, options, hear, late);
  });
}
