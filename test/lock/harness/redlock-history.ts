/**
 * One acquisition of a client process, in milliseconds of the monotonic clock that all processes of
 * a machine share.
 */
export interface Acquisition {
  readonly client: string;
  readonly resources: readonly string[];
  /** The time before the first request was sent. */
  readonly askedMs: number;
  /** The time after the caller got the lease. */
  readonly heldMs: number;
  readonly token: bigint;
}

export type Verdict =
  | { readonly verdict: 'grows'; readonly acquisitions: number }
  /** No lease was acquired, so the history shows nothing. */
  | { readonly verdict: 'unknown' }
  | {
      readonly verdict: 'violated';
      /**
       * `not above`: the token did not grow, although the earlier one was held before the later
       * acquisition began. `given twice`: both have the same token.
       */
      readonly why: 'not above' | 'given twice';
      readonly resource: string;
      readonly earlier: Acquisition;
      readonly later: Acquisition;
    };

/**
 * Checks that the tokens of every resource grow strictly in real-time order, and that none is given
 * twice.
 *
 * The histories of all clients may be merged in any order. Acquisitions that overlap in time have
 * no order; only their tokens must differ.
 */
export function judge(history: readonly Acquisition[]): Verdict {
  const resources = new Set(history.flatMap((acquisition) => acquisition.resources));
  for (const resource of resources) {
    const ofResource = history.filter((acquisition) => acquisition.resources.includes(resource));
    const repeated = firstRepeated(ofResource);
    if (repeated) return { verdict: 'violated', why: 'given twice', resource, ...repeated };
    const disorder = firstDisorder(ofResource);
    if (disorder) return { verdict: 'violated', why: 'not above', resource, ...disorder };
  }
  return history.length === 0
    ? { verdict: 'unknown' }
    : { verdict: 'grows', acquisitions: history.length };
}

interface Pair {
  readonly earlier: Acquisition;
  readonly later: Acquisition;
}

function firstRepeated(history: readonly Acquisition[]): Pair | null {
  const byToken = new Map<bigint, Acquisition>();
  for (const later of history.toSorted((a, b) => a.askedMs - b.askedMs)) {
    const earlier = byToken.get(later.token);
    if (earlier) return { earlier, later };
    byToken.set(later.token, later);
  }
  return null;
}

/**
 * Visits the acquisitions in the order of their beginnings. Compares each with the highest token
 * that was held before it began.
 */
function firstDisorder(history: readonly Acquisition[]): Pair | null {
  const byHeld = history.toSorted((a, b) => a.heldMs - b.heldMs).values();
  let next = byHeld.next();
  let highest: Acquisition | undefined;
  for (const later of history.toSorted((a, b) => a.askedMs - b.askedMs)) {
    for (; !next.done && next.value.heldMs < later.askedMs; next = byHeld.next()) {
      if (!highest || next.value.token > highest.token) highest = next.value;
    }
    if (highest && later.token <= highest.token) return { earlier: highest, later };
  }
  return null;
}
