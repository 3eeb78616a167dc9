import { createHash } from 'node:crypto';

/** How often a statement is sent to a connection before the server is asked to keep it, parsed and planned. */
const USES_BEFORE = 3;

/** How many statements of the caller's one connection keeps, and how many it counts the uses of. */
const STATEMENTS_MAX = 100;

/** In UTF-16 code units: longer ones are made of data, mostly, and not sent again. */
const TEXT_LENGTH_MAX = 8_192;

/** The names under which one connection's server keeps statements. */
export class StatementNames {
  /** Whether they last. Not where PgBouncer gives each transaction another server, or somebody discards them. */
  areKept = true;
  readonly #names = new Map<string, string | undefined>();
  readonly #uses = new Map<string, number>();

  /**
   * What the server may keep this statement under; undefined where it may not, or it was not sent often enough.
   *
   * Invariant: one name, one text. Behind PgBouncer others may have prepared it, on whichever server comes next.
   */
  nameFor(text: string): string | undefined {
    if (text.length > TEXT_LENGTH_MAX || !this.areKept) return undefined;
    const known = this.#names.get(text);
    if (known !== undefined) return known;
    if (this.#names.has(text) || this.#names.size >= STATEMENTS_MAX) return undefined;
    const times = (this.#uses.get(text) ?? 0) + 1;
    // Texts that never come again would fill it.
    if (this.#uses.size >= STATEMENTS_MAX) this.#uses.clear();
    this.#uses.set(text, times);
    if (times < USES_BEFORE) return undefined;
    const name = `fenced_${createHash('sha256').update(text).digest('hex').slice(0, 32)}`;
    this.#names.set(text, name);
    this.#uses.delete(text);
    return name;
  }

  /** From now on this one is parsed each time: what it gives has changed since it was prepared. */
  forgo(text: string): void {
    this.#names.set(text, undefined);
  }
}
