/**
 * How many of `nodeCount` nodes form a majority.
 *
 * Invariant: any two majorities share a node. That node is why a later holder's token is above an earlier one's.
 */
export function majorityOf(nodeCount: number): number {
  const majority = Math.floor(nodeCount / 2) + 1;
  if (2 * majority <= nodeCount) throw new Error(`two majorities of ${nodeCount} nodes must meet`);
  return majority;
}

/** What a voter knew of the generations when it voted; `index` is the node's place among the sorted names. */
export interface Voter {
  readonly index: number;
  readonly generation: number;
  readonly roster: readonly number[];
}

/**
 * A *consistent quorum*: `majority` voters of which none knows that another one's incarnation has been superseded.
 * Null where there is none.
 *
 * Invariant: for every two voters X and Y of the quorum, `roster_Y[X] <= generation_X`. A node that lost its memory votes
 * again only after a majority has been told its new generation, so a vote from before can no longer be counted.
 */
export function consistentQuorum<V extends Voter>(
  voters: readonly V[],
  majority: number,
): readonly V[] | null {
  return extend([], voters, majority);
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
  return knownGeneration(y, x) <= x.generation && knownGeneration(x, y) <= y.generation;
}

function knownGeneration(of: Voter, about: Voter): number {
  const generation = of.roster[about.index];
  if (generation === undefined) throw new Error(`roster has no entry for node ${about.index}`);
  return generation;
}

/** The places of voters whose incarnation another voter knows to be superseded: their votes do not count together. */
export function superseded(voters: readonly Voter[]): readonly number[] {
  const isOutdone = (voter: Voter): boolean =>
    voters.some((other) => knownGeneration(other, voter) > voter.generation);
  return voters.filter(isOutdone).map((voter) => voter.index);
}
