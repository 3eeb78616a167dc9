import { majorityOf } from './quorum.js';

/** Milliseconds after which a node that has not answered is late. */
export const LATE_MS = 20;
/** Milliseconds between two acquisitions that ask all nodes. */
const ASK_ALL_EVERY_MS = 1_000;
/**
 * A vote is slow if it takes longer than this factor times the fastest majority's time, plus 2 ms.
 */
const SLOW_FACTOR = 2;
const SLOW_MS = 2;

/**
 * The nodes that an acquisition asks first: a bare majority of the nodes that vote in time, as in
 * *thrifty* Paxos. They are the first such nodes by name. So clients that want the same lock ask
 * the same nodes, and the calls of one tick of the event loop need few scripts.
 *
 * Once a second, one acquisition asks all nodes and shows which of them vote in time.
 */
export class PreferredMajority {
  readonly all: readonly number[];
  /** By node. A node counts as in time only after it has voted in time. */
  readonly #isInTime: boolean[];
  #majority: readonly number[] | null = null;
  #askAllMs = Number.NEGATIVE_INFINITY;

  constructor(nodeCount: number) {
    this.all = Array.from({ length: nodeCount }, (_, index) => index);
    this.#isInTime = this.all.map(() => false);
  }

  /**
   * Returns the nodes to ask first: `all`, or a majority.
   *
   * @param nowMs monotonic
   */
  choose(nowMs: number): readonly number[] {
    if (nowMs >= this.#askAllMs) {
      this.#askAllMs = nowMs + ASK_ALL_EVERY_MS;
      return this.all;
    }
    return this.#majority ?? this.all;
  }

  /**
   * Notes a vote.
   *
   * @param decidedMs the time that the fastest majority took; null if this vote came before that
   */
  voted(index: number, elapsedMs: number, decidedMs: number | null): void {
    const isSlow = decidedMs !== null && elapsedMs > SLOW_FACTOR * decidedMs + SLOW_MS;
    this.#note(index, elapsedMs < LATE_MS && !isSlow);
  }

  /** Notes that a node is late, or that it does not vote. */
  missed(index: number): void {
    this.#note(index, false);
  }

  #note(index: number, isInTime: boolean): void {
    if (this.#isInTime[index] === isInTime) return;
    this.#isInTime[index] = isInTime;
    const needed = majorityOf(this.all.length);
    const inTime = this.all.filter((node) => this.#isInTime[node]).slice(0, needed);
    this.#majority = inTime.length === needed ? inTime : null;
  }
}
