import type { Stored } from '../core/stored.js';

const KEYS_MAX = 1_000;

/**
 * What this process last saw of each key, for the keys used most recently. It may be outdated, which is harmless: a write
 * upon an outdated version is refused by the server. It saves `put` a request.
 */
export class Versions {
  readonly #byKey = new Map<string, Stored>();

  get(key: string): Stored | undefined {
    return this.#byKey.get(key);
  }

  /** `null`: nothing that a write could be put upon is known any more. */
  set(key: string, stored: Stored | null): void {
    // A Map keeps the order of insertion, so the first key is the one not used for longest.
    this.#byKey.delete(key);
    if (stored === null) return;
    this.#byKey.set(key, stored);
    if (this.#byKey.size <= KEYS_MAX) return;
    const [oldest] = this.#byKey.keys();
    if (oldest !== undefined) this.#byKey.delete(oldest);
  }
}
