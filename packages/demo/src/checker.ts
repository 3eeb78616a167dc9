import type { Event, Lines } from './history.js';
import { type BelievedLease, leasesIn, tokenDisorder, twoHolders } from './leases.js';

/**
 * Outcome of a history:
 *
 * - `safe`: every acknowledged update is in the final state, and no refused one is.
 * - `lost`: an acknowledged update is missing, or an older token replaced a newer one.
 * - `two holders`: an acknowledged update is missing, and two clients believed in their leases at
 *   the same time, so the lock failed.
 * - `phantom`: a refused update is in the final state, or an update is there twice.
 * - `disorder`: two leases have the same token, or a later lease has a lower one.
 * - `refused`: both clients found the store unsafe, and wrote nothing.
 * - `unknown`: nothing was tested. It never counts as a pass.
 */
export type Verdict =
  | 'safe'
  | 'refused'
  | 'lost'
  | 'two holders'
  | 'phantom'
  | 'disorder'
  | 'unknown';

export interface CheckResult {
  readonly verdict: Verdict;
  /** One sentence. */
  readonly reason: string;
}

/** One client's update, according to the history. */
interface Update {
  readonly actor: string;
  readonly line: string;
  readonly outcome: Event['phase'];
}

/**
 * Decides from the history alone. The protection and the expected verdict are not known here.
 *
 * @param missing the missing step, if the story did not happen; the verdict is `unknown` then
 */
export function checkHistory(events: readonly Event[], missing: string | null): CheckResult {
  if (missing !== null)
    return { verdict: 'unknown', reason: `the story did not happen: ${missing}` };
  const final = events.find((event) => event.operation === 'final' && event.phase === 'ok');
  if (!final?.lines) return { verdict: 'unknown', reason: 'the final state was not read' };

  const updates = updatesIn(events);
  const acknowledged = updates.filter((update) => update.outcome === 'ok');
  if (acknowledged.length === 0) {
    const isRefused = events.some(({ operation, phase }) => {
      return operation === 'probe' && phase === 'refused';
    });
    if (isRefused && updates.length === 0 && final.lines.length === 0)
      return { verdict: 'refused', reason: 'no client wrote, because the store is unsafe' };
    return { verdict: 'unknown', reason: 'no update was acknowledged' };
  }
  const leases = leasesIn(events);
  const shared = twoHolders(leases);
  const disorder = tokenDisorder(leases);
  const lost = lostUpdate(acknowledged, final.lines);
  if (lost !== null) {
    // Tokens in order tell two holders apart. If they are in disorder, the tokens failed, not only
    // the lock.
    return {
      verdict: shared && !disorder ? 'two holders' : 'lost',
      reason: join(shared, disorder, lost),
    };
  }
  const forgotten = forgottenToken(events, leases, final);
  if (forgotten !== null) return { verdict: 'lost', reason: join(disorder, forgotten) };
  const phantom = phantomUpdate(updates, final.lines);
  if (phantom !== null) return { verdict: 'phantom', reason: phantom };
  if (disorder !== null) return { verdict: 'disorder', reason: disorder };
  return { verdict: 'safe', reason: join(shared, summary(events, updates)) };
}

function join(...clauses: readonly (string | null)[]): string {
  return clauses.filter((clause) => clause !== null).join('; ');
}

function lostUpdate(acknowledged: readonly Update[], final: Lines): string | null {
  const missing = acknowledged.find((update) => !final.includes(update.line));
  return missing
    ? `the update of ${missing.actor} was acknowledged and is not in the document`
    : null;
}

/** Invariant: the storage's final token is at least the token of every acknowledged write. */
function forgottenToken(
  events: readonly Event[],
  leases: readonly BelievedLease[],
  { token: highest }: Event,
): string | null {
  if (highest === undefined) return null;
  const presented = events
    .filter(({ operation, phase }) => operation === 'write' && phase === 'ok')
    .map((write) =>
      leases.findLast(({ actor, fromMs }) => actor === write.actor && fromMs <= write.atMs),
    );
  const forgotten = presented.find((lease) => (lease?.token ?? 0n) > BigInt(highest));
  return forgotten
    ? `token ${forgotten.token} was acknowledged, and the storage holds ${highest}: an older holder's write replaced a newer one's`
    : null;
}

function phantomUpdate(updates: readonly Update[], final: Lines): string | null {
  const refused = updates.find(({ outcome, line }) => isRefusal(outcome) && final.includes(line));
  if (refused) return `the refused update of ${refused.actor} is in the document`;
  const twice = final.find((line, at) => final.indexOf(line) !== at);
  return twice === undefined ? null : `an update is there twice: ${twice}`;
}

/** Returns each client's last edit, with the last phase of its write as the outcome. */
function updatesIn(events: readonly Event[]): Update[] {
  const actors = new Set(events.map((event) => event.actor));
  return [...actors].flatMap((actor) => {
    const own = events.filter((event) => event.actor === actor);
    const line = own.findLast((event) => event.operation === 'check')?.lines?.at(-1);
    const write = own.findLast((event) => event.operation === 'write');
    return line !== undefined && write ? [{ actor, line, outcome: write.phase }] : [];
  });
}

function isClient(actor: string): boolean {
  return actor.startsWith('client');
}

function isRefusal(outcome: Event['phase']): boolean {
  return outcome === 'refused' || outcome === 'failed';
}

function summary(events: readonly Event[], updates: readonly Update[]): string {
  const actors = new Set(events.map(({ actor }) => actor).filter((actor) => isClient(actor)));
  const idle = [...actors].filter((actor) => updates.every((update) => update.actor !== actor));
  const outcomes = [
    ...updates.map(({ actor, outcome }) => `${actor} ${words[outcome]}`),
    ...idle.map((actor) => `${actor} wrote nothing`),
  ];
  return `${outcomes.join(', ')}, and the document agrees`;
}

const words: Record<Event['phase'], string> = {
  ok: 'was acknowledged',
  refused: 'was refused',
  failed: 'gave up',
  unknown: 'does not know its outcome',
  invoke: 'got no reply',
};
