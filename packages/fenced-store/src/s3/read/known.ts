import { RatchetLostError } from '../../core/errors.js';
import type { Stored } from '../../core/stored.js';

const KEYS_MAX = 1_000;

interface Entry {
  /** The highest token that was seen. */
  readonly highest: bigint;
  /** What was stored last, as far as known; a write may be tried upon it. */
  readonly base: Stored | null;
}

/**
 * What this process has seen of each key, for the keys used most recently.
 *
 * What was stored last may be outdated, which is harmless: a write upon an outdated version is refused by the server. It saves
 * `put` a request. The highest token only grows: where the storage shows a lower one, somebody went round this library.
 */
export class Known {
  readonly #byKey = new Map<string, Entry>();

  /** The highest token seen so far: what is read from now on may not be lower. */
  highest(key: string): bigint {
    return this.#byKey.get(key)?.highest ?? 0n;
  }

  base(key: string): Stored | null {
    return this.#byKey.get(key)?.base ?? null;
  }

  /**
   * Takes note of what was read.
   *
   * @param before `highest` from before the question was sent: answers may overtake each other
   * @throws {RatchetLostError}
   */
  seen(key: string, before: bigint, stored: Stored | null): void {
    const found = stored?.token ?? 0n;
    if (found < before) throw new RatchetLostError({ resource: key, known: before, found });
    if (found >= this.highest(key)) this.#set(key, { highest: found, base: stored });
  }

  /** Takes note of a write of ours; `base` is null where others have replaced it since. */
  wrote(key: string, token: bigint, base: Stored | null): void {
    if (token >= this.highest(key)) this.#set(key, { highest: token, base });
  }

  /** Nothing that a write could be put upon is known any more. */
  outdated(key: string): void {
    this.#set(key, { highest: this.highest(key), base: null });
  }

  forget(key: string): void {
    this.#byKey.delete(key);
  }

  #set(key: string, entry: Entry): void {
    // A Map keeps the order of insertion, so the first key is the one not used for longest.
    this.#byKey.delete(key);
    if (entry.highest === 0n) return;
    this.#byKey.set(key, entry);
    if (this.#byKey.size <= KEYS_MAX) return;
    const [oldest] = this.#byKey.keys();
    if (oldest !== undefined) this.#byKey.delete(oldest);
  }
}
