import {
  consistentQuorum,
  type Incarnation,
  majorityOf,
  outlivedIn,
  type Roster,
  supersededIn,
  type Voter,
} from './quorum.js';

/** What a node remembers, as INSPECT tells it. */
export interface Inspection {
  /** The server process that answered, and its replication history. */
  readonly history: string;
  /** Random name of this life of the node's data. */
  readonly incarnation: string;
  readonly admitted: boolean;
  /** Of the last admitted incarnation whose data survived; 0 where nothing did. */
  readonly generation: number;
  /** What it has been told of every node; empty where nothing is known. */
  readonly roster: Roster;
  /** The highest token this node remembers. */
  readonly max: bigint;
  /** The longest lease in milliseconds that it remembers having granted. */
  readonly longestMs: number;
}

/** That an incarnation is the latest of its node: what others are asked to promise to respect. */
export interface Claim extends Incarnation {
  /** The node's place among the sorted names. */
  readonly index: number;
}

/**
 * A node's word that votes of earlier incarnations than those claimed do not count beside its own any more. Its roster is as
 * it was before: whether the promises of several count together is as with votes.
 */
export interface Promised extends Voter {
  /** Whether it has a vote itself. */
  readonly admitted: boolean;
  /** The highest token that it has given or confirmed. */
  readonly max: bigint;
  /** The longest lease in milliseconds that it has granted. */
  readonly longestMs: number;
}

/** What tokens begin above where no node, or no majority, remembers the earlier ones. */
export interface Seed {
  readonly wallClockMs: number;
  /** Replaces the clock where no node remembers any token at all. */
  readonly firstToken: bigint | null;
}

/** What an admitted node begins with. */
export interface Readmission {
  readonly floor: bigint;
  readonly roster: Roster;
  readonly longestMs: number;
}

/** What is to be promised, and on whose word nodes without a vote may have one. */
export interface Gathering {
  readonly claims: readonly Claim[];
  /** How many nodes must promise where no majority of them votes; null where one did when it was planned. */
  readonly everybody: number | null;
}

/**
 * What has to be promised so that nodes without a vote, or with one that does not count, may have one; null where too few
 * have answered for that.
 *
 * Where a majority votes, it is asked to promise. Where it does not, at first start or because too many nodes lost their
 * memory, *every* node must promise, and *every* node is claimed for: then an incarnation that nobody here has seen, such as an
 * old master that still answers somebody, cannot be counted beside any that has been seen.
 *
 * @param inspections by the nodes' places; null for a node that did not answer
 * @param isForced an operator says that nodes which did not answer are gone for good
 */
export function planGathering(
  inspections: readonly (Inspection | null)[],
  seed: Seed,
  isForced = false,
): Gathering | null {
  const known = inspections.flatMap((seen, index) => (seen ? [{ index, ...seen }] : []));
  const voters = known.filter(({ admitted }) => admitted);
  if (consistentQuorum(voters, majorityOf(inspections.length))) {
    const superseded = supersededIn(voters);
    const subjects = known.filter((one) => !one.admitted || superseded.includes(one));
    return { claims: subjects.map((one) => claimFor(one, inspections, 1)), everybody: null };
  }
  // A minority with a vote helps nobody.
  const needed = isForced ? majorityOf(inspections.length) : inspections.length;
  if (known.length < needed) return null;
  // What nobody remembers was below the clock: an old master that nobody here has seen may still go by that.
  const least = Math.floor(seed.wallClockMs);
  return {
    claims: known.map((one) => claimFor(one, inspections, least)),
    everybody: known.length,
  };
}

/**
 * Joins a claim for the same incarnation that nothing stands against, so that clients who admit it at once do not compete.
 * One that a majority knows need not be above `least` either: what came after it would be known to some of them.
 */
function claimFor(
  { index, incarnation, generation: own }: Inspection & { readonly index: number },
  inspections: readonly (Inspection | null)[],
  least: number,
): Claim {
  const told = inspections.flatMap((seen) => seen?.roster[index] ?? []);
  const latest = Math.max(own, ...told.map(({ generation }) => generation));
  const claims = told.filter((known) => known.generation === latest);
  const isOurs = claims.length > 0 && claims.every((known) => known.incarnation === incarnation);
  if (isOurs && claims.length >= majorityOf(inspections.length)) {
    return { index, incarnation, generation: latest };
  }
  return {
    index,
    incarnation,
    generation: Math.max(least, isOurs && latest > own ? latest : latest + 1),
  };
}

/**
 * What nodes that have been claimed for begin with, upon the promises of others; null where those do not suffice.
 *
 * Invariant: every token that an earlier incarnation of such a node helped to confirm is at or below `floor`, or can no longer
 * be confirmed. Any quorum that counts that incarnation shares a node with the promises. If that node voted before its
 * promise, its `max` covers the token; if after, its roster names the new incarnation and voids the old vote.
 */
export function planReadmission(
  { claims, everybody }: Gathering,
  promises: readonly Promised[],
  nodeCount: number,
  seed: Seed,
): Readmission | null {
  const voters = promises.filter(({ admitted }) => admitted);
  const quorum = consistentQuorum(voters, majorityOf(nodeCount));
  const sources = quorum ?? (promises.length === everybody ? promises : []);
  if (sources.length === 0) return null;
  const max = sources.reduce((highest, one) => (one.max > highest ? one.max : highest), 0n);
  const seeded = quorum ? 0n : seedToken(promises, seed);
  const latestOf = (index: number): Incarnation =>
    [
      ...sources.flatMap(({ roster }) => roster[index] ?? []),
      ...claims.filter((one) => one.index === index),
    ]
      .map(({ generation, incarnation }) => ({ generation, incarnation }))
      .reduce((latest, one) => (one.generation > latest.generation ? one : latest));
  return {
    floor: max > seeded ? max : seeded,
    roster: Array.from({ length: nodeCount }, (_, index) => latestOf(index)),
    longestMs: Math.max(...sources.map(({ longestMs }) => longestMs)),
  };
}

function seedToken(promises: readonly Promised[], { firstToken, wallClockMs }: Seed): bigint {
  // One that another client has just admitted has given no token yet.
  const isUnused = ({ max }: Promised): boolean => max === 0n || max + 1n === firstToken;
  if (firstToken !== null && promises.every(isUnused)) return firstToken - 1n;
  return BigInt(Math.floor(wallClockMs * 1_000));
}

/**
 * The nodes of which others know a later incarnation: their memory is out of date, and stands in the way of a gathering.
 *
 * @param everybody as in `Gathering`
 */
export function findOutlived(
  inspections: readonly (Inspection | null)[],
  everybody: number | null,
): readonly (Inspection & Voter)[] {
  const known = inspections.flatMap((seen, index) => (seen ? [{ index, ...seen }] : []));
  const voters = known.filter(({ admitted }) => admitted);
  const witnesses = everybody === null ? voters : known.filter(({ roster }) => roster.length > 0);
  return outlivedIn(voters, witnesses);
}

/** Whether the nodes that were seen are seen again with the same votes and the same promises. */
export function isSeenAgain(
  before: readonly (Inspection | null)[],
  now: readonly (Inspection | null)[],
): boolean {
  const lives = (seen: readonly (Inspection | null)[]): string =>
    JSON.stringify(
      seen.map((one) => one && [one.incarnation, one.admitted, one.generation, one.roster]),
    );
  return lives(before) === lives(now);
}

/** The places of two nodes that are one and the same server; null where there are none. */
export function findTwins(
  inspections: readonly (Inspection | null)[],
): readonly [number, number] | null {
  const histories = inspections.map((seen) => seen?.history);
  const second = histories.findIndex((history, at) => history && histories.indexOf(history) < at);
  return second === -1 ? null : [histories.indexOf(histories[second]), second];
}
