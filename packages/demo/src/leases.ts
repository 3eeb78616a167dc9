import type { Event } from './history.js';

/** A lease as its holder believed in it, in milliseconds of the history. */
export interface BelievedLease {
  readonly actor: Event['actor'];
  readonly askedMs: number;
  readonly fromMs: number;
  /** The deadline, or the time when the holder began its release. */
  readonly untilMs: number;
  /** Null if the lock issues no tokens. */
  readonly token: bigint | null;
}

export function leasesIn(events: readonly Event[]): readonly BelievedLease[] {
  return events.flatMap((held, at) => {
    if (held.operation !== 'acquire' || held.phase !== 'ok') return [];
    const own = (event: Event): boolean => event.actor === held.actor;
    const asked = events
      .slice(0, at)
      .findLast((event) => own(event) && event.operation === 'acquire' && event.phase === 'invoke');
    const released = events.slice(at).find((event) => own(event) && event.operation === 'release');
    const deadlineMs = held.atMs + (held.validMs ?? Number.POSITIVE_INFINITY);
    return [
      {
        actor: held.actor,
        askedMs: asked?.atMs ?? Number.NEGATIVE_INFINITY,
        fromMs: held.atMs,
        untilMs: Math.min(deadlineMs, released?.atMs ?? Number.POSITIVE_INFINITY),
        token: held.token === undefined ? null : BigInt(held.token),
      },
    ];
  });
}

/** Returns a sentence about two leases that were believed in at the same time, or null. */
export function twoHolders(leases: readonly BelievedLease[]): string | null {
  for (const [one, two] of pairs(leases)) {
    const sharedMs = Math.min(one.untilMs, two.untilMs) - Math.max(one.fromMs, two.fromMs);
    if (sharedMs > 0) {
      return `${one.actor} and ${two.actor} both held the lock, for ${Math.ceil(sharedMs)} ms`;
    }
  }
  return null;
}

/**
 * Returns a sentence about two tokens that are equal or in the wrong order, or null.
 * Leases have an order only if one was acquired before the other was asked for.
 */
export function tokenDisorder(leases: readonly BelievedLease[]): string | null {
  for (const [one, two] of pairs(leases)) {
    if (one.token === null || two.token === null) continue;
    if (one.token === two.token) return `token ${one.token} was issued twice`;
    const [lower, higher] = one.token < two.token ? [one, two] : [two, one];
    if (lower.askedMs > higher.fromMs) {
      return `token ${lower.token} was issued after token ${higher.token}`;
    }
  }
  return null;
}

function pairs<T>(all: readonly T[]): (readonly [T, T])[] {
  return all.flatMap((one, at) => all.slice(at + 1).map((two) => [one, two] as const));
}
