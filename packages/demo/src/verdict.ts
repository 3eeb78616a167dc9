import type { Event, Lines } from './history.js';

/**
 * What a history shows:
 *
 * - `safe`: every acknowledged update is in the final state, and nothing that was refused is.
 * - `lost`: an acknowledged update is missing: an older value replaced a newer one, or an older token a newer.
 * - `phantom`: a refused update is in the final state, or an update is there twice.
 * - `disorder`: a lease acquired later carries a token that is not higher.
 * - `refused`: both clients found the store unsafe before they wrote, and nothing was written.
 * - `unknown`: nothing was put to the test, so nothing was shown. Never read it as a pass.
 */
export type Verdict = 'safe' | 'refused' | 'lost' | 'phantom' | 'disorder' | 'unknown';

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
  return (
    tokenDisorder(events) ??
    lostUpdate(acknowledged, final.lines) ??
    loweredToken(events, final) ??
    phantom(updates, final.lines) ?? {
      verdict: 'safe',
      reason: summary(updates),
    }
  );
}

function lostUpdate(acknowledged: readonly Update[], final: Lines): Judgement | null {
  const missing = acknowledged.find((update) => !final.includes(update.line));
  if (!missing) return null;
  return {
    verdict: 'lost',
    reason: `the update of ${missing.actor} was acknowledged and is not in the document`,
  };
}

/** Whoever wrote and was acknowledged has shown the storage its token, which must not have forgotten it. */
function loweredToken(events: readonly Event[], { token }: Event): Judgement | null {
  if (token === undefined) return null;
  const shown = events.filter(({ operation, phase }) => operation === 'write' && phase === 'ok');
  const tokens = shown.flatMap((write) => {
    const held = events.findLast(
      (event) =>
        event.operation === 'acquire' &&
        event.phase === 'ok' &&
        event.actor === write.actor &&
        event.atMs <= write.atMs,
    );
    return held?.token === undefined ? [] : [BigInt(held.token)];
  });
  const forgotten = tokens.find((seen) => seen > BigInt(token));
  return forgotten === undefined
    ? null
    : {
        verdict: 'lost',
        reason: `token ${forgotten} was acknowledged, and the storage holds ${token}: an older holder's write replaced a newer one's`,
      };
}

function phantom(updates: readonly Update[], final: Lines): Judgement | null {
  const refused = updates.find(({ outcome, line }) => isRefusal(outcome) && final.includes(line));
  if (refused) {
    return {
      verdict: 'phantom',
      reason: `the refused update of ${refused.actor} is in the document`,
    };
  }
  const twice = final.find((line, at) => final.indexOf(line) !== at);
  return twice === undefined
    ? null
    : { verdict: 'phantom', reason: `an update is there twice: ${twice}` };
}

/** Only leases of which one was acquired before the other was asked for are ordered. */
function tokenDisorder(events: readonly Event[]): Judgement | null {
  const leases = acquisitions(events);
  for (const earlier of leases) {
    const later = leases.find(
      (other) => other.askedMs > earlier.heldMs && other.token <= earlier.token,
    );
    if (later) {
      return {
        verdict: 'disorder',
        reason: `token ${later.token} was given after token ${earlier.token}`,
      };
    }
  }
  return null;
}

function acquisitions(events: readonly Event[]) {
  const ofAcquire = events.filter((event) => event.operation === 'acquire');
  return ofAcquire.flatMap((held) => {
    if (held.phase !== 'ok' || held.token === undefined) return [];
    const asked = ofAcquire.find((event) => event.actor === held.actor && event.phase === 'invoke');
    return [{ askedMs: asked?.atMs ?? 0, heldMs: held.atMs, token: BigInt(held.token) }];
  });
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
