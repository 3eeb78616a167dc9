import { judge as judgeTokens } from '../lock/harness/redlock-history.ts';
import type { Operation } from './history.ts';

export interface Violation {
  readonly object: string;
  /** One sentence. */
  readonly reason: string;
  readonly operation: Operation;
  /** The acquisition whose token is not below that of `operation`. Null for a store. */
  readonly earlier: Operation | null;
}

/** State of one object of a store. */
interface State {
  readonly highest: bigint;
  readonly value: string | null;
}

/**
 * One possibility of what has happened so far: a state, and the begun operations without effect.
 */
interface Possibility {
  readonly state: State;
  readonly pending: readonly Operation[];
}

/**
 * Decides from a history alone whether each object was linearizable.
 *
 * - `lock/…` dispenses tokens. Each is above those that were granted before its acquisition began.
 * - Any other object is a value and a ratchet. A write is applied only if its token is at least the
 *   highest, and refused only if it is lower. A refusal and a read report the highest token, and no
 *   client finds a lower one than before. A refused claim may have raised the ratchet before.
 *
 * @returns the first violation of each object
 */
export function judge(history: readonly Operation[]): readonly Violation[] {
  return [...Map.groupBy(history, ({ object }) => object)].flatMap(([object, operations]) => {
    const violation = object.startsWith('lock/')
      ? tokenDisorder(object, operations)
      : storeDisorder(object, operations);
    return violation ?? [];
  });
}

function tokenDisorder(object: string, operations: readonly Operation[]): Violation | null {
  const granted = operations.filter(({ kind, outcome }) => kind === 'acquire' && outcome === 'ok');
  const told = judgeTokens(
    granted.map(({ process: client, callNs, returnNs, token }) => ({
      client,
      resources: [object],
      token: BigInt(token ?? 0),
      askedMs: callNs / 1e6,
      heldMs: (returnNs ?? 0) / 1e6,
    })),
  );
  if (told.verdict !== 'violated') return null;
  const earlier = granted.find(({ token }) => BigInt(token ?? 0) === told.earlier.token);
  const operation = granted.findLast(({ token }) => BigInt(token ?? 0) === told.later.token);
  if (!earlier || !operation) throw new Error('a violation is about two grants');
  const reason = `token ${told.later.token} is ${told.why} after ${told.earlier.token}`;
  return { object, reason, operation, earlier };
}

/**
 * Goes through the calls and returns in the order of time, and keeps all possibilities. When an
 * operation returns, it must have taken effect, perhaps after other pending operations (Lowe's
 * just-in-time linearization).
 */
function storeDisorder(object: string, operations: readonly Operation[]): Violation | null {
  const lost = operations.find(({ code }) => code === 'ratchet-lost');
  const reason = 'the store itself found a lower token';
  if (lost) return { object, reason, operation: lost, earlier: null };
  let possible: readonly Possibility[] = [{ state: { highest: 0n, value: null }, pending: [] }];
  const steps = operations.flatMap(stepsOf);
  const places = new Map(steps.map((operation, at) => [operation, at]));
  for (const { operation, isCall } of inOrder(steps)) {
    const next = isCall
      ? possible.map(({ state, pending }) => settled(state, [...pending, operation]))
      : possible.flatMap((possibility) => withEffect(possibility, operation));
    const distinct = distinctOf(next, places);
    if (distinct.length === 0) {
      const states = new Set(possible.map(({ state }) => `${state.highest} ${state.value}`));
      const reason = `${operation.kind} ${operation.outcome} fits no order; before it: ${[...states].slice(0, 5).join(', ')}`;
      return { object, reason, operation, earlier: null };
    }
    possible = distinct;
  }
  return null;
}

/**
 * Returns the steps of an operation. A refused claim may have raised the ratchet before: its reply
 * was lost, then a higher token came, and then the repeated claim was refused.
 */
function stepsOf(operation: Operation): readonly Operation[] {
  const { kind, outcome } = operation;
  const isRefused = kind === 'claim' && outcome === 'refused';
  return isRefused ? [{ ...operation, outcome: 'unknown' }, operation] : [operation];
}

/** Calls and returns by time. At the same time, calls are first: the operations overlap. */
function inOrder(operations: readonly Operation[]) {
  const relevant = operations.filter(({ outcome }) => outcome !== 'failed');
  const calls = relevant.map((operation) => ({ operation, atNs: operation.callNs, isCall: true }));
  const returns = relevant.flatMap((operation) =>
    operation.outcome === 'unknown' || operation.returnNs === null
      ? []
      : [{ operation, atNs: operation.returnNs, isCall: false }],
  );
  return [...calls, ...returns].toSorted(
    (a, b) => a.atNs - b.atNs || Number(b.isCall) - Number(a.isCall),
  );
}

/** Returns the possibilities after which `operation` has taken effect. */
function withEffect(from: Possibility, operation: Operation): Possibility[] {
  if (!from.pending.includes(operation)) return [from];
  return from.pending.flatMap((chosen) => {
    const state = after(from.state, chosen);
    if (state === null) return [];
    const others = from.pending.filter((other) => other !== chosen);
    return withEffect(settled(state, others), operation);
  });
}

/**
 * Drops pending operations that cannot change the state. These are reads, refusals and claims that
 * agree with it, and unknown writes that can have no effect any more. A write of the present value
 * stays, because it may come later, after another value.
 */
function settled(state: State, pending: readonly Operation[]): Possibility {
  const isSettled = (operation: Operation): boolean => {
    const { kind, outcome } = operation;
    const isWrite = (kind === 'put' || kind === 'update') && outcome !== 'refused';
    if (outcome !== 'unknown') return !isWrite && isSame(after(state, operation), state);
    return kind === 'read' || BigInt(operation.token ?? 0) < state.highest;
  };
  return { state, pending: pending.filter((operation) => !isSettled(operation)) };
}

function isSame(a: State | null, b: State): boolean {
  return a !== null && a.highest === b.highest && a.value === b.value;
}

/** Returns the state after the operation. Null if the operation is impossible in this state. */
function after(state: State, operation: Operation): State | null {
  const { kind, outcome, value = null, from = null, highest } = operation;
  if (kind === 'read') {
    const isHighest = highest === undefined || BigInt(highest) === state.highest;
    return value === state.value && isHighest ? state : null;
  }
  const token = BigInt(operation.token ?? 0);
  if (outcome === 'refused')
    return token < state.highest && BigInt(highest ?? -1) === state.highest ? state : null;
  if (token < state.highest) return null;
  if (kind === 'claim') {
    const isRead = outcome === 'unknown' || value === state.value;
    return isRead ? { highest: token, value: state.value } : null;
  }
  if (kind === 'update' && from !== state.value) return null;
  return { highest: token, value };
}

/** @param places the operations of the object, with a number for each */
function distinctOf(
  possibilities: readonly Possibility[],
  places: ReadonlyMap<Operation, number>,
): readonly Possibility[] {
  if (possibilities.length < 2) return possibilities;
  const keyOf = ({ state, pending }: Possibility): string => {
    const numbers = pending.map((operation) => places.get(operation));
    return JSON.stringify([String(state.highest), state.value, numbers]);
  };
  return [...new Map(possibilities.map((one) => [keyOf(one), one])).values()];
}
