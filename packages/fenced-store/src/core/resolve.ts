import { HISTORY_MAX, hasInHistory, type Stamp, type Stored } from './stored.js';

/** A conditional write. It replaces `base`, or creates the object if `base` is null. */
export interface ConditionalWrite extends Stamp {
  readonly base: Stored | null;
}

/**
 * The outcome of a write, according to the stored object:
 *
 * - `applied`: the write is the stored object.
 * - `replaced`: the write was applied, and other writes followed.
 * - `pending`: the base is still stored, or the read shows an object that is older than the base.
 *   A copy of the write that is on its way may be applied.
 * - `lost`: another write replaced the base. This one was not applied and never will be.
 * - `unknown`: too many writes followed to tell.
 */
export type Outcome = 'applied' | 'replaced' | 'pending' | 'lost' | 'unknown';

/**
 * The replies to the write so far, and the time of the read:
 *
 * - `refused`: nothing but refusals.
 * - `doubtful`: a reply was lost, or was one that servers also give to applied writes.
 * - `later`: the call has ended, at any time before.
 */
export type Evidence = 'refused' | 'doubtful' | 'later';

/**
 * Decides the outcome of a write from the stored object.
 *
 * Invariant: a write id is sent under one condition only, which names one version, or no object.
 * Each version is made by one write id, so it is the current one only once, without a break.
 * Whichever write replaces it, all other writes that name the version are refused from then on.
 * Therefore, whatever the reply was:
 *
 * 1. Our id is stored, or is in the history: applied, once.
 * 2. The base is stored: not applied so far. Sending the write again cannot apply it twice. If the
 *    object is in the history of the base, the read is older than the base, and says nothing. It
 *    came from a cache, or from a site that lags behind.
 * 3. The history has the base and not our id: another write replaced the base, so ours never will.
 *    A whole history without our id says the same of a write that creates the object.
 * 4. The stored token is between that of the base and ours. Tokens never go down, so the read is
 *    newer than the base, and our write was never there.
 *
 * The second half of 3, and 4, need that no other program removes or overwrites the object. That is
 * assumed only while the call runs. At any time after it, our write may have been applied, and then
 * removed. A history that began anew says nothing of it. For the same reason an object proves
 * nothing if it is gone, or foreign, or if its token is lower than that of the base.
 *
 * Otherwise the history does not reach the base, and the outcome is unknown. A refusal alone does
 * not decide it: a proxy may repeat a request, and pass on the second reply although the first copy
 * was applied. A refusal is believed only if the stored token is lower than that of the base. The
 * caller's write then fails with `RatchetLostError`, because a writer went around this library.
 */
export function resolveOutcome(
  write: ConditionalWrite,
  seen: Stored | null,
  evidence: Evidence,
): Outcome {
  const { base } = write;
  if (seen?.writeId === write.writeId) return 'applied';
  if (seen && hasInHistory(seen, write.writeId)) return 'replaced';
  if (seen?.writeId === base?.writeId) return 'pending';
  if (seen && base && hasInHistory(base, seen.writeId)) return 'pending';
  if (seen && base && hasInHistory(seen, base.writeId)) return 'lost';
  if (evidence === 'later') return 'unknown';
  const baseToken = base?.token ?? 0n;
  if ((seen?.token ?? 0n) < baseToken) return evidence === 'refused' ? 'lost' : 'unknown';
  if (seen === null || seen.token === 0n) return 'unknown';
  if (seen.token > baseToken && seen.token < write.token) return 'lost';
  return base === null && seen.before.length < HISTORY_MAX ? 'lost' : 'unknown';
}
