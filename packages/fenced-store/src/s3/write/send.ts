import type { VersionIds } from '../../core/capabilities.js';
import { classify } from '../../core/classify.js';
import { OutcomeUnknownError } from '../../core/errors.js';
import { type ConditionalWrite, resolveOutcome } from '../../core/resolve.js';
import type { Stored } from '../../core/stored.js';
import { factsOf } from '../http/explain.js';
import type { WriteReply } from '../http/put.js';
import type { Requests } from '../http/requests.js';
import { Retries, type Runtime } from '../runtime.js';

/** Number of times that one write is sent, unless the server throttles. */
const SENDS_MAX = 6;

/** The replies after which a write may have been applied, or may still be applied later. */
const DOUBTFUL: ReadonlySet<string> = new Set(['applied', 'ambiguous', 'throttled', 'unseen']);

/** Sends a write once, always under the same condition. */
export type Send = () => Promise<WriteReply>;

/** Sends a write by `sendOnce`, as often as needed, until its outcome is certain. */
export type UntilResolved = (sendOnce: Send) => Promise<SendResult>;

/**
 * The outcome of a write: applied, or lost to the object `seen`. `version` is null if other writes
 * have replaced the applied one. `versionIds` is known from a reply only, not from reading back.
 */
export type SendResult =
  | {
      readonly applied: true;
      readonly version: string | null;
      readonly versionIds?: VersionIds | undefined;
    }
  | { readonly applied: false; readonly seen: Stored | null };

/**
 * Sends one write until its outcome is certain.
 *
 * Only a plain success is believed at once. After any other reply, the object is read back, and
 * `resolveOutcome` decides. While the object is as before, the write is sent again under the same
 * condition. If an earlier copy is still on its way, one of the two is refused.
 *
 * The caller's signal ends the sending, and not the reading back, which has its own time limit:
 * an aborted caller must know the outcome, too.
 *
 * @throws {OutcomeUnknownError} if a reply was lost, and reading back did not decide.
 * @throws {StoreSetupError} {@link UnsupportedByStoreError} {@link StoreUnavailableError} the
 *   signal's reason: nothing was applied.
 */
export async function sendUntilResolved(
  requests: Requests,
  write: ConditionalWrite & { readonly key: string },
  send: Send,
  runtime: Runtime,
  signal?: AbortSignal,
): Promise<SendResult> {
  const { key, writeId } = write;
  const unknown = (cause: unknown): OutcomeUnknownError =>
    new OutcomeUnknownError({ resource: key, writeId, store: 's3', canSettle: true }, { cause });
  const retries = new Retries(runtime, SENDS_MAX);
  let isDoubtful = false;
  for (;;) {
    if (signal?.aborted) throw isDoubtful ? unknown(signal.reason) : signal.reason;
    const reply = await send();
    if ('versionIds' in reply && reply.version !== undefined)
      return { applied: true, version: reply.version, versionIds: reply.versionIds };
    // A success without an ETag does not come from S3, and proves nothing.
    isDoubtful ||= DOUBTFUL.has(reply.meaning);
    const error = 'error' in reply ? reply.error : undefined;
    if (!isDoubtful && reply.meaning !== 'refused' && reply.meaning !== 'unreachable') {
      signal?.throwIfAborted();
      throw error;
    }
    const read = await readBack(requests, key);
    // A refusal alone proves nothing: a proxy that sent the write twice passes on the second reply.
    isDoubtful ||= 'error' in read && reply.meaning === 'refused';
    const evidence = isDoubtful ? 'doubtful' : 'refused';
    const outcome = 'error' in read ? 'pending' : resolveOutcome(write, read.seen, evidence);
    switch (outcome) {
      case 'applied':
        return { applied: true, version: read.seen?.version ?? null };
      case 'replaced':
        return { applied: true, version: null };
      case 'lost':
        return { applied: false, seen: read.seen };
      case 'unknown':
        throw unknown(signal?.aborted ? signal.reason : error);
      case 'pending':
        break;
    }
    // Sends the same write again, unless that was the last attempt.
    const isThrottled = reply.meaning === 'throttled' || read.isThrottled;
    // The top of the loop handles an abort.
    if (!(await retries.next(isThrottled, signal).catch(() => true))) {
      if (isDoubtful) throw unknown(error);
      if ('error' in read) throw read.error;
      if (reply.meaning === 'unreachable') throw error;
      return { applied: false, seen: read.seen };
    }
    requests.sender.publishRetry(key, retries.made, reply);
  }
}

interface ReadBack {
  readonly seen: Stored | null;
  readonly isThrottled: boolean;
  /** Set if the read failed. */
  readonly error?: unknown;
}

async function readBack(requests: Requests, key: string): Promise<ReadBack> {
  try {
    // Not patient: the loop of `sendUntilResolved` waits for a server that throttles.
    const head = await requests.head(key, undefined, false);
    return { seen: head?.stored ?? null, isThrottled: false };
  } catch (error) {
    const { cause } = error as { readonly cause?: unknown };
    const meaning = classify({ operation: 'head', sent: 'yes', ...factsOf(cause) });
    return { seen: null, isThrottled: meaning === 'throttled', error };
  }
}
