import type { Acquisition } from './history.ts';
import type { ModelCall, Reply } from './node-model.ts';

/** Place of the number of followers in the values of an ACQUIRE. */
const FOLLOWERS_AT = 6;

/**
 * Counts the leases that a holder handed over to another one in its process. The nodes do not
 * notice a hand-over, so they have given the lease's token to no acquisition. The count leaves out
 * a lease with the last token that was reserved: an acquisition could have confirmed that token.
 */
export class HandOvers {
  /** Each resource and token that an acquisition may have got from a node. */
  readonly #given = new Set<string>();
  #count = 0;
  #besideCount = 0;

  get count(): number {
    return this.#count;
  }

  /** The number of hand-overs while a node of a set that serves had no vote. */
  get besideCount(): number {
    return this.#besideCount;
  }

  granted({ command, keys, values }: ModelCall, [, token]: Reply): void {
    // An acquisition gets the last token if it was confirmed, and otherwise the first one.
    const followers = command === 'acquire' ? Number(values[FOLLOWERS_AT] ?? 0) : 0;
    for (const own of [Number(token), Number(token) - followers]) {
      for (const key of keys) this.#given.add(`${key.split('queue:')[1]} ${own}`);
    }
  }

  acquired({ resources, token }: Acquisition, isNodeWithoutVote: boolean): void {
    if (resources.some((resource) => this.#given.has(`${resource} ${token}`))) return;
    this.#count += 1;
    if (isNodeWithoutVote) this.#besideCount += 1;
  }
}
