import type { VersionIds, WriteEncryption } from '../../core/capabilities.js';
import { classify } from '../../core/classify.js';
import { OutcomeUnknownError, StoreUnavailableError } from '../../core/errors.js';
import { type ConditionalWrite, type Outcome, resolveOutcome } from '../../core/resolve.js';
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
  | {
      readonly applied: false;
      readonly seen: Stored | null;
      /** True if the write was answered with success, and another one replaced its base. */
      readonly isContradicted?: boolean;
    };

/**
 * Sends one write until its outcome is certain.
 *
 * A fault of the set-up or of the request says that nothing was applied. It is believed if one read
 * does not show the write. A first copy that is still on its way then would make it wrong.
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
    const { reply, read, outcome, ...after } = await attempt(requests, write, isDoubtful);
    const { versionIds, encryption } = 'versionIds' in reply ? reply : {};
    const error = 'error' in reply ? reply.error : undefined;
    isDoubtful = after.isDoubtful;
    switch (outcome) {
      case 'applied':
      case 'replaced': {
        const seen = outcome === 'applied' ? read.seen : null;
        const version = read.isNeeded ? (seen?.version ?? null) : (reply.version ?? null);
        return { applied: true, version, versionIds, encryption };
      }
      case 'lost':
        return { applied: false, seen: read.seen, isContradicted: reply.meaning === 'applied' };
      case 'fault':
        signal?.throwIfAborted();
        throw error;
      case 'unknown':
        throw unknown(signal?.aborted ? signal.reason : error);
    }
    // Sends the same write again, unless that was the last attempt.
    const isThrottled = reply.meaning === 'throttled' || read.isThrottled;
    // The top of the loop handles an abort.
    if (!(await retries.next(isThrottled, signal).catch(() => true))) {
      const isUnchanged = reply.meaning === 'refused' && read.error === undefined;
      if (!isUnchanged || isRenewed) throw isDoubtful ? unknown(error) : (read.error ?? error);
      isRenewed = true;
      retries = new Retries(runtime, SENDS_MAX);
      await write.renew().catch((cause: unknown) => {
        throw unknown(cause);
      });
    }
    requests.sender.publishRetry(key, retries.made, reply);
  }
}

/** One sending of a write, and the read after it. */
interface Attempt {
  readonly reply: WriteReply;
  readonly read: ReadBack;
  /** `fault`: the set-up or the request is wrong, and nothing was applied. */
  readonly outcome: Outcome | 'fault';
  /** True if the write may have been applied, or may still be applied later. */
  readonly isDoubtful: boolean;
}

/** @param wasDoubtful whether an earlier sending may have been, or may be applied */
async function attempt(requests: Requests, write: Sending, wasDoubtful: boolean): Promise<Attempt> {
  const reply = await write.send();
  const { meaning } = reply;
  if ('versionIds' in reply && reply.isOfBytes)
    return { reply, read: UNREAD, outcome: 'applied', isDoubtful: false };
  const isRefused = meaning === 'refused';
  let isDoubtful = wasDoubtful || DOUBTFUL.has(meaning);
  const isFault =
    !isDoubtful && !isRefused && meaning !== 'unreachable' && meaning !== 'unaccepted';
  // Nothing of this was sent.
  if (isFault && meaning === 'client') return { reply, read: UNREAD, outcome: 'fault', isDoubtful };
  const read = await readBack(requests, write.key);
  // An error that says "nothing was applied" proves nothing alone: a proxy that sent the write
  // twice passes on the second reply.
  const saysNo = isFault || meaning === 'unaccepted';
  isDoubtful ||=
    read.error !== undefined &&
    (isRefused || (saysNo && read.error instanceof StoreUnavailableError));
  const evidence = isDoubtful ? 'doubtful' : 'refused';
  const found = read.error === undefined ? resolveOutcome(write, read.seen, evidence) : 'pending';
  const isFound = found === 'applied' || found === 'replaced' || found === 'unknown';
  const outcome = isFault && !isDoubtful && !isFound ? 'fault' : found;
  // Refused although the base is stored: perhaps because of another copy.
  return { reply, read, outcome, isDoubtful: isDoubtful || (isRefused && found === 'pending') };
}

interface ReadBack {
  /** False if the reply to the write decided. */
  readonly isNeeded: boolean;
  readonly seen: Stored | null;
  readonly isThrottled: boolean;
  /** Set if the read failed. */
  readonly error?: unknown;
}

const UNREAD: ReadBack = { isNeeded: false, seen: null, isThrottled: false };

async function readBack(requests: Requests, key: string): Promise<ReadBack> {
  try {
    // Not patient: the loop of `sendUntilResolved` waits for a server that throttles.
    const head = await requests.head(key, undefined, false);
    return { isNeeded: true, seen: head?.stored ?? null, isThrottled: false };
  } catch (error) {
    const { cause } = error as { readonly cause?: unknown };
    const meaning = classify({ operation: 'head', sent: 'yes', ...factsOf(cause) });
    return { isNeeded: true, seen: null, isThrottled: meaning === 'throttled', error };
  }
}
