import {
  OutcomeUnknownError,
  StaleTokenError,
  UnsupportedByStoreError,
} from '../../core/errors.js';
import { type ConditionalWrite, resolveOutcome } from '../../core/resolve.js';
import { hasInHistory, isCreatedBy } from '../../core/stored.js';
import type { Settlement } from '../options.js';
import type { Objects } from '../read/objects.js';

/** Number of unsettled writes that are remembered. */
const WRITES_MAX = 1_000;

type UnsettledWrite = ConditionalWrite & { readonly key: string };

/** The writes of this process that are under way, or whose outcome is unknown. */
export class UnsettledWrites {
  readonly #objects: Objects;
  readonly #byId = new Map<string, UnsettledWrite>();

  constructor(objects: Objects) {
    this.#objects = objects;
  }

  add(write: UnsettledWrite): void {
    this.#byId.set(write.writeId, write);
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
   * Returns the outcome of a write.
   *
   * If other programs removed the object or wrote it, its history may have begun anew, and does not
   * deny the write. Only a history that contains the base does, or one that begins with the claim
   * made here upon no object. The latter assumes that no program has removed the object before.
   *
   * @param claim rewrites the object under the token, so that a late copy of the write is refused.
   *   Returns the claim's write id
   */
  async settle(
    writeId: string,
    key: string,
    signal: AbortSignal | undefined,
    claim: (token: bigint) => Promise<string>,
  ): Promise<Settlement> {
    const write = this.#byId.get(writeId);
    let claimId: string | undefined;
    for (;;) {
      const seen = await this.#objects.stamp(key, signal);
      if (write === undefined)
        return seen && (seen.writeId === writeId || hasInHistory(seen, writeId))
          ? 'applied'
          : 'unknown';
      const isBegunHere =
        write.base === null && seen !== null && !!claimId && isCreatedBy(seen, claimId);
      const outcome = isBegunHere ? 'lost' : resolveOutcome(write, seen, 'later');
      if (outcome === 'unknown') return outcome;
      if (outcome !== 'pending') {
        this.#byId.delete(writeId);
        return outcome === 'lost' ? 'not-applied' : 'applied';
      }
      try {
        claimId = await claim(write.token);
      } catch (error) {
        // If the object cannot be rewritten, a late copy may still be applied.
        if (error instanceof OutcomeUnknownError || error instanceof UnsupportedByStoreError)
          return 'unknown';
        // A later holder has written. So the server refuses the late copy, too.
        if (!(error instanceof StaleTokenError)) throw error;
      }
    }
  }
}
