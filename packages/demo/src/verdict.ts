import type { Event, Lines } from './history.js';
import { type BelievedLease, leasesIn, tokenDisorder, twoHolders } from './leases.js';

/**
 * What a history shows:
 *
 * - `safe`: every acknowledged update is in the final state, and nothing that was refused is.
 * - `lost`: an acknowledged update is missing: an older value replaced a newer one, or an older token a newer.
 * - `two holders`: an acknowledged update is missing, and two clients believed in their leases at the same time: it was
 *   the lock that failed.
 * - `phantom`: a refused update is in the final state, or an update is there twice.
 * - `disorder`: two leases carry the same token, or one acquired later carries a lower one.
 * - `refused`: both clients found the store unsafe before they wrote, and nothing was written.
 * - `unknown`: nothing was put to the test, so nothing was shown. Never read it as a pass.
 */
export type Verdict =
  | 'safe'
  | 'refused'
  | 'lost'
  | 'two holders'
  | 'phantom'
  | 'disorder'
  | 'unknown';

export interface Judgement {
  readonly verdict: Verdict;
  /** One sentence. */
  readonly reason: string;
}

/** One client's update as the history tells it. */
interface Update {
  readonly actor: string;
  readonly line: string;
  readonly outcome: Event['phase'];
}

/**
 * Judges a history and nothing else: it knows neither the protection nor what is expected.
 *
 * @param happened whether the story took place; where it did not, the verdict is `unknown`
 */
export function judge(events: readonly Event[], happened: string | null): Judgement {
  if (happened !== null)
    return { verdict: 'unknown', reason: `the story did not happen: ${happened}` };
  const final = events.find((event) => event.operation === 'final' && event.phase === 'ok');
  if (!final?.lines) return { verdict: 'unknown', reason: 'the final state was not read' };

  const updates = updatesIn(events);
  const acknowledged = updates.filter((update) => update.outcome === 'ok');
  if (acknowledged.length === 0) {
    const refusals = events.filter(
      (event) => event.operation === 'probe' && event.phase === 'refused',
    );
    if (refusals.length > 0 && updates.length === 0 && final.lines.length === 0)
      return { verdict: 'refused', reason: 'nobody wrote: the store was found unsafe before' };
    return { verdict: 'unknown', reason: 'no update was acknowledged' };
  }
  const leases = leasesIn(events);
  const shared = twoHolders(leases);
  const disorder = tokenDisorder(leases);
  const lost = lostUpdate(acknowledged, final.lines);
  if (lost !== null) {
    // Where the tokens did not tell the holders apart, it is the tokens that failed.
    return {
      verdict: shared && !disorder ? 'two holders' : 'lost',
      reason: tell(shared, disorder, lost),
    };
  }
  const forgotten = forgottenToken(events, leases, final);
  if (forgotten !== null) return { verdict: 'lost', reason: tell(disorder, forgotten) };
  const there = phantom(updates, final.lines);
  if (there !== null) return { verdict: 'phantom', reason: there };
  if (disorder !== null) return { verdict: 'disorder', reason: disorder };
  return { verdict: 'safe', reason: tell(shared, summary(updates)) };
}

/** The clauses that there are, as one sentence. */
function tell(...clauses: readonly (string | null)[]): string {
  return clauses.filter((clause) => clause !== null).join('; ');
}

function lostUpdate(acknowledged: readonly Update[], final: Lines): string | null {
  const missing = acknowledged.find((update) => !final.includes(update.line));
  return missing
    ? `the update of ${missing.actor} was acknowledged and is not in the document`
    : null;
}

/** Whoever wrote and was acknowledged has shown the storage its token, which must not have forgotten it. */
function forgottenToken(
  events: readonly Event[],
  leases: readonly BelievedLease[],
  { token: highest }: Event,
): string | null {
  if (highest === undefined) return null;
  const shown = events
    .filter(({ operation, phase }) => operation === 'write' && phase === 'ok')
    .map((write) =>
      leases.findLast(({ actor, fromMs }) => actor === write.actor && fromMs <= write.atMs),
    );
  const forgotten = shown.find((lease) => (lease?.token ?? 0n) > BigInt(highest));
  return forgotten
    ? `token ${forgotten.token} was acknowledged, and the storage holds ${highest}: an older holder's write replaced a newer one's`
    : null;
}

function phantom(updates: readonly Update[], final: Lines): string | null {
  const refused = updates.find(({ outcome, line }) => isRefusal(outcome) && final.includes(line));
  if (refused) return `the refused update of ${refused.actor} is in the document`;
  const twice = final.find((line, at) => final.indexOf(line) !== at);
  return twice === undefined ? null : `an update is there twice: ${twice}`;
}

/** The last value that each client wanted to write has its line; the last phase of its write is the outcome. */
function updatesIn(events: readonly Event[]): Update[] {
  const actors = new Set(events.map((event) => event.actor));
  return [...actors].flatMap((actor) => {
    const own = events.filter((event) => event.actor === actor);
    const line = own.findLast((event) => event.operation === 'check')?.lines?.at(-1);
    const write = own.findLast((event) => event.operation === 'write');
    return line !== undefined && write ? [{ actor, line, outcome: write.phase }] : [];
  });
}

function isRefusal(outcome: Event['phase']): boolean {
  return outcome === 'refused' || outcome === 'failed';
}

function summary(updates: readonly Update[]): string {
  const told = updates.map(({ actor, outcome }) => `${actor} ${words[outcome]}`);
  return `${told.join(', ')}, and the document says the same`;
}

const words: Record<Event['phase'], string> = {
  ok: 'was acknowledged',
  refused: 'was refused',
  failed: 'gave up',
  unknown: 'does not know',
  invoke: 'never heard',
};
