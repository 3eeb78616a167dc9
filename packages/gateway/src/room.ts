import { Problem } from './problem.js';

/** A limit, and how much of it is in use. */
export interface RoomUse {
  readonly name: string;
  readonly limit: number;
  readonly inUse: number;
}

const RETRY_AFTER_MS = 1_000;

/**
 * Room for a limited number of things at once.
 *
 * Invariant: unless told otherwise, one caller never uses more than is free for the others. So one that floods gets half, two get a third each, and there
 * is room left for whoever comes next. (Dynamic thresholds: Choudhury and Hahne, 1998, with α = 1.)
 */
export class Room {
  readonly #name: string;
  readonly #limit: number;
  readonly #ownMax: number | null;
  readonly #byCaller = new Map<string | null, number>();
  #inUse = 0;

  /** @param ownMax what one caller may use; null: as much as it leaves free for others */
  constructor(name: string, limit: number, ownMax: number | null) {
    this.#name = name;
    this.#limit = limit;
    this.#ownMax = ownMax;
  }

  get use(): RoomUse {
    return { name: this.#name, limit: this.#limit, inUse: this.#inUse };
  }

  /**
   * Takes a place.
   *
   * @param caller null for one that stands for many, and has no share
   * @returns gives it back; again it does nothing
   * @throws {Problem} `overloaded` if there is no room, `too-many-requests` if only this caller has none
   */
  enter(caller: string | null): () => void {
    const own = this.#byCaller.get(caller) ?? 0;
    const free = this.#limit - this.#inUse;
    const retry = { retryAfterMs: RETRY_AFTER_MS };
    if (free <= 0)
      throw new Problem('overloaded', `${this.#limit} ${this.#name} are under way already`, retry);
    if (caller !== null && own >= (this.#ownMax ?? free))
      throw new Problem(
        'too-many-requests',
        `${own} ${this.#name} of yours are under way already: the rest is for others`,
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
    const own = (this.#byCaller.get(caller) ?? 0) + change;
    this.#inUse += change;
    if (own === 0) this.#byCaller.delete(caller);
    else this.#byCaller.set(caller, own);
  }
}

/** What of the gateway is limited, besides rates. */
export interface Rooms {
  /** Requests that are worked on. */
  readonly requests: Room;
  /** Requests that wait for a lease. */
  readonly waits: Room;
  /** Objects that are written. */
  readonly uploads: Room;
}
