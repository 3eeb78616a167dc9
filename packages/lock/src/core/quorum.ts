/**
 * Number of nodes that form a majority of `nodeCount`.
 *
 * Invariant: any two majorities share a node. Because of that node, a later holder's token is above
 * an earlier one's.
 */
export function majorityOf(nodeCount: number): number {
  const majority = Math.floor(nodeCount / 2) + 1;
  if (2 * majority <= nodeCount)
    throw new Error(`two majorities of ${nodeCount} nodes must share a node`);
  return majority;
}

/** The data of one node from a start, a flush, a failover or a restore until the next one. */
export interface Incarnation {
  /**
   * Higher than that of every earlier incarnation of the node; may be raised. 0 if there is none.
   */
  readonly generation: number;
  /** Random name; '' if there is none. */
  readonly incarnation: string;
}

/**
 * True if `one` is later than `other`: the order of all incarnations of a node. Two clients may
 * nominate different incarnations under one generation, so the names decide ties. Names are ASCII,
 * and compare byte by byte, as in roster.lua.
 *
 * Invariant: of two different entries of a node, one is later. So all nodes and clients that merge
 * the same rosters keep the same entry, and none loses one that a majority has promised.
 */
export function isLater(one: Incarnation, other: Incarnation): boolean {
  if (one.generation !== other.generation) return one.generation > other.generation;
  return one.incarnation > other.incarnation;
}

/** The latest known incarnation of every node, in the order of the sorted names. */
export type Roster = readonly Incarnation[];

/**
 * The incarnation that voted, and its roster at that time. `index` is the node's index among the
 * sorted names.
 */
export interface Voter extends Incarnation {
  readonly index: number;
  readonly roster: Roster;
}

/**
 * Finds a *consistent quorum*: `majority` voters, none of which knows that another one's vote has
 * been superseded. Null if there is none.
 *
 * Invariant: a node that lost its memory votes again only after a majority has recorded its new
 * incarnation in their rosters. So a vote of an earlier incarnation is not counted beside theirs.
 * Nodes of that majority may lose their memory later. Then they inherit these rosters.
 */
export function consistentQuorum<V extends Voter>(
  voters: readonly V[],
  majority: number,
): readonly V[] | null {
  if (voters.length < majority) return null;
  if (!allAgree(voters)) return extend([], voters, majority);
  return voters.length === majority ? voters : voters.slice(0, majority);
}

function allAgree(voters: readonly Voter[]): boolean {
  for (const voter of voters) {
    for (const other of voters) if (knowsLater(other, voter, voter.index)) return false;
  }
  return true;
}

function extend<V extends Voter>(
  chosen: readonly V[],
  rest: readonly V[],
  majority: number,
): readonly V[] | null {
  if (chosen.length === majority) return chosen;
  for (const [at, voter] of rest.entries()) {
    if (chosen.length + rest.length - at < majority) return null;
    if (!chosen.every((other) => agree(other, voter))) continue;
    const quorum = extend([...chosen, voter], rest.slice(at + 1), majority);
    if (quorum) return quorum;
  }
  return null;
}

function agree(x: Voter, y: Voter): boolean {
  return !knowsLater(x, y, y.index) && !knowsLater(y, x, x.index);
}

/**
 * True if `one` knows a later incarnation of node `index` than `other`, or a later generation of
 * the same incarnation. The vote of `other` is then superseded. If another incarnation has the same
 * generation, the vote is void whichever name is higher. That is stricter than `isLater`, which
 * suffices for tokens: it makes clients readmit one of the two under a generation of its own.
 */
export function knowsLater(one: Pick<Voter, 'roster'>, other: Incarnation, index: number): boolean {
  const known = one.roster[index];
  if (!known) throw new Error(`roster has no entry for node ${index}`);
  if (known.incarnation === other.incarnation) return known.generation > other.generation;
  return known.generation >= other.generation;
}

/** Returns the voters that a witness knows to be superseded. Beside its vote, theirs are void. */
export function supersededIn<V extends Voter>(
  voters: readonly V[],
  witnesses: readonly Voter[] = voters,
): readonly V[] {
  return voters.filter((voter) =>
    witnesses.some((witness) => knowsLater(witness, voter, voter.index)),
  );
}

/** Returns the voters of which a witness knows another, later incarnation. */
export function outlivedIn<V extends Voter>(
  voters: readonly V[],
  witnesses: readonly Voter[],
): readonly V[] {
  return voters.filter((voter) =>
    witnesses.some(
      (witness) =>
        knowsLater(witness, voter, voter.index) &&
        witness.roster[voter.index]?.incarnation !== voter.incarnation,
    ),
  );
}
