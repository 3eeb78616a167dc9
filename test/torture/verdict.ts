import { type Exclusion, exclusionOf, judgeExclusion } from './exclusion.ts';
import type { Fault } from './fault.ts';
import { tookEffect } from './faults.ts';
import type { Operation } from './history.ts';
import { judge, type Violation } from './judge.ts';
import type { Run } from './run.ts';

export interface Verdict {
  /**
   * The verdict about tokens and stores. `unknown`: no violation was found, but the run had too
   * little that could have shown one.
   */
  readonly verdict: 'ok' | 'violated' | 'unknown';
  readonly violations: readonly Violation[];
  /** Reasons for `unknown`. */
  readonly missing: readonly string[];
  readonly operations: number;
  /** Numbers of operations, such as `update ok`. */
  readonly outcomes: Readonly<Record<string, number>>;
  /** Writes with a token below one that had been granted before the write began. */
  readonly staleWrites: number;
  /** Pairs of leases that both holders believed in at the same time. */
  readonly sharedLeases: number;
  /** Null if a fault may have let two clients hold valid leases at once. */
  readonly exclusion: Exclusion | null;
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
    sharedLeases: judgeExclusion(history).overlaps.length,
    exclusion: exclusionOf(history, faults),
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
