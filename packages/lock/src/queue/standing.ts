import type { AcquireFailure } from '../core/failure.js';
import { mayBeMismatch } from '../core/mismatch.js';
import { majorityOf } from '../core/quorum.js';
import { lossReason, retryAfterMs, type Vote } from '../core/tally.js';
import type { Holding, Nodes, Ticket } from '../redis/nodes.js';
import { onAbort, type Runtime } from '../runtime/runtime.js';

export interface Standing {
  readonly holding: Holding;
  readonly ticket: Ticket;
  /** For how long answers are awaited. */
  readonly limitMs: number;
  readonly signal: AbortSignal;
}

/**
 * Stands in line on all nodes, or on a majority where those tell that others are first, and takes nothing: where a lock is free on some
 * nodes, its holder may still take it there. Settles as soon as the nodes have decided. Never rejects.
 *
 * If too few nodes answer, the waiter keeps its places: they end by themselves. To leave the lines and to come back costs a busy
 * node more than anything else, and if all did it, the node would stay too busy to answer.
 *
 * @param callForAdmission called when a node is to be admitted
 * @returns null where it is the waiter's turn on a majority
 */
export function standInLine(
  nodes: Nodes,
  { holding, ticket, limitMs, signal }: Standing,
  runtime: Runtime,
  callForAdmission: () => void,
): Promise<AcquireFailure | null> {
  const majority = majorityOf(nodes.all.length);
  const votes: Vote[] = nodes.all.map(() => ({ answer: 'pending' }));
  const count = (answer: Vote['answer']): number =>
    votes.filter((vote) => vote.answer === answer).length;
  return new Promise((resolve) => {
    let isSettled = false;
    const settle = (outcome: AcquireFailure | null): void => {
      isSettled = true;
      ignoreAbort();
      for (const question of questions) question.endLimit();
      resolve(outcome);
    };
    const lose = (reason: AcquireFailure['reason']): void => {
      if (reason !== 'held' && reason !== 'no-quorum') nodes.giveUp(holding);
      const retryMs = retryAfterMs(votes);
      settle({ ok: false, reason, retryAfterMs: retryMs, nodes: nodes.answers(votes) });
    };
    const ignoreAbort = onAbort(signal, () => lose('aborted'));
    const questions: { endLimit(): void }[] = [];
    const { first } = nodes;
    const startedMs = runtime.nowMs();
    const chosen = first.choose(startedMs);
    let rest = first.all.filter((index) => !chosen.includes(index));
    let unanswered = 0;
    const hear = (index: number, vote: Vote, isMore: boolean): void => {
      unanswered -= 1;
      votes[index] = vote;
      if (vote.answer === 'not-voting') callForAdmission();
      const isVote = vote.answer === 'turn' || vote.answer === 'held';
      if (!isVote) first.doubt(index);
      if (isSettled || isMore) return;
      if (count('turn') >= majority) settle(null);
      else if (count('turn') + count('pending') < majority && !mayBeMismatch(votes))
        lose(lossReason(votes, majority));
      else if (!isVote || unanswered === 0) askRest();
    };
    const ask = (indexes: readonly number[]): void => {
      unanswered += indexes.length;
      const leftMs = Math.max(1, startedMs + limitMs - runtime.nowMs());
      questions.push(
        nodes.stand(indexes, holding, ticket, leftMs, hear, () => {
          if (rest.length === 0) return;
          first.doubt();
          askRest();
        }),
      );
    };
    const askRest = (): void => {
      const indexes = holding.isGivenUp ? [] : rest;
      rest = [];
      if (indexes.length > 0) ask(indexes);
    };
    // An abort before now has no event any more.
    if (signal.aborted) lose('aborted');
    else ask(chosen);
  });
}
