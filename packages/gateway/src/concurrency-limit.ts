import { Problem } from './problem.js';

/** A limit, and the part of it that is in use. */
export interface LimitUse {
  readonly name: string;
  readonly limit: number;
  readonly inUse: number;
}

const RETRY_AFTER_MS = 1_000;

/**
 * A limit on concurrent work, shared fairly among callers.
 *
 * Invariant: without `ownMax`, a caller gets another place only if it has fewer places than are
 * free. So one caller that floods gets half of the limit, two get a third each, and a newcomer
 * finds a free place. (Dynamic thresholds: Choudhury and Hahne, 1998, with α = 1.)
 */
export class ConcurrencyLimit {
  readonly #name: string;
  readonly #limit: number;
  readonly #ownMax: number | null;
  readonly #byCaller = new Map<string | null, number>();
  #inUse = 0;

  /** @param ownMax the limit of one caller; null for the limit of the invariant */
  constructor(name: string, limit: number, ownMax: number | null) {
    this.#name = name;
    this.#limit = limit;
    this.#ownMax = ownMax;
  }

  get use(): LimitUse {
    return { name: this.#name, limit: this.#limit, inUse: this.#inUse };
  }

  /** The number of places that a caller has. */
  ownOf(caller: string | null): number {
    return this.#byCaller.get(caller) ?? 0;
  }

  /** True if `enter` would succeed. */
  hasRoom(caller: string): boolean {
    const free = this.#limit - this.#inUse;
    return free > 0 && this.ownOf(caller) < (this.#ownMax ?? free);
  }

  /**
   * Takes a place.
   *
   * @param caller null for a proxy, which forwards many callers: only the whole limit holds for it
   * @returns gives the place back; a second call does nothing
   * @throws {Problem} `overloaded` if no place is free, `too-many-requests` if this caller has its
   *   share
   */
  enter(caller: string | null): () => void {
    const own = this.ownOf(caller);
    const free = this.#limit - this.#inUse;
    const retry = { retryAfterMs: RETRY_AFTER_MS };
    if (free <= 0)
      throw new Problem('overloaded', `all ${this.#limit} ${this.#name} are in use`, retry);
    if (caller !== null && own >= (this.#ownMax ?? free))
      throw new Problem(
        'too-many-requests',
        `you use ${own} ${this.#name}: the rest is for other callers`,
        retry,
      );
    this.#add(caller, 1);
    let isIn = true;
    return () => {
      if (isIn) this.#add(caller, -1);
      isIn = false;
    };
  }

  #add(caller: string | null, change: 1 | -1): void {
    const own = this.ownOf(caller) + change;
    this.#inUse += change;
    if (own === 0) this.#byCaller.delete(caller);
    else this.#byCaller.set(caller, own);
  }
}
