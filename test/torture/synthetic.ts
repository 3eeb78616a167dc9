import type { Random } from '../simulation/random.ts';
import type { Operation } from './history.ts';

/** Share of the operations that are acquisitions of a new token. */
const HAND_OVERS = 0.1;
const CLIENTS = 6;

interface Applied {
  token: number;
  value: string | null;
}

/**
 * Returns a correct history of one object of a store. Operations of several clients overlap. Each
 * has its effect at a moment between call and return; the effect of an unknown one may come much
 * later, or never.
 *
 * @param unknown number of operations whose outcome is unknown
 */
export function syntheticHistory(
  random: Random,
  { operations, unknown }: { readonly operations: number; readonly unknown: number },
): readonly Operation[] {
  const lost = new Set<number>();
  while (lost.size < unknown) lost.add(random.below(operations));
  let token = 1;
  const drawn = Array.from({ length: operations }, (_, at) => {
    if (random.chance(HAND_OVERS)) token += 1;
    const callNs = at * 100 + random.below(100);
    const isLost = lost.has(at);
    const delayNs = isLost ? random.pick([random.below(300), random.below(5_000), null]) : null;
    const effectNs = isLost ? delayed(callNs, delayNs) : callNs + random.below(300);
    const returnNs = isLost ? null : (effectNs ?? 0) + random.below(200);
    // One write in five is stale.
    const own = random.chance(0.2) ? Math.max(1, token - 1 - random.below(2)) : token;
    const kind = isLost
      ? random.pick(WRITES)
      : random.pick([...WRITES, ...WRITES, 'read'] as const);
    return { at, callNs, effectNs, returnNs, own, kind, isLost };
  });
  const state: Applied = { token: 0, value: null };
  const done = drawn
    .toSorted((a, b) => (a.effectNs ?? Infinity) - (b.effectNs ?? Infinity))
    .map(({ at, callNs, effectNs, returnNs, own, kind, isLost }): Operation => {
      const operation = { process: `c${at % CLIENTS}`, object: 's3/r', kind, callNs, returnNs };
      if (kind === 'read')
        return { ...operation, outcome: 'ok', value: state.value, highest: `${state.token}` };
      const value = kind === 'claim' ? undefined : `v${at}`;
      const facts = { token: `${own}`, value, ...(kind === 'update' && { from: state.value }) };
      const isApplied = effectNs !== null && own >= state.token;
      const before = state.value;
      if (isApplied) Object.assign(state, { token: own, value: value ?? before });
      if (isLost) return { ...operation, ...facts, outcome: 'unknown' };
      if (!isApplied)
        return { ...operation, ...facts, outcome: 'refused', highest: `${state.token}` };
      return { ...operation, ...facts, outcome: 'ok', ...(kind === 'claim' && { value: before }) };
    });
  return done.toSorted((a, b) => a.callNs - b.callNs);
}

function delayed(ns: number, delayNs: number | null): number | null {
  return delayNs === null ? null : ns + delayNs;
}

const WRITES = ['update', 'put', 'claim'] as const;
