import type { FailedAttempt } from './attempt.js';
import { majorityOf } from './core/quorum.js';
import { lossReason, retryAfterMs, type Vote } from './core/tally.js';
import { nodeTimeoutMs } from './core/validity.js';
import type { Holding, Nodes, Ticket } from './redis/nodes.js';
import { onAbort } from './runtime.js';

export interface Standing {
  readonly holding: Holding;
  readonly ticket: Ticket;
  readonly ttlMs: number;
  readonly signal: AbortSignal;
}

/**
 * Stands in line on all nodes, and takes nothing: where a lock is free on some of them, its holder may still take it there. Settles as
 * soon as the nodes have decided; where nobody holds the lock, and too few nodes can tell, it stands in no line any more. Never rejects.
 *
 * @param callForAdmission called when a node is to be admitted
 * @returns null where it is the waiter's turn on a majority
 */
export function standInLine(
  nodes: Nodes,
  { holding, ticket, ttlMs, signal }: Standing,
  callForAdmission: () => void,
): Promise<FailedAttempt | null> {
  const majority = majorityOf(nodes.all.length);
  const votes: Vote[] = nodes.all.map(() => ({ answer: 'pending' }));
  const count = (answer: Vote['answer']): number =>
    votes.filter((vote) => vote.answer === answer).length;
  return new Promise((resolve) => {
    let isSettled = false;
    const settle = (outcome: FailedAttempt | null): void => {
      isSettled = true;
      ignoreAbort();
      question.endLimit();
      resolve(outcome);
    };
    const lose = (reason: FailedAttempt['reason']): void => {
      if (reason !== 'held') nodes.giveUp(holding);
      const retryMs = retryAfterMs(votes);
      settle({ ok: false, reason, retryAfterMs: retryMs, nodes: nodes.answers(votes) });
    };
    const ignoreAbort = onAbort(signal, () => lose('aborted'));
    const limitMs = nodeTimeoutMs(ttlMs);
    const question = nodes.stand(holding, ticket, limitMs, (index, vote) => {
      votes[index] = vote;
      if (vote.answer === 'not-admitted') callForAdmission();
      if (isSettled) return;
      if (count('turn') >= majority) settle(null);
      else if (count('turn') + count('pending') < majority) lose(lossReason(votes, majority));
    });
    // An abort before now has no event any more.
    if (signal.aborted) lose('aborted');
  });
}
