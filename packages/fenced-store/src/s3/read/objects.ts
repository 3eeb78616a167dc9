import type { Stored } from '../../core/stored.js';
import type { ObjectFacts, OpenObject, Requests, WholeObject } from '../http/requests.js';
import { Known } from './known.js';

/**
 * The objects of one bucket, compared on every read with the versions that this process knows.
 *
 * Each read throws {@link RatchetLostError} if the object's token is lower than a known one.
 */
export class Objects {
  readonly requests: Requests;
  readonly known: Known = new Known();

  constructor(requests: Requests) {
    this.requests = requests;
  }

  async head(key: string, signal: AbortSignal | undefined): Promise<Stored | null> {
    return (await this.facts(key, signal))?.stored ?? null;
  }

  facts(key: string, signal: AbortSignal | undefined): Promise<ObjectFacts | null> {
    return this.#compared(key, () => this.requests.facts(key, signal));
  }

  get(key: string, signal: AbortSignal | undefined): Promise<WholeObject | null> {
    return this.#compared(key, () => this.requests.get(key, signal));
  }

  open(key: string, signal: AbortSignal | undefined): Promise<OpenObject | null> {
    return this.#compared(
      key,
      () => this.requests.open(key, signal),
      (object) => object.cancel(),
    );
  }

  async #compared<Found extends { readonly stored: Stored }>(
    key: string,
    read: () => Promise<Found | null>,
    discard?: (found: Found) => void,
  ): Promise<Found | null> {
    const before = this.known.highest(key);
    const found = await read();
    try {
      this.known.seen(key, before, found?.stored ?? null);
    } catch (error) {
      if (found) discard?.(found);
      throw error;
    }
    return found;
  }
}
