import type { AcquireFailure } from '../core/failure.js';
import { decide } from '../core/tally.js';
import type { Nodes } from '../redis/nodes.js';
import { Ballot, type BallotRequest } from './ballot.js';

/**
 * Raises the token of a lease that was just granted. It sends CONFIRM until a majority of the nodes
 * has stored the same number, `token` or above. So every later token is above that number. Never
 * rejects.
 *
 * @returns the number that a majority has stored; or the reason why there is none
 */
export async function raise(
  nodes: Nodes,
  request: BallotRequest,
  token: bigint,
): Promise<bigint | AcquireFailure> {
  const { ownership, signal } = request;
  const ballot = new Ballot(nodes, request, (broadcast, indexes) =>
    nodes.confirm(broadcast, indexes, ownership, token),
  );
  try {
    for (;;) {
      if (signal.aborted || ownership.isReleased) return lose('aborted');
      const decision = decide(ballot.votes);
      if (decision.state === 'won') return decision.token;
      if (decision.state === 'lost') return lose(decision.reason);
      if (decision.laggards.length > 0) {
        nodes.confirm(ballot.broadcast, decision.laggards, ownership, decision.token);
      }
      ballot.askRemaining();
      await ballot.broadcast.change();
    }
  } finally {
    ballot.end();
  }

  function lose(reason: AcquireFailure['reason']): AcquireFailure {
    return { ok: false, reason, nodes: nodes.answers(ballot.votes), retryAfterMs: 0 };
  }
}
