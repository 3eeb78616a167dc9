import { HISTORY_MAX, isUpon, type Stamp, type Stored } from './stored.js';

/** One conditional write: it may only replace `base`, or only create the object where `base` is null. */
export interface Intent extends Stamp {
  readonly base: Stored | null;
}

/**
 * - `applied`: our write is what is stored.
 * - `replaced`: our write was applied and others have built upon it since.
 * - `pending`: what we wanted to replace is still there. A copy of our write on its way may yet be applied.
 * - `lost`: another write took the place of ours, which was not applied and never will be.
 * - `unknown`: too many writes have followed to tell.
 */
export type Fate = 'applied' | 'replaced' | 'pending' | 'lost' | 'unknown';

/**
 * Judges what became of a write by what is stored now. `doubtful` says that a reply to it was lost, or was one that servers
 * also give for a write they applied.
 *
 * Invariant: a write id is sent under one condition only, and that condition names one version (or the object's absence).
 * Every version is made by one write id, so it is current once, without a break; whichever write ends that time, no copy
 * of any other write upon the same version can be applied after it. Hence these certainties, whatever the reply was:
 *
 * 1. Our id is stored or stands in the history: applied, once.
 * 2. The base is still stored: not applied so far; sending the same write again cannot apply it twice.
 * 3. The history holds the base but not us: some other write replaced the base, so ours never can.
 *    (A whole history without us, where we meant to create the object, says the same.)
 * 4. The token stored now is lower than ours: tokens never go down, so ours was never there. This holds only while all
 *    go through this library: where the object is gone, foreign, or its token lower than that of the base, it proves nothing.
 *
 * Otherwise the history no longer reaches back to the base, and the outcome is unknown. A lone refusal does not settle it:
 * a proxy that repeats a request by itself passes on the answer to its second copy, and the first may have been applied.
 * It is believed only where the token is lower than that of the base: the writer then reports that somebody went round
 * this library.
 */
export function judge(intent: Intent, seen: Stored | null, doubtful: boolean): Fate {
  const { base } = intent;
  if (seen?.writeId === intent.writeId) return 'applied';
  if (seen && isUpon(seen, intent.writeId)) return 'replaced';
  if (seen?.writeId === base?.writeId) return 'pending';
  if ((seen?.token ?? 0n) < (base?.token ?? 0n)) return doubtful ? 'unknown' : 'lost';
  if (seen === null || seen.token === 0n) return 'unknown';
  if (seen.token < intent.token) return 'lost';
  const reachesBase = base === null ? seen.before.length < HISTORY_MAX : isUpon(seen, base.writeId);
  return reachesBase ? 'lost' : 'unknown';
}
