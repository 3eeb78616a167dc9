import type { VersionIds, WriteEncryption } from '../../core/capabilities.js';
import { classify } from '../../core/classify.js';
import { OutcomeUnknownError } from '../../core/errors.js';
import { type ConditionalWrite, resolveOutcome } from '../../core/resolve.js';
import type { Stored } from '../../core/stored.js';
import { factsOf } from '../http/explain.js';
import type { Put, WriteReply } from '../http/put.js';
import type { Requests } from '../http/requests.js';
import { BASE_AGE_MS_MAX } from '../read/last-seen.js';
import { Retries, type Runtime } from '../runtime.js';

/** Number of times that one write is sent, unless the server throttles. */
const SENDS_MAX = 6;

/** The replies after which a write may have been applied, or may still be applied later. */
const DOUBTFUL: ReadonlySet<string> = new Set(['applied', 'ambiguous', 'throttled', 'unseen']);

/** A write of one id, which is sent under the condition that its base is stored. */
export interface Sending extends ConditionalWrite {
  readonly key: string;
  /** Time before the base was read. */
  readonly readAtMs: number;
  /** Sends the write once, always under the same condition. */
  send(): Promise<WriteReply>;
  /** Asks the server again what it enforces, and in which form it takes conditions. */
  renew(): Promise<void>;
}

/** Sends a write by `sendOnce`, as often as needed, until its outcome is certain. */
export type UntilResolved = (sendOnce: (put: Put) => Promise<WriteReply>) => Promise<SendResult>;

/**
 * The outcome of a write: applied, or lost to the object `seen`. `version` is null if other writes
 * have replaced the applied one. The other facts are known from a reply only.
 */
export type SendResult =
  | {
      readonly applied: true;
      readonly version: string | null;
      readonly versionIds?: VersionIds | undefined;
      readonly encryption?: WriteEncryption | undefined;
    }
  | { readonly applied: false; readonly seen: Stored | null };

/**
 * Sends one write until its outcome is certain.
 *
 * Only a success with the digest of the sent bytes is believed at once: another one may be the
 * reply to another request. After any other reply, the object is read back, and `resolveOutcome`
 * decides. While the object is as before, the write is sent again under the same condition. If an
 * earlier copy is still on its way, one of the two is refused.
 *
 * Invariant: a call names a base by one write id only, unless another write has replaced that base.
 * So an edit cannot be applied twice. If the server refuses the write although the base is stored,
 * a copy of it may be on its way, and be applied later. So the same write is sent again, once more
 * after the server was asked what it enforces. Then the outcome is unknown.
 *
 * If the base was read too long ago, it is read again before anything is sent: so the object's
 * history still reaches it afterwards.
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
  write: Sending,
  runtime: Runtime,
  signal?: AbortSignal,
): Promise<SendResult> {
  const { key, writeId, base } = write;
  const unknown = (cause: unknown): OutcomeUnknownError =>
    new OutcomeUnknownError({ resource: key, writeId, store: 's3', canSettle: true }, { cause });
  if (runtime.nowMs() - write.readAtMs > BASE_AGE_MS_MAX) {
    const seen = await requests.stamp(key, signal);
    if (seen?.writeId !== base?.writeId) return { applied: false, seen };
  }
  let retries = new Retries(runtime, SENDS_MAX);
  let isRenewed = false;
  let isDoubtful = false;
  for (;;) {
    if (signal?.aborted) throw isDoubtful ? unknown(signal.reason) : signal.reason;
    const reply = await write.send();
    const { versionIds, encryption } = 'versionIds' in reply ? reply : {};
    if ('versionIds' in reply && reply.isOfBytes && reply.version !== undefined)
      return { applied: true, version: reply.version, versionIds, encryption };
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
        return { applied: true, version: read.seen?.version ?? null, versionIds, encryption };
      case 'replaced':
        return { applied: true, version: null, versionIds, encryption };
      case 'lost':
        return { applied: false, seen: read.seen };
      case 'unknown':
        throw unknown(signal?.aborted ? signal.reason : error);
      case 'pending':
        // Refused although the base is stored: perhaps because of another copy.
        isDoubtful ||= reply.meaning === 'refused';
        break;
    }
    // Sends the same write again, unless that was the last attempt.
    const isThrottled = reply.meaning === 'throttled' || read.isThrottled;
    // The top of the loop handles an abort.
    if (!(await retries.next(isThrottled, signal).catch(() => true))) {
      if (reply.meaning === 'refused' && !('error' in read) && !isRenewed) {
        isRenewed = true;
        retries = new Retries(runtime, SENDS_MAX);
        await write.renew().catch((cause: unknown) => {
          throw unknown(cause);
        });
      } else if (isDoubtful) throw unknown(error);
      else throw 'error' in read ? read.error : error;
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
