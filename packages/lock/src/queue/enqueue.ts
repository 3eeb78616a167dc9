import type { AcquireFailure } from '../core/failure.js';
import { mayBeMismatch } from '../core/mismatch.js';
import { majorityOf } from '../core/quorum.js';
import { lossReason, retryAfterMs } from '../core/tally.js';
import type { Nodes, QueuePosition } from '../redis/nodes.js';
import { Ballot, type BallotRequest } from '../redlock/ballot.js';

/**
 * Takes a queue position on the preferred majority, and on the remaining nodes if the first answers
 * do not decide. It takes no lock: on a node where the lock is free, the holder may still take it.
 * Settles as soon as the nodes have decided. Never rejects.
 *
 * If too few nodes answer, the waiter keeps its positions, which expire by themselves. If it left
 * the queues and came back, that would be the most expensive work for a busy node. If all waiters
 * did so, the node would stay too busy to answer.
 *
 * @returns null if the waiter is the head of the queue on a majority
 */
export async function enqueue(
  nodes: Nodes,
  request: BallotRequest & { readonly position: QueuePosition },
): Promise<AcquireFailure | null> {
  const { ownership, position, signal } = request;
  const majority = majorityOf(nodes.all.length);
  const ballot = new Ballot(nodes, request, (broadcast, indexes) =>
    nodes.enqueue(broadcast, indexes, ownership, position),
  );
  for (;;) {
    if (signal.aborted) return lose('aborted');
    if (ownership.isReleased) return lose('held');
    const heads = ballot.count('head');
    if (heads >= majority) {
      ballot.end();
      return null;
    }
    if (heads + ballot.count('pending') < majority && !mayBeMismatch(ballot.votes)) {
      return lose(lossReason(ballot.votes, majority));
    }
    ballot.askRemaining();
    await ballot.broadcast.change();
  }

  function lose(reason: AcquireFailure['reason']): AcquireFailure {
    ballot.end();
    if (reason !== 'held' && reason !== 'no-quorum') nodes.giveUp(ownership);
    const { votes } = ballot;
    return { ok: false, reason, retryAfterMs: retryAfterMs(votes), nodes: nodes.answers(votes) };
  }
}
