import { LeaseLostError } from '../core/errors.js';
import type { LockHandle, ReleaseOutcome } from '../lease/transport.js';

/** A character that no owner id has. */
const SEPARATOR = '.';

/** Splits the owner id of a set into the owner ids of its `count` parts. */
export function ownersOf(owner: string, count: number): readonly string[] {
  const owners = owner.split(SEPARATOR);
  // If the id is not of such a set, the services answer that its owner holds nothing.
  return Array.from({ length: count }, (_, at) => owners[at] ?? owner);
}

/** The locks of a set, one for each of its virtual services, under one token. */
export class SetHandle implements LockHandle {
  readonly resources: readonly string[];
  readonly token: bigint;
  readonly deadlineMs: number;
  readonly #parts: readonly LockHandle[];

  constructor(parts: readonly LockHandle[], token: bigint, deadlineMs: number) {
    this.resources = parts.flatMap(({ resources }) => resources).toSorted();
    this.token = token;
    this.deadlineMs = deadlineMs;
    this.#parts = parts;
  }

  get owner(): string {
    return this.#parts.map(({ owner }) => owner).join(SEPARATOR);
  }

  share(): string {
    return this.#parts.map((part) => part.share?.() ?? part.owner).join(SEPARATOR);
  }

  async extend(ttlMs: number): Promise<number> {
    try {
      return Math.min(...(await Promise.all(this.#parts.map((part) => part.extend(ttlMs)))));
    } catch (error) {
      // One lock is lost, so the lease is over. The other locks would only block the next holder.
      if (error instanceof LeaseLostError) void this.release();
      throw error;
    }
  }

  async release(): Promise<ReleaseOutcome> {
    return worst(await Promise.all(this.#parts.map((part) => part.release())));
  }
}

/** The outcome of a set: `unknown` or `expired` if that is so for one of its parts. */
export function worst(outcomes: readonly ReleaseOutcome[]): ReleaseOutcome {
  if (outcomes.includes('unknown')) return 'unknown';
  return outcomes.includes('expired') ? 'expired' : 'released';
}
