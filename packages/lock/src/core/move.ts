import { consistentQuorum, majorityOf, type Voter } from './quorum.js';
import { type Inspection, limitIn, type Promised } from './readmission.js';
import { driftMs } from './validity.js';

/** A lease in the lock table of a node. */
export interface HeldRecord {
  readonly resource: string;
  readonly owner: string;
  readonly remainingMs: number;
  /** The first token that the node gave with the lease, as 16 digits; see `lock-table.lua`. */
  readonly token: string;
}

/**
 * The leases of a sealed node: one that has ended its votes for the move. They were read to the
 * end, from the incarnation that voted.
 */
export interface SealedLeases {
  readonly voter: Voter;
  readonly leases: readonly HeldRecord[];
}

/** A sealed node's reply. */
export interface Sealed extends Promised {
  /** The longest lease in milliseconds that it would grant; null if it was never admitted. */
  readonly maxTtlMs: number | null;
}

/** The facts that the next set begins with, from the sealed nodes of the previous set. */
export interface Evidence {
  /** No token that the previous set gave is above this. */
  readonly floor: bigint;
  /** The longest lease in milliseconds that the previous set may have granted. */
  readonly longestMs: number;
  /** True if a majority of the previous set still voted when it was sealed. */
  readonly isComplete: boolean;
  /** The longest lease that the next set will grant: the limit of the previous one. */
  readonly maxTtlMs: number | null;
}

/**
 * The evidence of the sealed nodes. Null if too few answered.
 *
 * Invariant: every token that the previous set gave is at or below `floor`, or it can no longer be
 * confirmed. Any quorum of the previous set shares a node with the sealed majority. If that node
 * voted before SEAL, its `max` covers the token. After SEAL, it does not vote.
 *
 * If the sealed voters are no majority, *all* nodes must be sealed. Too many of them have then lost
 * their memory, so only the clock is known to be above all tokens of the set.
 *
 * @param isForced true if an operator has declared that silent nodes are gone for good
 */
export function evidenceOf(
  seals: readonly Sealed[],
  nodeCount: number,
  isForced = false,
): Evidence | null {
  const majority = majorityOf(nodeCount);
  const voters = seals.filter(({ voting }) => voting);
  const isComplete = consistentQuorum(voters, majority) !== null;
  if (!isComplete && seals.length < (isForced ? majority : nodeCount)) return null;
  const floor = seals.reduce((highest, { max }) => (max > highest ? max : highest), 0n);
  const longestMs = Math.max(...seals.map((seal) => seal.longestMs));
  const maxTtlMs = limitIn(seals);
  return { floor, longestMs: carriedMs(longestMs), isComplete, maxTtlMs };
}

/**
 * The nodes whose leases decide: all of them if they form a consistent quorum, else a majority that
 * does. Null if there is none. Each valid lease of the previous set is held on one of them.
 */
export function decidingLeases(
  sealed: readonly SealedLeases[],
  nodeCount: number,
): readonly SealedLeases[] | null {
  const voters = sealed.map(({ voter, leases }) => ({ ...voter, leases }));
  const quorum =
    consistentQuorum(voters, Math.max(voters.length, majorityOf(nodeCount))) ??
    consistentQuorum(voters, majorityOf(nodeCount));
  return quorum?.map(({ leases, ...voter }) => ({ voter, leases })) ?? null;
}

/**
 * True if no node of the next set can have voted and then forgotten its votes. So the voting nodes
 * of the next set know all its leases and tokens.
 */
export function isUntouched(inspections: readonly (Inspection | null)[]): boolean {
  return inspections.every((seen) => seen?.voting || seen?.awaits === 'early');
}

/** The owner of a lock that two clients may hold. No client has it. */
const NOBODY = '';

/**
 * The leases that the next set must hold: those that may be valid. A valid lease is held on a
 * majority of all nodes. A node that is missing in `deciding` may hold any lease, so it counts as a
 * node that holds it.
 *
 * If several owners of a resource may have a valid lease, the true holder is unknown. The next set
 * then holds the lock for `NOBODY` until the last of these leases is over.
 *
 * A node may hold a lease by an ACQUIRE that arrived late. Its token is then above that of the
 * lease. On a majority, the token of a valid lease is no higher. So the next set gets the highest
 * of the lowest tokens that make up a majority, together with the missing nodes.
 *
 * @param deciding as `decidingLeases` returns them
 */
export function mergeLeases(deciding: readonly SealedLeases[], nodeCount: number): HeldRecord[] {
  const majority = majorityOf(nodeCount);
  const needed = majority - (nodeCount - deciding.length);
  const byResource = new Map<string, Map<string, HeldRecord & { nodes: Map<number, string> }>>();
  for (const { voter, leases } of deciding) {
    for (const lease of leases) {
      const owners = byResource.get(lease.resource) ?? new Map();
      byResource.set(lease.resource, owners);
      const known = owners.get(lease.owner);
      const nodes = (known?.nodes ?? new Map<number, string>()).set(voter.index, lease.token);
      owners.set(lease.owner, { ...longer(lease, known ?? lease), nodes });
    }
  }
  return [...byResource.values()].flatMap((byOwner) => {
    const possible = [...byOwner.values()].filter(({ nodes }) => nodes.size >= needed);
    const holder = possible.find(({ nodes }) => nodes.size >= majority);
    const [first, ...others] = holder ? [holder] : possible;
    if (!first) return [];
    const owner = others.length > 0 ? NOBODY : first.owner;
    const { resource, remainingMs } = others.reduce<HeldRecord>(longer, first);
    const [token = first.token] = [...first.nodes.values()].toSorted().slice(needed - 1);
    return [{ resource, owner, remainingMs: carriedMs(remainingMs), token }];
  });
}

function longer(a: HeldRecord, b: HeldRecord): HeldRecord {
  return { ...a, remainingMs: Math.max(a.remainingMs, b.remainingMs) };
}

/** The time that a lease gets on another node. It is longer, because that clock may be faster. */
function carriedMs(ms: number): number {
  return Math.ceil(ms + driftMs(ms));
}

/** A node set, as the nodes keep it: its key prefix and the names of its nodes, as JSON. */
export function describeSet(keyPrefix: string, names: readonly string[]): string {
  return JSON.stringify([keyPrefix, names]);
}

/** Parses a text of `describeSet`; null for any other text. */
export function readSet(
  text: string,
): { readonly keyPrefix: string; readonly names: readonly string[] } | null {
  try {
    const [keyPrefix, names] = JSON.parse(text);
    return typeof keyPrefix === 'string' && Array.isArray(names) ? { keyPrefix, names } : null;
  } catch {
    return null;
  }
}

/** The view of one node in a decision about a move. */
export interface MoveView extends Voter {
  readonly voting: boolean;
  readonly nextSet: string | null;
  readonly previousSet: string | null;
}

/**
 * The state of a move.
 *
 * - `not-begun`: no node of the present set is known to be sealed.
 * - `begun`: a node is sealed, and the next set does not vote yet.
 * - `done`: the next set votes, or has moved on since.
 * - `refused`: the move is impossible. `reason` says why.
 */
export type MoveState =
  | { readonly state: 'not-begun' | 'done' }
  | { readonly state: 'begun' }
  | { readonly state: 'refused'; readonly reason: string };

/**
 * @param present the nodes of the present set that answered
 * @param next those of the next set
 * @param sets both, as `describeSet` writes them
 */
export function moveStateOf(
  present: readonly MoveView[],
  next: readonly MoveView[],
  sets: {
    readonly present: string;
    readonly next: string;
    readonly presentCount: number;
    readonly nextCount: number;
  },
): MoveState {
  const isBegun = present.some(({ nextSet }) => nextSet === sets.next);
  const voters = next.filter(({ voting }) => voting);
  // If a node of the next set is sealed, that set has voted before.
  const onward = next.find(({ nextSet }) => nextSet !== null);
  const isFrom = (onward ? next : voters).some(({ previousSet }) => previousSet === sets.present);
  if (isBegun || isFrom) {
    if (onward || consistentQuorum(voters, majorityOf(sets.nextCount))) return { state: 'done' };
  } else if (onward) {
    const reason = `the next set ${sets.next} has moved on to ${onward.nextSet}`;
    return { state: 'refused', reason };
  } else if (voters.length > 0) {
    const reason = `the next set ${sets.next} votes already, and not because of this move: give it a key prefix that was never used`;
    return { state: 'refused', reason };
  }
  // Each node is sealed for one set only, so at most one move can seal a majority.
  const elsewhere = present
    .flatMap(({ nextSet }) => nextSet ?? [])
    .filter((set) => set !== sets.next);
  if (elsewhere.length > (isBegun ? sets.presentCount - majorityOf(sets.presentCount) : 0)) {
    const reason = `the present set ${sets.present} moves to ${elsewhere[0]}, not to ${sets.next}`;
    return { state: 'refused', reason };
  }
  return { state: isBegun || isFrom ? 'begun' : 'not-begun' };
}
