import { majorityOf } from './quorum.js';

/** For how long the nodes that are asked first are waited for, and for how long a lease may be held by those alone. */
export const PATIENCE_MS = 20;
/** By how much those may be slower than the fastest majority: in its time, and in milliseconds. */
const SLOW_FACTOR = 2;
const SLOW_MS = 2;
/** For how long nodes that have answered in time are taken to go on like that. */
const TRUST_MS = 1_000;

/**
 * Which nodes an attempt asks first: a bare majority, as *thrifty* Paxos does, but only of nodes that have lately voted in time. It is
 * the same for all clients and resources that see the same nodes vote, so that whoever wants the same lock meets at the same nodes.
 *
 * Who seldom asks, and who has met a node that did not vote, asks all.
 */
export class FirstAsked {
  readonly all: readonly number[];
  #trusted: readonly number[] = [];
  #trustedUntilMs = Number.NEGATIVE_INFINITY;
  #probe: Probe | null = null;

  constructor(nodeCount: number) {
    this.all = Array.from({ length: nodeCount }, (_, index) => index);
  }

  /** @param nowMs monotonic */
  choose(nowMs: number): readonly number[] {
    return nowMs < this.#trustedUntilMs ? this.#trusted : this.all;
  }

  /**
   * All nodes are asked at this time: how they vote shows which majority may be trusted. Until they have, those go on being asked first
   * that were until lately: one that never answers would have everybody ask all for so long.
   *
   * @returns null while another attempt is to show that; else it is to be ended after `PATIENCE_MS`, where not all have been heard
   */
  probe(askedMs: number): Probe | null {
    if (this.#probe?.isOver === false) return null;
    this.#probe = new Probe(this, askedMs);
    const wasTrusted = askedMs < this.#trustedUntilMs + TRUST_MS;
    if (wasTrusted) this.#trustedUntilMs = askedMs + PATIENCE_MS;
    return this.#probe;
  }

  /** These were asked at this time, and have voted in time. */
  trust(majority: readonly number[], askedMs: number): void {
    // The same list for the same nodes: whoever asks them again asks no others.
    if (majority.join() !== this.#trusted.join()) this.#trusted = majority;
    this.#trustedUntilMs = askedMs + TRUST_MS;
  }

  /** This node has not voted, or some node is late. */
  doubt(index?: number): void {
    if (index !== undefined && !this.#trusted.includes(index)) return;
    this.#trustedUntilMs = Number.NEGATIVE_INFINITY;
  }
}

/** Nodes that vote in time may be trusted to go on like that, unless others would have decided long before the first of them. */
export class Probe {
  readonly #first: FirstAsked;
  readonly #askedMs: number;
  /** After how many milliseconds each node has voted. */
  readonly #votedMs: (number | null)[];
  #unheard: number;
  /** After how many milliseconds any majority had decided. */
  #decidedMs = Number.POSITIVE_INFINITY;
  #isOver = false;

  constructor(first: FirstAsked, askedMs: number) {
    this.#first = first;
    this.#askedMs = askedMs;
    this.#votedMs = first.all.map(() => null);
    this.#unheard = first.all.length;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  decided(nowMs: number): void {
    this.#decidedMs = nowMs - this.#askedMs;
  }

  heard(index: number, hasVoted: boolean, nowMs: number): void {
    if (hasVoted) this.#votedMs[index] = nowMs - this.#askedMs;
    this.#unheard -= 1;
    if (this.#unheard === 0) this.end();
  }

  /** Who has not been heard by now is left out. */
  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const { all } = this.#first;
    const inTime = all.filter((index) => (this.#votedMs[index] ?? PATIENCE_MS) < PATIENCE_MS);
    const majority = inTime.slice(0, majorityOf(all.length));
    const slowestMs = Math.max(...majority.map((index) => this.#votedMs[index] ?? 0));
    const isEnough = majority.length === majorityOf(all.length);
    const isSoon = slowestMs <= SLOW_FACTOR * this.#decidedMs + SLOW_MS;
    if (isEnough && isSoon) this.#first.trust(majority, this.#askedMs);
    else this.#first.doubt();
  }
}
