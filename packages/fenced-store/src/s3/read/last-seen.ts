import { RatchetLostError } from '../../core/errors.js';
import type { Stored } from '../../core/stored.js';

const KEYS_MAX = 1_000;
/**
 * Age (ms) up to which an object counts as the one that is stored. A write upon an older one would
 * be refused, and would not know its outcome if more writes have followed than the history holds.
 */
export const BASE_AGE_MS_MAX = 1_000;

interface Entry {
  /** The highest token that was seen. */
  readonly highest: bigint;
  /** The object that was stored last, if it is known. A write may try to replace it. */
  readonly base: Stored | null;
  readonly atMs: number;
}

/**
 * The objects that this process saw last, of the keys used most recently.
 *
 * An entry saves `put` a request. It may be outdated, which is harmless: the server refuses to
 * replace an old version. The highest token only grows: if the storage shows a lower one, a writer
 * went around this library.
 */
export class LastSeen {
  readonly #byKey = new Map<string, Entry>();
  readonly #nowMs: () => number;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** The highest token so far. Nothing that is read from now on may be lower. */
  highest(key: string): bigint {
    return this.#byKey.get(key)?.highest ?? 0n;
  }

  /** The object that was stored last, unless it was seen too long ago. */
  base(key: string): Stored | null {
    const { base = null, atMs = 0 } = this.#byKey.get(key) ?? {};
    return this.#nowMs() - atMs > BASE_AGE_MS_MAX ? null : base;
  }

  /**
   * Notes a read.
   *
   * @param before `highest` from before the read was sent: replies may overtake each other
   * @throws {RatchetLostError} if the object's token is lower.
   */
  noteRead(key: string, before: bigint, stored: Stored | null): void {
    const found = stored?.token ?? 0n;
    if (found < before) throw new RatchetLostError({ resource: key, known: before, found });
    this.noteWrite(key, found, stored);
  }

  /** Notes an applied write. `base` is null if other writes have replaced it. */
  noteWrite(key: string, token: bigint, base: Stored | null): void {
    if (token >= this.highest(key)) this.#set(key, { highest: token, base, atMs: this.#nowMs() });
  }

  /** Keeps the highest token only: the object is no longer known. */
  forgetBase(key: string): void {
    this.#set(key, { highest: this.highest(key), base: null, atMs: 0 });
  }

  forget(key: string): void {
    this.#byKey.delete(key);
  }

  #set(key: string, entry: Entry): void {
    // A Map keeps the order of insertion, so its first key was used least recently.
    this.#byKey.delete(key);
    if (entry.highest === 0n) return;
    this.#byKey.set(key, entry);
    if (this.#byKey.size <= KEYS_MAX) return;
    const [oldest] = this.#byKey.keys();
    if (oldest !== undefined) this.#byKey.delete(oldest);
  }
}
