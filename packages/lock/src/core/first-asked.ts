import { majorityOf } from './quorum.js';

/** For how long the nodes that are asked first are waited for, and for how long a lease may be held by those alone. */
export const PATIENCE_MS = 20;
/** For how long nodes that have all answered in time are taken to go on like that. */
const TRUST_MS = 1_000;

/**
 * Which nodes an attempt asks first: a bare majority, as *thrifty* Paxos does, but only while all nodes have lately voted in time. It is
 * the same for all clients and resources, so that whoever wants the same lock meets at the same nodes.
 *
 * Who seldom asks, and who has met a node that did not vote, asks all.
 */
export class FirstAsked {
  readonly all: readonly number[];
  /** The nodes that are not in the majority. */
  readonly rest: readonly number[];
  readonly #majority: readonly number[];
  #trustedUntilMs = Number.NEGATIVE_INFINITY;

  constructor(nodeCount: number) {
    this.all = Array.from({ length: nodeCount }, (_, index) => index);
    this.#majority = this.all.slice(0, majorityOf(nodeCount));
    this.rest = this.all.slice(majorityOf(nodeCount));
  }

  /** @param nowMs monotonic */
  choose(nowMs: number): readonly number[] {
    return nowMs < this.#trustedUntilMs ? this.#majority : this.all;
  }

  /** All nodes were asked at this time, and have voted in time. */
  trust(askedMs: number): void {
    this.#trustedUntilMs = askedMs + TRUST_MS;
  }

  /** A node has not voted, or is late. */
  doubt(): void {
    this.#trustedUntilMs = Number.NEGATIVE_INFINITY;
  }
}
