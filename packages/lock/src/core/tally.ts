import type { VoteReply } from './answers.js';
import { type Mismatch, mayBeMismatch, mismatchIn } from './mismatch.js';
import { consistentQuorum, knowsLater, majorityOf, type Voter } from './quorum.js';

/** The vote of one node in one acquisition. The last reply of a node replaces its earlier one. */
export type Vote = { readonly answer: 'pending' } | VoteReply;

/** An answer that carries a vote but grants no lock, such as the answer to EXTEND. */
interface Cast extends Omit<Voter, 'index'> {
  readonly answer: string;
}

/** The reason why an acquisition cannot win any more, the most informative reason first. */
export type LossReason =
  | 'token-exhausted'
  | Mismatch
  | 'ttl-too-long'
  | 'memory-full'
  | 'held'
  | 'no-quorum';

export type Decision =
  | { readonly state: 'won'; readonly token: bigint }
  | { readonly state: 'lost'; readonly reason: LossReason }
  /**
   * Not decided. If a majority granted, `laggards` are the nodes that granted less than `token`.
   * They must confirm `token`. Without such a majority, `laggards` is empty.
   */
  | { readonly state: 'open'; readonly token: bigint; readonly laggards: readonly number[] };

/**
 * Decides an acquisition from the votes so far, in the order of the sorted node names.
 *
 * The token is the highest among the grants. Two overlapping acquisitions could get the same number
 * from different nodes. So a token counts only once it is *stored on a majority while the
 * acquisition holds the lock there*: a confirmation.
 *
 * Invariant: the token of a won acquisition is above that of every acquisition won before this one
 * began. The majorities that confirmed the two tokens share a node, and a node grants only tokens
 * above those that it has stored. A readmitted node grants above its floor, which covers them.
 */
export function decide(votes: readonly Vote[]): Decision {
  const majority = majorityOf(votes.length);
  let token = 0n;
  let granted = 0;
  let pending = 0;
  for (const vote of votes) {
    if (vote.answer === 'pending') pending += 1;
    if (vote.answer !== 'granted') continue;
    granted += 1;
    if (vote.token > token) token = vote.token;
  }
  if (granted + pending < majority) {
    // It is lost, but the pending answers decide whether the reason is a mismatch. Then another
    // acquisition cannot help.
    if (mayBeMismatch(votes)) return { state: 'open', token, laggards: [] };
    return { state: 'lost', reason: lossReason(votes, majority) };
  }
  // Without laggards: a confirmation would be too early, because the next grant may have a higher
  // token.
  if (granted < majority) return { state: 'open', token, laggards: [] };

  const confirmations: Voter[] = [];
  const laggards: number[] = [];
  votes.forEach((vote, index) => {
    if (vote.answer !== 'granted') return;
    const { generation, incarnation, roster } = vote;
    if (vote.token < token) laggards.push(index);
    else confirmations.push({ index, generation, incarnation, roster });
  });
  if (consistentQuorum(confirmations, majority)) return { state: 'won', token };
  if (laggards.length + pending === 0)
    return { state: 'lost', reason: lossReason(votes, majority) };
  return { state: 'open', token, laggards };
}

/**
 * True if the answer of node `index` shows that it or another node must be readmitted. Such a node
 * has no vote, or one that does not count beside another's.
 *
 * @param answers by node index; those with a roster are votes
 */
export function callsForReadmission(answers: readonly (Vote | Cast)[], index: number): boolean {
  const vote = answers[index];
  if (!vote || !('roster' in vote)) return vote?.answer === 'not-voting';
  for (let at = 0; at < answers.length; at += 1) {
    const other = answers[at];
    if (!other || !('roster' in other)) continue;
    if (knowsLater(other, vote, index) || knowsLater(vote, other, at)) return true;
  }
  return false;
}

/** True if other clients hold the lock on a majority of the nodes, so this one cannot win now. */
export function isTaken(answers: readonly { readonly answer: string }[]): boolean {
  const held = answers.filter(({ answer }) => answer === 'held').length;
  return held >= majorityOf(answers.length);
}

/** Returns the reason why an acquisition with these votes has failed. */
export function lossReason(votes: readonly Vote[], majority: number): LossReason {
  const count = (answer: Vote['answer']): number =>
    votes.filter((vote) => vote.answer === answer).length;
  // A kind of refusal is the reason only if the nodes without it are too few for a majority.
  const decides = (refusals: number): boolean => votes.length - refusals < majority;
  if (decides(count('token-exhausted'))) return 'token-exhausted';
  const mismatch = mismatchIn(votes);
  if (mismatch) return mismatch;
  if (decides(count('ttl-too-long'))) return 'ttl-too-long';
  if (decides(count('memory-full'))) return 'memory-full';
  const taken = count('held') + count('not-held');
  const unable = votes.length - taken - count('granted') - count('head') - count('pending');
  return taken > 0 && !decides(unable) ? 'held' : 'no-quorum';
}

/**
 * Milliseconds after which enough nodes may be free for another acquisition, according to the
 * nodes. 0 if a longer wait is not known to help.
 */
export function retryAfterMs(votes: readonly Vote[]): number {
  const remaining = votes
    .flatMap((vote) => (vote.answer === 'held' ? [vote.remainingMs] : []))
    .sort((a, b) => a - b);
  const free = votes.filter(({ answer }) => answer === 'granted' || answer === 'head').length;
  const needed = majorityOf(votes.length) - free;
  return needed > 0 ? (remaining[needed - 1] ?? 0) : 0;
}
