import type { VoteReply } from '../core/answers.js';
import { callsForReadmission, type Vote } from '../core/tally.js';
import type { AnswerListener, Broadcast } from '../redis/broadcast.js';
import type { Nodes, Ownership } from '../redis/nodes.js';
import { onAbort } from '../runtime/runtime.js';

/** One request for votes, under an owner id. `limitMs` is the time for all answers. */
export interface BallotRequest {
  readonly ownership: Ownership;
  readonly limitMs: number;
  readonly signal: AbortSignal;
}

/** The answers of a node in good order. Any other answer is a reason to ask the remaining nodes. */
const IN_ORDER: ReadonlySet<VoteReply['answer']> = new Set(['granted', 'held', 'head']);

/** The votes of the nodes: of the preferred majority first, then of the remaining nodes. */
export class Ballot implements AnswerListener<VoteReply> {
  readonly broadcast: Broadcast<VoteReply>;
  /** The nodes that were not asked yet. */
  remaining: readonly number[];
  readonly #nodes: Nodes;
  readonly #startedMs: number;
  readonly #send: (broadcast: Broadcast<VoteReply>, indexes: readonly number[]) => void;
  readonly #ignoreAbort: () => void;
  #isRefused = false;
  /** Milliseconds until the decision; null before it, and if not all nodes were asked. */
  #decidedMs: number | null = null;

  /** @param send sends the request to these nodes */
  constructor(
    nodes: Nodes,
    { ownership, limitMs, signal }: BallotRequest,
    send: (broadcast: Broadcast<VoteReply>, indexes: readonly number[]) => void,
  ) {
    const { preferred, runtime } = nodes;
    this.#nodes = nodes;
    this.#send = send;
    this.#startedMs = runtime.nowMs();
    const broadcast = nodes.broadcast<VoteReply>(limitMs);
    broadcast.listener = this;
    this.broadcast = broadcast;
    this.#ignoreAbort = onAbort(signal, () => broadcast.wake());
    const chosen = preferred.choose(this.#startedMs);
    // If this owner has asked nodes before, these are asked again: they may have its queue
    // position.
    const first =
      ownership.asked.length === 0 ? chosen : [...new Set([...ownership.asked, ...chosen])];
    this.remaining =
      first === preferred.all ? [] : preferred.all.filter((index) => !first.includes(index));
    if (!signal.aborted && !ownership.isReleased) send(broadcast, first);
  }

  get votes(): readonly Vote[] {
    return this.broadcast.answers;
  }

  get elapsedMs(): number {
    return this.#nodes.runtime.nowMs() - this.#startedMs;
  }

  has(answer: Vote['answer']): boolean {
    return this.votes.some((vote) => vote.answer === answer);
  }

  count(answer: Vote['answer']): number {
    return this.votes.filter((vote) => vote.answer === answer).length;
  }

  /**
   * Asks the remaining nodes if a node is late, if an answer is not `IN_ORDER`, or if all nodes
   * that were asked have answered. To be called while the votes have not decided.
   */
  askRemaining(): void {
    const { broadcast, remaining } = this;
    if (remaining.length === 0) return;
    if (!broadcast.isLate && !broadcast.isAnswered && !this.#isRefused) return;
    this.remaining = [];
    this.#send(broadcast, remaining);
  }

  /** To be called once the votes have decided. */
  end(): void {
    if (this.remaining.length === 0) this.#decidedMs = this.elapsedMs;
    this.#ignoreAbort();
    this.broadcast.end();
  }

  /** Takes note of a vote, also of one that comes after the decision. */
  onAnswer(index: number, vote: VoteReply, elapsedMs: number): void {
    const { preferred } = this.#nodes;
    if (!IN_ORDER.has(vote.answer)) this.#isRefused = true;
    if (IN_ORDER.has(vote.answer)) preferred.voted(index, elapsedMs, this.#decidedMs);
    else if (vote.answer !== 'not-held') preferred.missed(index);
    if (callsForReadmission(this.votes, index)) this.#nodes.callForReadmission();
  }
}
