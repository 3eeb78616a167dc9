import {
  OutcomeUnknownError,
  StaleTokenError,
  UnsupportedByStoreError,
} from '../../core/errors.js';
import { type Fate, type Intent, judge } from '../../core/settle.js';
import { isUpon } from '../../core/stored.js';
import type { Settlement } from '../options.js';
import type { Objects } from '../read/objects.js';

/** Number of unsettled writes that are remembered. */
const WRITES_MAX = 1_000;

const SETTLEMENTS: Readonly<Record<Exclude<Fate, 'pending'>, Settlement>> = {
  applied: 'applied',
  replaced: 'applied',
  lost: 'not-applied',
  unknown: 'unknown',
};

interface UnsettledWrite {
  readonly key: string;
  readonly intent: Intent;
}

/** The writes of this process that are under way, or whose outcome is unknown. */
export class UnsettledWrites {
  readonly #objects: Objects;
  readonly #byId = new Map<string, UnsettledWrite>();

  constructor(objects: Objects) {
    this.#objects = objects;
  }

  add(writeId: string, write: UnsettledWrite): void {
    this.#byId.set(writeId, write);
    if (this.#byId.size <= WRITES_MAX) return;
    const [oldest] = this.#byId.keys();
    if (oldest !== undefined) this.#byId.delete(oldest);
  }

  delete(writeId: string): void {
    this.#byId.delete(writeId);
  }

  keyOf(writeId: string): string | undefined {
    return this.#byId.get(writeId)?.key;
  }

  /**
   * The outcome of a write.
   *
   * @param claim rewrites the object under the token, so that a late copy of the write is refused
   */
  async settle(
    writeId: string,
    key: string,
    signal: AbortSignal | undefined,
    claim: (token: bigint) => Promise<void>,
  ): Promise<Settlement> {
    const intent = this.#byId.get(writeId)?.intent;
    for (;;) {
      const seen = await this.#objects.head(key, signal);
      if (intent === undefined)
        return seen && (seen.writeId === writeId || isUpon(seen, writeId)) ? 'applied' : 'unknown';
      const fate = judge(intent, seen, true);
      if (fate !== 'pending') {
        const settlement = SETTLEMENTS[fate];
        if (settlement !== 'unknown') this.#byId.delete(writeId);
        return settlement;
      }
      try {
        await claim(intent.token);
      } catch (error) {
        // An object that cannot be rewritten cannot be kept from a late copy either.
        if (error instanceof OutcomeUnknownError || error instanceof UnsupportedByStoreError)
          return 'unknown';
        // A later holder was quicker: its write keeps the late copy out, too.
        if (!(error instanceof StaleTokenError)) throw error;
      }
    }
  }
}
