import type { Fault } from './fault.ts';
import { EXCLUSION_FAULTS } from './faults.ts';
import type { Operation } from './history.ts';

/** A time in which a holder certainly believed in its lease. */
export interface Hold {
  /** The acquisition or extension that returned the lease. */
  readonly operation: Operation;
  /** The later operation that ended this time or, if none did, the last one of the process. */
  readonly last: Operation;
  readonly fromNs: number;
  readonly untilNs: number;
}

/** Two holders believed in their leases of one lock at the same time. */
export type Overlap = readonly [earlier: Hold, later: Hold];

export interface Exclusion {
  /** `unknown`: no lock was tried while another client held it. */
  readonly verdict: 'ok' | 'violated' | 'unknown';
  readonly holds: number;
  /** Acquisitions that began while another holder certainly believed in its lease. */
  readonly contests: number;
  readonly overlaps: readonly Overlap[];
}

/**
 * The error of two times of a history, compared with each other. All processes of a run read the
 * monotonic clock of one machine, so only rounding is left.
 */
const CLOCK_ERROR_NS = 1_000;

/**
 * Judges mutual exclusion by the definite holds of a history.
 *
 * @returns null if a fault of the run may let two clients hold valid leases at once
 */
export function exclusionOf(
  history: readonly Operation[],
  faults: readonly Fault[],
): Exclusion | null {
  if (!faults.every(({ kind }) => EXCLUSION_FAULTS.includes(kind))) return null;
  return judgeExclusion(history);
}

export function judgeExclusion(history: readonly Operation[]): Exclusion {
  const byLock = Map.groupBy(definiteHolds(history), ({ operation }) => operation.object);
  const holds = [...byLock.values()];
  const overlaps = holds.flatMap(overlapsOf);
  const acquisitions = Map.groupBy(
    history.filter(({ kind }) => kind === 'acquire'),
    ({ object }) => object,
  );
  const contests = [...byLock].reduce(
    (sum, [object, its]) => sum + countContests(its, acquisitions.get(object) ?? []),
    0,
  );
  const passed = contests > 0 ? 'ok' : 'unknown';
  const verdict = overlaps.length > 0 ? 'violated' : passed;
  return { verdict, holds: holds.flat().length, contests, overlaps };
}

/**
 * Returns the times in which a holder certainly believed in its lease. Each begins when an
 * acquisition or an extension returns. It ends with the holder's next call about this lock, or with
 * the last line of its process, or with the lease. The holder's monotonic clock tells that end.
 */
export function definiteHolds(history: readonly Operation[]): readonly Hold[] {
  return [...Map.groupBy(history, ({ process }) => process).values()].flatMap((operations) => {
    const final = operations.reduce((a, b) => (endOf(b) > endOf(a) ? b : a));
    const byLock = Map.groupBy(operations, ({ object }) => object);
    return [...byLock.values()].flatMap((ofLock) =>
      ofLock.flatMap((operation, at) => {
        const { untilNs, returnNs: fromNs } = operation;
        if (untilNs === undefined || fromNs === null) return [];
        const next = ofLock[at + 1];
        const endNs = Math.min(untilNs, next ? next.callNs : endOf(final));
        return fromNs < endNs ? [{ operation, last: next ?? final, fromNs, untilNs: endNs }] : [];
      }),
    );
  });
}

function endOf({ callNs, returnNs }: Operation): number {
  return returnNs ?? callNs;
}

function overlapsOf(holds: readonly Hold[]): readonly Overlap[] {
  let open: Hold[] = [];
  return holds
    .toSorted((a, b) => a.fromNs - b.fromNs)
    .flatMap((hold) => {
      open = open.filter(({ untilNs }) => untilNs > hold.fromNs + CLOCK_ERROR_NS);
      const found = hold.untilNs > hold.fromNs + CLOCK_ERROR_NS ? open : [];
      const overlaps = found.map((earlier): Overlap => [earlier, hold]);
      open.push(hold);
      return overlaps;
    });
}

function countContests(holds: readonly Hold[], acquisitions: readonly Operation[]): number {
  const sorted = holds.toSorted((a, b) => a.fromNs - b.fromNs);
  let at = 0;
  let held: Hold | undefined;
  return acquisitions
    .toSorted((a, b) => a.callNs - b.callNs)
    .filter(({ callNs, process }) => {
      for (; (sorted[at]?.fromNs ?? Number.POSITIVE_INFINITY) < callNs; at += 1) held = sorted[at];
      return held !== undefined && held.untilNs > callNs && held.operation.process !== process;
    }).length;
}

/** One sentence. */
export function describeOverlap([earlier, later]: Overlap): string {
  const name = ({ operation }: Hold): string => `${operation.process}'s ${operation.token}`;
  const bothNs = Math.min(earlier.untilNs, later.untilNs) - later.fromNs;
  return `${name(later)} and ${name(earlier)} were both held for ${(bothNs / 1e6).toFixed(3)} ms`;
}

/** Returns the operations that show the first of the overlaps by themselves. */
export function firstOverlap(overlaps: readonly Overlap[]): readonly Operation[] {
  const [first] = overlaps;
  if (!first) return [];
  const shown = first.flatMap(({ operation, last }) => [operation, last]);
  return [...new Set(shown)].toSorted((a, b) => a.callNs - b.callNs);
}
