/** What one client process got, in milliseconds of the monotonic clock that all processes of a machine share. */
export interface Acquisition {
  readonly client: string;
  readonly resources: readonly string[];
  /** Before the first request was sent. */
  readonly askedMs: number;
  /** After the lease was in the caller's hands. */
  readonly heldMs: number;
  readonly token: bigint;
}

export type Verdict =
  | { readonly verdict: 'grows'; readonly acquisitions: number }
  /** Nothing was acquired, so nothing was shown. */
  | { readonly verdict: 'unknown' }
  | {
      readonly verdict: 'violated';
      /** The token did not grow although the earlier one was held before the later one was asked for; or it was given twice. */
      readonly why: 'not above' | 'given twice';
      readonly resource: string;
      readonly earlier: Acquisition;
      readonly later: Acquisition;
    };

/**
 * Whether the tokens of every resource grow strictly in real-time order and none is given twice, over the merged histories of
 * all clients in any order. Acquisitions that overlap in time are in no order; that their tokens differ is all they owe.
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

/** Goes through the askings in order, and knows the highest token that was held by somebody before each. */
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
