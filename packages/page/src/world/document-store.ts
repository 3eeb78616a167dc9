import type { Lines } from '../../../demo/src/history.ts';
import { StaleTokenError } from '../../../fenced-store/src/core/errors.ts';
import { refuseStale } from '../../../fenced-store/src/core/ratchet.ts';
import { resolveOutcome } from '../../../fenced-store/src/core/resolve.ts';
import { historyAfter, type Stored } from '../../../fenced-store/src/core/stored.ts';

/**
 * The document, as one request sees it. `base` describes the latest write, and is null before the
 * first write.
 */
export interface Snapshot {
  readonly lines: Lines;
  readonly base: Stored | null;
}

export interface Write {
  readonly lines: Lines;
  readonly writeId: string;
  /** Null if the write presents none. */
  readonly token: bigint | null;
  /** The only value that the write may replace. Without it, the write may replace any value. */
  readonly upon?: Snapshot;
  /** Compares `upon` by its bytes, as an ETag does, and not by its write id and token. */
  readonly byETag?: boolean;
}

/** `comparison` shows the two numbers, as in `33 < 34: refused`. */
export interface WriteReply {
  readonly outcome: 'applied' | 'stale' | 'changed';
  readonly comparison: string;
  /** Of a stale token: the highest that the storage has seen. */
  readonly highest?: bigint;
}

/**
 * The storage of one document. Each request is one atomic step, as a transaction of
 * `FencedPostgres` is. The comparison of the tokens is the rule that `@fenced/store` ships.
 */
export class DocumentStore {
  /** True for a server that ignores conditions, and answers every write with success. */
  readonly #ignoresConditions: boolean;
  #now: Snapshot = { lines: [], base: null };

  constructor(ignoresConditions: boolean) {
    this.#ignoresConditions = ignoresConditions;
  }

  get enforcesConditions(): boolean {
    return !this.#ignoresConditions;
  }

  read(): Snapshot {
    return this.#now;
  }

  write(write: Write): WriteReply {
    const reply = this.#write(write);
    const { token, writeId, upon, byETag } = write;
    if (reply.outcome === 'applied' || token === null || byETag) return reply;
    // The network may deliver a request twice, and the storage then refuses the second copy. But
    // `FencedS3` reads back, and finds its own write id.
    const base = upon?.base ?? null;
    const before = resolveOutcome({ token, writeId, base }, this.#now.base, 'doubtful');
    if (before !== 'applied' && before !== 'replaced') return reply;
    return { outcome: 'applied', comparison: `${reply.comparison}, own write id` };
  }

  #write(write: Write): WriteReply {
    const { token, upon } = write;
    const { base } = this.#now;
    if (upon && write.byETag) {
      if (etag(upon) !== etag(this.#now) && !this.#ignoresConditions)
        return { outcome: 'changed', comparison: 'ETag differs: refused' };
      return this.#apply(
        write,
        this.#ignoresConditions ? 'no check: applied' : 'ETag fits: applied',
      );
    }
    if (token === null) return this.#apply(write, 'no token: applied');
    try {
      refuseStale('document', token, base);
    } catch (error) {
      if (!(error instanceof StaleTokenError)) throw error;
      const { highest } = error;
      return { outcome: 'stale', highest, comparison: `${token} < ${highest}: refused` };
    }
    if (upon && upon.base?.version !== base?.version)
      return { outcome: 'changed', comparison: 'the value has changed: refused' };
    return this.#apply(write, `${token} ≥ ${base?.token ?? 0}: applied`);
  }

  /** Raises the highest token, and leaves the value as it is. */
  claim(token: bigint, writeId: string): WriteReply {
    const reply = this.#write({ lines: this.#now.lines, token, writeId });
    return { ...reply, comparison: reply.comparison.replace('applied', 'claimed') };
  }

  #apply({ lines, writeId, token }: Write, comparison: string): WriteReply {
    const { base } = this.#now;
    const stored: Stored = {
      token: token ?? 0n,
      writeId,
      version: writeId,
      before: historyAfter(base),
      state: 'live',
      layout: 'plain',
    };
    this.#now = { lines, base: stored };
    return { outcome: 'applied', comparison };
  }
}

function etag({ lines, base }: Snapshot): string {
  return base === null ? '' : JSON.stringify(lines);
}
