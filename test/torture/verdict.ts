import type { Fault } from './fault.ts';
import { tookEffect } from './faults.ts';
import type { Operation } from './history.ts';
import { judge, type Violation } from './judge.ts';
import type { Run } from './run.ts';

export interface Verdict {
  /** `unknown`: no violation was found, but the run had too little that could have shown one. */
  readonly verdict: 'ok' | 'violated' | 'unknown';
  readonly violations: readonly Violation[];
  /** Reasons for `unknown`. */
  readonly missing: readonly string[];
  readonly operations: number;
  /** Numbers of operations, such as `update ok`. */
  readonly outcomes: Readonly<Record<string, number>>;
  /** Writes with a token below one that had been granted before the write began. */
  readonly staleWrites: number;
  /** Pairs of leases that both holders believed in at the same time. No violation. */
  readonly sharedLeases: number;
  /** Faults that disturbed an operation, by kind. */
  readonly faults: Readonly<Record<string, number>>;
}

/** Judges a run by its history and its faults alone. */
export function verdictOf({ history, faults }: Pick<Run, 'history' | 'faults'>): Verdict {
  const violations = judge(history);
  const effective = faults.filter((fault: Fault) => tookEffect(fault, history));
  const staleWrites = countStale(history);
  const missing = [
    ...(history.length === 0 ? ['no operation'] : []),
    ...(isContended(history) ? [] : ['no two acquisitions of a lock overlapped']),
    ...(effective.length > 0 ? [] : ['no fault took effect']),
    ...(staleWrites > 0 ? [] : ['no stale write was tried']),
  ];
  const passed = missing.length > 0 ? 'unknown' : 'ok';
  return {
    verdict: violations.length > 0 ? 'violated' : passed,
    violations,
    missing,
    operations: history.length,
    outcomes: counts(history, ({ kind, outcome }) => `${kind} ${outcome}`),
    staleWrites,
    sharedLeases: countShared(history),
    faults: counts(effective, ({ kind }) => kind),
  };
}

/** True if the rules say something about the history: an object has two results to compare. */
export function isTelling(history: readonly Operation[]): boolean {
  const results = history.filter(
    ({ kind, outcome, highest }) =>
      !['extend', 'release'].includes(kind) &&
      (outcome === 'ok' || (outcome === 'refused' && highest !== undefined)),
  );
  return new Set(results.map(({ object }) => object)).size < results.length;
}

function counts<Item>(items: readonly Item[], nameOf: (item: Item) => string) {
  const groups = [...Map.groupBy(items, nameOf)].map(
    ([name, { length }]) => [name, length] as const,
  );
  return Object.fromEntries(groups.toSorted(([a], [b]) => a.localeCompare(b)));
}

const resourceOf = ({ object }: Operation): string => object.slice(object.indexOf('/') + 1);

function isContended(history: readonly Operation[]): boolean {
  const acquisitions = history.filter(({ kind }) => kind === 'acquire');
  return [...Map.groupBy(acquisitions, ({ object }) => object).values()].some((ofLock) =>
    ofLock.some(({ callNs }, at) => callNs < (ofLock[at - 1]?.returnNs ?? 0)),
  );
}

function countStale(history: readonly Operation[]): number {
  return [...Map.groupBy(history, resourceOf).values()].reduce((sum, operations) => {
    const granted = operations
      .filter(({ kind, outcome }) => kind === 'acquire' && outcome === 'ok')
      .toSorted((a, b) => (a.returnNs ?? 0) - (b.returnNs ?? 0));
    let highest = 0n;
    const isStale = ({ kind, token, callNs }: Operation): boolean => {
      for (; (granted[0]?.returnNs ?? Number.POSITIVE_INFINITY) < callNs; granted.shift())
        highest = maxOf(highest, BigInt(granted[0]?.token ?? 0));
      return ['update', 'put', 'claim'].includes(kind) && BigInt(token ?? 0) < highest;
    };
    return sum + operations.filter(isStale).length;
  }, 0);
}

function maxOf(a: bigint, b: bigint): bigint {
  return a > b ? a : b;
}

/** Counts pairs of definite holds that overlap. */
function countShared(history: readonly Operation[]): number {
  const byResource = Map.groupBy(definiteHolds(history), ({ object }) => object);
  return [...byResource.values()].reduce((sum, holds) => sum + overlaps(holds), 0);
}

interface Hold {
  readonly object: string;
  readonly fromNs: number;
  readonly untilNs: number;
}

/**
 * Returns the times in which a holder certainly believed in its lease. Each begins when an
 * acquisition or an extension returns. It ends with the holder's next call about this lock, with
 * the lease, or with the last line of its process.
 */
function definiteHolds(history: readonly Operation[]): readonly Hold[] {
  return [...Map.groupBy(history, ({ process }) => process).values()].flatMap((operations) => {
    const lastNs = operations.reduce(
      (ns, { callNs, returnNs }) => Math.max(ns, returnNs ?? callNs),
      0,
    );
    const byLock = Map.groupBy(operations, ({ object }) => object);
    return [...byLock].flatMap(([object, ofLock]) =>
      ofLock.flatMap(({ untilNs, returnNs }, at) => {
        if (untilNs === undefined || returnNs === null) return [];
        const nextNs = ofLock[at + 1]?.callNs ?? lastNs;
        return [{ object, fromNs: returnNs, untilNs: Math.min(untilNs, nextNs) }];
      }),
    );
  });
}

function overlaps(holds: readonly Hold[]): number {
  const sorted = holds
    .filter(({ fromNs, untilNs }) => fromNs < untilNs)
    .toSorted((a, b) => a.fromNs - b.fromNs);
  let open: Hold[] = [];
  let found = 0;
  for (const hold of sorted) {
    open = open.filter(({ untilNs }) => untilNs > hold.fromNs);
    found += open.length;
    open.push(hold);
  }
  return found;
}
