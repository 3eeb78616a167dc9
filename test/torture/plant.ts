import type { Random } from '../simulation/random.ts';
import { definiteHolds } from './exclusion.ts';
import type { Operation } from './history.ts';

/** The shortest overlap that is planted. */
const OVERLAP_NS_MIN = 10_000;

type Change = Partial<Operation>;
/** Returns an operation, and a change that makes it a violation in any case. Null if none fits. */
type Plant = (history: readonly Operation[], random: Random) => readonly [Operation, Change] | null;

/** Violations that can be planted at a random place of a correct history. */
export const PLANTS: Readonly<Record<string, Plant>> = {
  'token not above'(history, random) {
    const [earlier, later] = pairOf(history, random, isGrant, isGrant) ?? [];
    if (!earlier || !later) return null;
    const token = BigInt(earlier.token ?? 0) - BigInt(random.below(2));
    return [later, { token: String(token) }];
  },
  'stale write accepted'(history, random) {
    const [earlier, later] = pairOf(history, random, isApplied, isWrite) ?? [];
    if (!earlier || !later) return null;
    return [later, { token: String(BigInt(earlier.token ?? 0) - 1n) }];
  },
  'fresh write refused'(history, random) {
    const write =
      history.filter(isApplied).length > 0 ? random.pick(history.filter(isApplied)) : null;
    if (!write) return null;
    const highest = BigInt(write.token ?? 0) - BigInt(random.below(2));
    return [write, { outcome: 'refused', highest: String(highest) }];
  },
  'lost update'(history, random) {
    const updates = history.filter(({ kind, outcome }) => kind === 'update' && outcome === 'ok');
    const byValue = new Map(updates.map((update) => [update.value, update]));
    const followers = updates.filter(({ from }) => byValue.has(from));
    if (followers.length === 0) return null;
    const second = random.pick(followers);
    return [second, { from: byValue.get(second.from)?.from ?? null }];
  },
  'read of an old value'(history, random) {
    const isUpdate = ({ kind, outcome }: Operation) => kind === 'update' && outcome === 'ok';
    const isRead = ({ kind, outcome }: Operation) =>
      ['read', 'claim'].includes(kind) && outcome === 'ok';
    const [update, read] = pairOf(history, random, isUpdate, isRead) ?? [];
    return update && read ? [read, { value: update.from ?? null }] : null;
  },
};

/** Returns a history with one violation of that kind; null if it has no place for it. */
export function plant(
  history: readonly Operation[],
  kind: string,
  random: Random,
): readonly Operation[] | null {
  const [changed, change] = PLANTS[kind]?.(history, random) ?? [];
  if (!changed) return null;
  return history.map((operation) =>
    operation === changed ? { ...operation, ...change } : operation,
  );
}

/**
 * Returns a history in which two clients held one lock at the same time: a lease returns while its
 * predecessor is held. Null if no lock had two holders, one after the other.
 */
export function plantOverlap(
  history: readonly Operation[],
  random: Random,
): readonly Operation[] | null {
  const byLock = Map.groupBy(definiteHolds(history), ({ operation }) => operation.object);
  const pairs = [...byLock.values()].flatMap((holds) => {
    const inOrder = holds.toSorted((a, b) => a.fromNs - b.fromNs);
    return inOrder.flatMap((later, at) => {
      const earlier = inOrder[at - 1];
      const isOther = earlier?.operation.process !== later.operation.process;
      const isLong = earlier && earlier.untilNs - earlier.fromNs > OVERLAP_NS_MIN;
      return isLong && isOther && later.operation.kind === 'acquire' ? [{ earlier, later }] : [];
    });
  });
  if (pairs.length === 0) return null;
  const { earlier, later } = random.pick(pairs);
  const atNs = earlier.fromNs + random.below(earlier.untilNs - earlier.fromNs - OVERLAP_NS_MIN);
  const moved = { ...later.operation, callNs: atNs, returnNs: atNs };
  return history
    .map((operation) => (operation === later.operation ? moved : operation))
    .toSorted((a, b) => a.callNs - b.callNs);
}

/**
 * Returns the history of one object with a random change, which may be a violation or not. Only the
 * judges can tell.
 */
export function alter(history: readonly Operation[], random: Random): readonly Operation[] {
  const judged = history.filter(({ kind }) => kind !== 'extend' && kind !== 'release');
  const operation = random.pick(judged);
  const ofObject = judged.filter(({ object }) => object === operation.object);
  const { token, value, from, highest, callNs, returnNs } = random.pick(ofObject);
  const changes: readonly Change[] = [
    ...[{ token }, { value }, { from }, { highest }, { highest: token }, { callNs }, { returnNs }],
    ...(['ok', 'unknown', 'failed', 'refused'] as const).map((outcome) => ({ outcome })),
  ];
  const changed = { ...operation, ...random.pick(changes) };
  if (!isWellFormed(changed)) return alter(history, random);
  return ofObject.map((one) => (one === operation ? changed : one));
}

function isWellFormed({ kind, outcome, callNs, returnNs, token, highest }: Operation): boolean {
  const isTimed = outcome === 'unknown' || (returnNs !== null && returnNs >= callNs);
  const isNumbered = token !== undefined || kind === 'read' || outcome === 'unknown';
  return isTimed && isNumbered && (outcome !== 'refused' || highest !== undefined);
}

const isGrant = ({ kind, outcome }: Operation): boolean => kind === 'acquire' && outcome === 'ok';
const isWrite = ({ kind, outcome }: Operation): boolean =>
  ['update', 'put'].includes(kind) && outcome === 'ok';
const isApplied = ({ kind, outcome }: Operation): boolean =>
  ['update', 'put', 'claim'].includes(kind) && outcome === 'ok';

/** Returns two operations on one object of which the first returned before the second began. */
function pairOf(
  history: readonly Operation[],
  random: Random,
  isFirst: (operation: Operation) => boolean,
  isSecond: (operation: Operation) => boolean,
): readonly [Operation, Operation] | null {
  const firsts = Map.groupBy(history.filter(isFirst), ({ object }) => object);
  const endNs = ({ returnNs }: Operation): number => returnNs ?? Number.POSITIVE_INFINITY;
  const earliestNs = new Map(
    [...firsts].map(([object, its]) => [
      object,
      its.reduce((ns, first) => Math.min(ns, endNs(first)), Number.POSITIVE_INFINITY),
    ]),
  );
  const seconds = history.filter(
    (one) => isSecond(one) && (earliestNs.get(one.object) ?? Number.POSITIVE_INFINITY) < one.callNs,
  );
  if (seconds.length === 0) return null;
  const second = random.pick(seconds);
  const before = firsts.get(second.object)?.filter((first) => endNs(first) < second.callNs) ?? [];
  return [random.pick(before), second];
}
