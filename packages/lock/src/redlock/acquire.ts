import type { NodeAnswer } from '../core/answers.js';
import type { AcquireFailure } from '../core/failure.js';
import { decide, isTaken, retryAfterMs } from '../core/tally.js';
import { validityMs } from '../core/validity.js';
import type { Nodes, QueuePosition } from '../redis/nodes.js';
import { Ballot, type BallotRequest } from './ballot.js';

/**
 * A split vote is given up after this multiple of the time that the votes took, at least
 * `SPLIT_MIN_MS`.
 */
const SPLIT_FACTOR = 3;
const SPLIT_MIN_MS = 50;

export interface AcquisitionRequest extends BallotRequest {
  readonly ttlMs: number;
  /** The queue position that a refused waiter takes; null for a client that does not wait. */
  readonly position: QueuePosition | null;
}

/** A lock that a majority has granted. */
export interface Granted {
  readonly ok: true;
  readonly token: bigint;
  /**
   * The last token that was reserved for this process. Those above `token` are for followers:
   * waiters of this process to which the lock may be handed over.
   */
  readonly lastToken: bigint;
  /** On the runtime's monotonic clock. */
  readonly deadlineMs: number;
  /** The number of followers that are next in the queue, by the count of the nodes. */
  readonly followers: number;
  /** The nodes that were not asked, because the others decided. */
  readonly unasked: readonly number[];
  readonly answers: () => readonly NodeAnswer[];
}

/**
 * One acquisition: takes the locks of all resources on a majority of the nodes, or none.
 *
 * 1. Asks the preferred majority: just as many nodes as needed, which answered in time before.
 * 2. If these nodes do not decide in time, asks the remaining ones.
 * 3. If the tokens of a majority differ, the nodes with lower ones store the highest one, by
 *    CONFIRM.
 *
 * It settles as soon as the votes decide. If it fails, it releases on every node that it asked.
 * A queued waiter is the exception: it keeps the votes it won. Never rejects.
 */
export async function acquire(
  nodes: Nodes,
  request: AcquisitionRequest,
): Promise<Granted | AcquireFailure> {
  const { ownership, ttlMs, position, signal } = request;
  const startedMs = nodes.runtime.nowMs();
  const ballot = new Ballot(nodes, request, (broadcast, indexes) =>
    nodes.acquire(broadcast, indexes, ownership, ttlMs, position),
  );
  const split = new SplitVote(nodes, ballot);
  const fail = (reason: AcquireFailure['reason']) => lose(nodes, request, ballot, reason);
  let isConfirmed = false;
  try {
    for (;;) {
      if (signal.aborted) return fail('aborted');
      if (ownership.isReleased || split.isOver) return fail('held');
      const decision = decide(ballot.votes);
      if (decision.state === 'lost') return fail(decision.reason);
      if (decision.state === 'won') {
        // Step 3 of Redlock in the Redis documentation: votes that took longer than the lease do
        // not count.
        const nowMs = nodes.runtime.nowMs();
        const validMs = validityMs(ttlMs, nowMs - startedMs);
        if (validMs <= 0) return fail('too-slow');
        // After a CONFIRM, the nodes have not reserved the same tokens, so there are no followers.
        const followersMax = isConfirmed ? 0 : (position?.followersMax ?? 0);
        return win(nodes, ballot, decision.token, nowMs + validMs, followersMax);
      }
      if (decision.laggards.length > 0) {
        // A majority granted. The laggards gave a lower token, and must store the highest one.
        nodes.confirm(ballot.broadcast, decision.laggards, ownership, decision.token);
        isConfirmed = true;
      }
      ballot.askRemaining();
      split.limit();
      await ballot.broadcast.change();
    }
  } finally {
    split.end();
    ballot.end();
  }
}

/** @param followersMax the last so many tokens, up to `lastToken`, are reserved for followers */
function win(
  nodes: Nodes,
  ballot: Ballot,
  lastToken: bigint,
  deadlineMs: number,
  followersMax: number,
): Granted {
  const { votes, remaining } = ballot;
  // Each node has counted the followers in its own queue. The lowest count is true on all nodes.
  let followers = followersMax;
  for (const vote of votes) {
    if (vote.answer !== 'granted' || vote.token !== lastToken) continue;
    followers = Math.min(followers, vote.followers ?? 0);
  }
  return {
    ok: true,
    token: lastToken - BigInt(followersMax),
    lastToken,
    deadlineMs,
    followers,
    unasked: remaining,
    answers: () => nodes.answers(votes),
  };
}

/** Releases on every node that was asked, unless a queued waiter keeps its votes. */
async function lose(
  nodes: Nodes,
  { ownership, position }: AcquisitionRequest,
  { votes, broadcast }: Ballot,
  reason: AcquireFailure['reason'],
): Promise<AcquireFailure> {
  const failure = {
    ok: false,
    reason,
    nodes: nodes.answers(votes),
    retryAfterMs: retryAfterMs(votes),
  } as const;
  const holdsNone = broadcast.isAnswered && !votes.some(({ answer }) => answer === 'granted');
  // A waiter keeps its votes while no other client has a majority. Otherwise, these votes would
  // only block the next holder.
  const keeps = reason === 'held' && position !== null && (holdsNone || !isTaken(votes));
  if (!keeps) nodes.giveUp(ownership);
  // The next acquisition must not be sent in one script with this release. A node would run both
  // without a break, and no other client could take the lock in between.
  await new Promise<void>((resolve) => nodes.runtime.soon(resolve));
  return failure;
}

/**
 * Time limit of a split vote: clients have won some nodes each, and none has a majority. If all of
 * them went on waiting for more votes, they would block each other.
 */
class SplitVote {
  isOver = false;
  readonly #nodes: Nodes;
  readonly #ballot: Ballot;
  #cancel: (() => void) | null = null;

  constructor(nodes: Nodes, ballot: Ballot) {
    this.#nodes = nodes;
    this.#ballot = ballot;
  }

  /** Starts the time limit if all nodes were asked, and only some of them granted the lock. */
  limit(): void {
    const ballot = this.#ballot;
    if (ballot.remaining.length > 0 || this.#cancel) return;
    if (!ballot.has('held') || !ballot.has('granted')) return;
    const limitMs = Math.max(SPLIT_MIN_MS, SPLIT_FACTOR * ballot.elapsedMs);
    this.#cancel = this.#nodes.after(limitMs, () => {
      this.isOver = true;
      ballot.broadcast.wake();
    });
  }

  end(): void {
    this.#cancel?.();
  }
}
