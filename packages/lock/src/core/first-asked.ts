import { majorityOf } from './quorum.js';

/** For how long the nodes that are asked first are waited for, and for how long a lease may be held by those alone. */
export const PATIENCE_MS = 20;
/** By how much those may be slower than the fastest majority: in its time, and in milliseconds. */
const SLOW_FACTOR = 2;
const SLOW_MS = 2;
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

  /** All nodes are asked at this time: how they vote shows whether the first may be trusted. */
  probe(askedMs: number): Probe {
    return new Probe(this, askedMs);
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

/** Nodes that all vote in time may be trusted to go on like that, unless others would have decided long before the first of them. */
export class Probe {
  readonly #first: FirstAsked;
  readonly #askedMs: number;
  #unheard: number;
  /** After how many milliseconds the first had voted, and any majority had decided. */
  #firstMs = 0;
  #decidedMs = Number.POSITIVE_INFINITY;

  constructor(first: FirstAsked, askedMs: number) {
    this.#first = first;
    this.#askedMs = askedMs;
    this.#unheard = first.all.length;
  }

  decided(nowMs: number): void {
    this.#decidedMs = nowMs - this.#askedMs;
  }

  voted(index: number, nowMs: number): void {
    this.#unheard -= 1;
    const elapsedMs = nowMs - this.#askedMs;
    if (!this.#first.rest.includes(index)) this.#firstMs = elapsedMs;
    const isInTime = this.#unheard === 0 && elapsedMs < PATIENCE_MS;
    if (isInTime && this.#firstMs <= SLOW_FACTOR * this.#decidedMs + SLOW_MS) {
      this.#first.trust(this.#askedMs);
    }
  }
}
