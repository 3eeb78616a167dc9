import type { Operation } from './history.ts';
import { judge, type Violation } from './judge.ts';

/**
 * Returns the shortest part of a history that shows a violation by itself.
 *
 * A violation of a lock needs two acquisitions. On a store, the part ends when the violation
 * returns; operations that returned later are unknown. Then reads and refusals are left out, if the
 * rest still is a violation. All this only lets more orders fit. So the part is a violation only
 * because the whole history is one.
 */
export function shortest(
  history: readonly Operation[],
  violations: readonly Violation[],
): readonly Operation[] {
  const parts = violations.map((violation) => partOf(history, violation));
  return parts.toSorted((a, b) => a.length - b.length)[0] ?? [];
}

function partOf(
  history: readonly Operation[],
  { object, operation, earlier }: Violation,
): readonly Operation[] {
  if (earlier) return [earlier, operation];
  const endNs = operation.returnNs ?? Number.POSITIVE_INFINITY;
  let part = history
    .filter((one) => one.object === object && one.callNs <= endNs && one.outcome !== 'failed')
    .map((one) => ((one.returnNs ?? endNs) > endNs ? unknown(one) : one));
  for (const one of part.filter(changesNothing)) {
    const rest = part.filter((other) => other !== one);
    if (judge(rest).length > 0) part = rest;
  }
  return part;
}

function changesNothing({ kind, outcome }: Operation): boolean {
  return kind === 'read' || outcome === 'refused';
}

function unknown(operation: Operation): Operation {
  return { ...operation, outcome: 'unknown', returnNs: null };
}
