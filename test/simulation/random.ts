/**
 * Random numbers from a seed. The same seed and purpose give the same numbers, independently of
 * the draws for other purposes.
 */
export class Random {
  #a: number;
  #b: number;
  #c: number;
  #counter = 1;

  constructor(seed: number, purpose: string) {
    // FNV-1a hashes seed and purpose. The generator is Chris Doty-Humphrey's sfc32.
    let hash = 0x811c9dc5;
    for (const character of `${seed}/${purpose}`) {
      hash = Math.imul(hash ^ (character.codePointAt(0) ?? 0), 0x01000193);
    }
    this.#a = hash;
    this.#b = Math.imul(hash, 0x9e3779b1) ^ seed;
    this.#c = Math.floor(seed / 2 ** 32);
    for (let round = 0; round < 15; round += 1) this.unit();
  }

  /** 0 <= unit < 1. */
  unit(): number {
    const sum = (this.#a + this.#b + this.#counter) | 0;
    this.#counter = (this.#counter + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = ((this.#c << 21) | (this.#c >>> 11)) + sum;
    return (sum >>> 0) / 2 ** 32;
  }

  between(low: number, high: number): number {
    return low + (high - low) * this.unit();
  }

  /** A whole number, 0 <= n < end. */
  below(end: number): number {
    return Math.floor(this.unit() * end);
  }

  chance(probability: number): boolean {
    return this.unit() < probability;
  }

  pick<Item>(items: readonly Item[]): Item {
    const item = items[this.below(items.length)];
    if (item === undefined) throw new Error('nothing to pick from');
    return item;
  }
}
