import { type NodeAnswer, type NodeFailure, nodeAnswer } from '../core/answers.js';
import { describeMismatch, isMismatch } from '../core/mismatch.js';
import { majorityOf } from '../core/quorum.js';
import type { AdmitReply, InspectReply, PromiseReply, RetireReply } from '../redis/replies.js';

export type NodeReply = InspectReply | PromiseReply | AdmitReply | RetireReply;

const PENDING = { answer: 'pending' } as const;

/**
 * The last reply of every node in a round of readmission, which lets nodes vote that lost their
 * memory. Makes the messages about these replies.
 */
export class LastReplies {
  readonly #names: readonly string[];
  readonly #replies: (NodeReply | null)[];

  constructor(nodes: readonly { readonly name: string }[]) {
    this.#names = nodes.map(({ name }) => name);
    this.#replies = nodes.map(() => null);
  }

  note(index: number, reply: NodeReply): void {
    this.#replies[index] = reply;
  }

  /** True if the node has answered to ADMIT that it votes. */
  hasVote(index: number): boolean {
    const answer = this.#replies[index]?.answer;
    return answer === 'admitted' || answer === 'already-admitted';
  }

  /** Milliseconds after which the first recovery wait is over; null if no node waits. */
  get tooEarlyMs(): number | null {
    const early = this.#replies.flatMap((one) => (one?.answer === 'too-early' ? [one.leftMs] : []));
    return early.length > 0 ? Math.min(...early) : null;
  }

  /**
   * By index: the answer of a node that was set up with another configuration, or is no master;
   * null for any other node.
   */
  mismatches(): readonly (NodeAnswer | null)[] {
    return this.#names.map((name, at) => {
      const reply = this.#replies[at];
      return reply && isMismatch(reply) ? nodeAnswer(name, reply) : null;
    });
  }

  /** The set to which this set moves, according to a sealed node; null if no node is sealed. */
  get nextSet(): string | null {
    const sealed = this.#replies.flatMap((one) =>
      one?.answer === 'config-mismatch' ? (one.nextSet ?? []) : [],
    );
    return sealed[0] ?? null;
  }

  /** All replies, and the differences between the configurations, for a message. */
  list(): string {
    const words = this.#names.map((name, at) => `${name} (${phrase(this.#replies[at] ?? null)})`);
    const mismatches = this.mismatches();
    const differences = describeMismatch(
      this.#names.map((name, at) => mismatches[at] ?? { name, ...PENDING }),
    );
    return differences === '' ? words.join(', ') : `${words.join(', ')}; ${differences}`;
  }

  /** The message if too few nodes answered to admit any. */
  tooFew(isForced: boolean): string {
    const count = this.#names.length;
    const majority = majorityOf(count);
    const known = this.#replies.filter((one) => one?.answer === 'inspected').length;
    if (isForced)
      return `${known} of ${count} nodes can be readmitted, and a majority is ${majority}: ${this.list()}`;
    const away = this.#names.filter((_, at) => isFailure(this.#replies[at] ?? null));
    const force =
      known < majority ? '' : '; or, if they are gone for good, say so: fenced readmit --force';
    const advice = away.length > 0 ? `; bring back ${away.join(', ')}${force}` : '';
    return `nodes without memory are readmitted only while a majority votes or all nodes answer: ${this.list()}${advice}`;
  }
}

function isFailure(reply: NodeReply | null): reply is NodeFailure {
  return reply !== null && 'error' in reply;
}

/** A node's reply in words, for a message. */
export function phrase(reply: NodeReply | null): string {
  if (!reply) return 'not waited for';
  if (isFailure(reply)) return reply.error.message;
  switch (reply.answer) {
    case 'inspected':
    case 'promised':
      return reply.voting ? 'votes' : 'has no vote';
    case 'admitted':
    case 'already-admitted':
      return 'votes';
    case 'too-early':
      return `waits for another ${reply.leftMs} ms`;
    case 'refused':
    case 'changed':
      return 'changed by another client meanwhile';
    case 'retired':
      return 'begins a new incarnation';
    case 'not-master':
      return `not-master: its server is a ${reply.role}`;
    default:
      return reply.answer;
  }
}
