import type { TokenBound } from '../core/answers.js';
import type { AcquireFailure } from '../core/failure.js';
import { mismatchIn } from '../core/mismatch.js';
import { consistentQuorum, majorityOf } from '../core/quorum.js';
import { callsForReadmission } from '../core/tally.js';
import { validityMs } from '../core/validity.js';
import type { Broadcast } from '../redis/broadcast.js';
import type { Nodes, Ownership } from '../redis/nodes.js';
import type { ExtendReply } from '../redis/replies.js';

/** `deadlineMs` is on the runtime's monotonic clock. */
export type ExtendOutcome = { readonly ok: true; readonly deadlineMs: number } | AcquireFailure;

/**
 * Asks all nodes to give the lease `ttlMs` from now on. Settles as soon as they have decided.
 * Never rejects.
 *
 * @param token of the lease
 * @param onFree called for each node that votes, does not extend the lease, and holds the locks for
 *   nobody else. The answer may come after the result
 */
export async function extendOnAll(
  nodes: Nodes,
  ownership: Ownership,
  token: bigint,
  ttlMs: number,
  onFree: (index: number, bound: TokenBound) => void = () => {},
): Promise<ExtendOutcome> {
  const startedMs = nodes.runtime.nowMs();
  const broadcast = nodes.extend(ownership, token, ttlMs);
  const { answers } = broadcast;
  broadcast.listener = {
    onAnswer: (index, answer) => {
      if (callsForReadmission(answers, index)) nodes.callForReadmission();
      if (answer.answer === 'not-held' && answer.tokenBound) onFree(index, answer.tokenBound);
    },
  };
  for (;;) {
    const result = decideExtension(answers);
    if (result !== null) {
      broadcast.end();
      const nowMs = nodes.runtime.nowMs();
      return result === 'extended'
        ? { ok: true, deadlineMs: nowMs + validityMs(ttlMs, nowMs - startedMs) }
        : { ok: false, reason: result, nodes: nodes.answers(answers), retryAfterMs: 0 };
    }
    await broadcast.change();
  }
}

function decideExtension(
  answers: Broadcast<ExtendReply>['answers'],
): 'extended' | AcquireFailure['reason'] | null {
  const majority = majorityOf(answers.length);
  const extended = answers.flatMap((reply, index) =>
    reply.answer === 'extended' ? [{ index, ...reply }] : [],
  );
  // Answers of superseded incarnations do not count. For example, an old master may extend a lease
  // that the new master has forgotten.
  if (consistentQuorum(extended, majority)) return 'extended';
  const count = (answer: string): number =>
    answers.filter((reply) => reply.answer === answer).length;
  if (count('not-held') > answers.length - majority) return 'lost';
  const mismatch = mismatchIn(answers);
  if (mismatch) return mismatch;
  if (count('pending') > 0) return null;
  return count('ttl-too-long') > 0 ? 'ttl-too-long' : 'no-quorum';
}

/**
 * Brings a lease back to nodes that have lost it and hold the locks for nobody else, according to
 * their answers to EXTEND or BACKFILL.
 *
 * Invariant: a majority extends the lease *after* these nodes reported their token bounds. Had a
 * later lease been granted before, no majority could extend this one. So no token up to a bound
 * belongs to a later lease. A node takes the lease back only if it has granted nothing since its
 * report; see backfill.lua.
 *
 * @param bounds the token bounds that those nodes reported, by node index
 */
export async function bringBack(
  nodes: Nodes,
  ownership: Ownership,
  token: bigint,
  bounds: ReadonlyMap<number, TokenBound>,
  ttlMs: number,
): Promise<void> {
  if (ownership.isReleased) return;
  const extended = await extendOnAll(nodes, ownership, token, ttlMs);
  if (!extended.ok || ownership.isReleased) return;
  if (extended.deadlineMs <= nodes.runtime.nowMs()) return;
  for (const [index, bound] of bounds) void nodes.backfill([index], ownership, bound, ttlMs);
}
