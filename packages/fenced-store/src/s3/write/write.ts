import type { VersionIds } from '../../core/capabilities.js';
import { classify } from '../../core/classify.js';
import { OutcomeUnknownError } from '../../core/errors.js';
import { judge } from '../../core/settle.js';
import type { Stored } from '../../core/stored.js';
import { factsOf } from '../http/failures.js';
import type { Put, WriteReply } from '../http/put.js';
import type { Requests } from '../http/requests.js';
import { Retries, type Runtime } from '../runtime.js';

/** How often one write is sent before its outcome is given up on, unless the server throttles. */
const SENDS_MAX = 6;

/** The replies after which a write may have been applied, or may yet be. */
const DOUBTFUL: ReadonlySet<string> = new Set(['applied', 'ambiguous', 'throttled', 'unseen']);

/** A write that is under way, and the object that it may replace, which its condition names. */
export interface Write extends Put {
  readonly base: Stored | null;
  /** Sends it once, always under the same condition. */
  readonly send: () => Promise<WriteReply>;
}

/**
 * What a write came to: applied, where `version` is null if others have replaced it since; or lost to what was seen.
 * `versionIds` is what the reply showed, where there was one.
 */
export type Result =
  | {
      readonly applied: true;
      readonly version: string | null;
      readonly versionIds?: VersionIds | undefined;
    }
  | { readonly applied: false; readonly seen: Stored | null };

/**
 * Sends one write until its fate is certain.
 *
 * Only a plain success is believed at once. After anything else the object is read back, and `judge` says what became of
 * the write. While the object is what it was before, the same write is sent again under the same condition: should an
 * earlier copy be on its way still, one of the two is refused.
 *
 * The caller's signal ends the sending, not the reading back: that has its own time limit, since an aborted caller, too,
 * wants to know.
 *
 * @throws {OutcomeUnknownError} where a reply was lost and reading back did not settle it.
 * @throws {StoreSetupError} {@link UnsupportedByStoreError} {@link StoreUnavailableError} the signal's reason:
 *   nothing was applied.
 */
export async function settle(
  requests: Requests,
  write: Write,
  runtime: Runtime,
  signal?: AbortSignal,
): Promise<Result> {
  const intent = { ...write.stored, base: write.base };
  const unknown = (cause: unknown): OutcomeUnknownError =>
    new OutcomeUnknownError(
      { resource: write.key, writeId: intent.writeId, store: 's3', canSettle: true },
      { cause },
    );
  const retries = new Retries(runtime, SENDS_MAX);
  let doubtful = false;
  for (;;) {
    if (signal?.aborted) throw doubtful ? unknown(signal.reason) : signal.reason;
    const reply = await write.send();
    if ('versionIds' in reply && reply.version !== undefined)
      return { applied: true, version: reply.version, versionIds: reply.versionIds };
    // A success without an ETag is no S3's; it says nothing until it is read back.
    doubtful ||= DOUBTFUL.has(reply.meaning);
    const error = 'error' in reply ? reply.error : undefined;
    if (!doubtful && reply.meaning !== 'refused' && reply.meaning !== 'unreachable') {
      signal?.throwIfAborted();
      throw error;
    }
    const read = await readBack(requests, write.key);
    // A refusal alone proves nothing: a proxy that sent our request twice passes on the second answer.
    doubtful ||= !read.ok && reply.meaning === 'refused';
    switch (read.ok ? judge(intent, read.seen, doubtful) : 'pending') {
      case 'applied':
        return { applied: true, version: read.seen?.version ?? null };
      case 'replaced':
        return { applied: true, version: null };
      case 'lost':
        return { applied: false, seen: read.seen };
      case 'unknown':
        throw unknown(signal?.aborted ? signal.reason : error);
    }
    const isThrottled = reply.meaning === 'throttled' || read.isThrottled;
    // An abort is seen to at the top of the loop.
    if (!(await retries.next(isThrottled, signal).catch(() => true))) {
      if (doubtful) throw unknown(error);
      if (!read.ok) throw read.error;
      if (reply.meaning === 'unreachable') throw error;
      return { applied: false, seen: read.seen };
    }
    requests.sender.publishRetry(write.key, retries.made, reply);
  }
}

type Read =
  | { readonly ok: true; readonly seen: Stored | null; readonly isThrottled: false }
  | {
      readonly ok: false;
      readonly seen: null;
      readonly isThrottled: boolean;
      readonly error: unknown;
    };

async function readBack(requests: Requests, key: string): Promise<Read> {
  try {
    // The loop above waits for a server that throttles: for the write and for this.
    const seen = await requests.head(key, undefined, false);
    return { ok: true, seen, isThrottled: false };
  } catch (error) {
    const { cause } = error as { readonly cause?: unknown };
    const meaning = classify({ operation: 'head', sent: 'yes', ...factsOf(cause) });
    return { ok: false, seen: null, isThrottled: meaning === 'throttled', error };
  }
}
