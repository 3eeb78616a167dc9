import {
  consistentQuorum,
  type Incarnation,
  isLater,
  majorityOf,
  outlivedIn,
  type Roster,
  supersededIn,
  type Voter,
} from './quorum.js';

/** The memory of a node, as INSPECT reports it. */
export interface Inspection {
  /** The server's replication history. It changes when the process restarts or is promoted. */
  readonly history: string;
  /** Random name of this incarnation. */
  readonly incarnation: string;
  readonly voting: boolean;
  /** Generation of the last voting incarnation whose data survived; 0 if none did. */
  readonly generation: number;
  /** The latest incarnation of every node, as far as it knows; empty if it knows none. */
  readonly roster: Roster;
  /** The highest token that this node remembers. */
  readonly max: bigint;
  /** The longest lease in milliseconds that it remembers having granted. */
  readonly longestMs: number;
  /**
   * Not null if the node waits for a move, and only the move may admit it. `early`: this
   * incarnation began before any vote of its set, so it cannot have forgotten one.
   */
  readonly awaits: 'early' | 'late' | null;
  /** The longest lease in milliseconds that it would grant; null if it was never admitted. */
  readonly maxTtlMs: number | null;
}

/**
 * Names an incarnation as the latest of its node. Other nodes are asked to promise to respect it.
 */
export interface Nomination extends Incarnation {
  /** The node's index among the sorted names. */
  readonly index: number;
}

/**
 * A node's promise: votes of earlier incarnations than those nominated no longer count beside its
 * own. Its roster is the one before the promise. The rosters decide whether several promises count
 * together, as with votes.
 */
export interface Promised extends Voter {
  /** True if the node itself is voting. */
  readonly voting: boolean;
  /** The highest token that it has given or confirmed. */
  readonly max: bigint;
  /** The longest lease in milliseconds that it has granted. */
  readonly longestMs: number;
}

/** The lower bound of tokens if no node, or no majority, remembers the earlier tokens. */
export interface Seed {
  readonly wallClockMs: number;
  /** Replaces the clock if no node remembers any token at all. */
  readonly firstToken: bigint | null;
  /** Of a move. No token may be at or below `floor`. If `isCertain`, it replaces the clock. */
  readonly moved?: {
    readonly floor: bigint;
    readonly longestMs: number;
    readonly isCertain: boolean;
    /** The limit of the previous set; null if it is unknown. */
    readonly maxTtlMs: number | null;
  };
}

/** The data that a readmitted node begins with. */
export interface Readmission {
  readonly floor: bigint;
  readonly roster: Roster;
  readonly longestMs: number;
}

/** The nominations to promise, and the number of promises that they need. */
export interface Gathering {
  readonly nominations: readonly Nomination[];
  /**
   * Number of nodes that must promise because no majority votes; null if a majority voted at
   * planning.
   */
  readonly everybody: number | null;
}

/**
 * Plans the promises for a readmission of nodes whose votes are missing or do not count. Null if
 * too few nodes answered.
 *
 * If a majority votes, it is asked to promise. Otherwise, at first start or after too many nodes
 * lost their memory, *every* node must promise, and *every* node is nominated. Then no
 * incarnation that this client has not seen can be counted beside one that it has seen. An example
 * is an old master that still answers another client.
 *
 * @param inspections by node index; null for a node that did not answer
 * @param isForced true if an operator has declared that silent nodes are gone for good
 */
export function planGathering(
  inspections: readonly (Inspection | null)[],
  seed: Seed,
  isForced = false,
): Gathering | null {
  const known = inspections.flatMap((seen, index) => (seen ? [{ index, ...seen }] : []));
  const voters = known.filter(({ voting }) => voting);
  if (consistentQuorum(voters, majorityOf(inspections.length))) {
    const superseded = supersededIn(voters);
    const subjects = known.filter((one) => !one.voting || superseded.includes(one));
    return {
      nominations: subjects.map((one) => nominationOf(one, inspections, 1)),
      everybody: null,
    };
  }
  // No majority votes, so all nodes must answer. If forced, a majority suffices.
  const needed = isForced ? majorityOf(inspections.length) : inspections.length;
  if (known.length < needed) return null;
  // An old master that this client does not see may use a generation that all others have
  // forgotten. Such generations came from an earlier clock, so the present clock is above them.
  const least = Math.floor(seed.wallClockMs);
  return {
    nominations: known.map((one) => nominationOf(one, inspections, least)),
    everybody: known.length,
  };
}

/**
 * Nominates a node's incarnation. If the nodes already know this nomination, and none contradicts
 * it, repeats it. So clients that admit the node at the same time do not compete.
 *
 * The generation is `least` or above. A nomination that a majority knows may be below, because some
 * node of that majority would know any later one.
 */
function nominationOf(
  { index, incarnation, generation: own }: Inspection & { readonly index: number },
  inspections: readonly (Inspection | null)[],
  least: number,
): Nomination {
  const reported = inspections.flatMap((seen) => seen?.roster[index] ?? []);
  const latest = Math.max(own, ...reported.map(({ generation }) => generation));
  const ones = reported.filter((known) => known.generation === latest);
  const isOurs = ones.length > 0 && ones.every((known) => known.incarnation === incarnation);
  if (isOurs && ones.length >= majorityOf(inspections.length)) {
    return { index, incarnation, generation: latest };
  }
  return {
    index,
    incarnation,
    generation: Math.max(least, isOurs && latest > own ? latest : latest + 1),
  };
}

/**
 * Returns the data with which the nominated nodes begin, based on the promises. Null if these do
 * not suffice.
 *
 * Invariant: every token that an earlier incarnation of such a node helped to confirm is at or
 * below `floor`, or can no longer be confirmed. Any quorum that counts that incarnation shares a
 * node with the promises. If that node voted before its promise, its `max` covers the token. If it
 * voted after, its roster names the new incarnation and voids the old vote. If it lost its memory
 * in between, an earlier readmission gave it that floor, or that roster: "cover" in docs/tokens.md.
 */
export function planReadmission(
  { nominations, everybody }: Gathering,
  promises: readonly Promised[],
  nodeCount: number,
  seed: Seed,
): Readmission | null {
  const voters = promises.filter(({ voting }) => voting);
  const quorum = consistentQuorum(voters, majorityOf(nodeCount));
  const sources = quorum ?? (promises.length === everybody ? promises : []);
  if (sources.length === 0) return null;
  const { moved } = seed;
  const max = sources.reduce(
    (highest, one) => (one.max > highest ? one.max : highest),
    moved?.floor ?? 0n,
  );
  const seeded = quorum || moved?.isCertain ? 0n : seedToken(promises, seed);
  const latestOf = (index: number): Incarnation =>
    [
      ...sources.flatMap(({ roster }) => roster[index] ?? []),
      ...nominations.filter((one) => one.index === index),
    ]
      .map(({ generation, incarnation }) => ({ generation, incarnation }))
      .reduce((latest, one) => (isLater(one, latest) ? one : latest));
  return {
    floor: max > seeded ? max : seeded,
    roster: Array.from({ length: nodeCount }, (_, index) => latestOf(index)),
    longestMs: Math.max(moved?.longestMs ?? 0, ...sources.map(({ longestMs }) => longestMs)),
  };
}

function seedToken(promises: readonly Promised[], { firstToken, wallClockMs }: Seed): bigint {
  // If another client has just readmitted a node at `firstToken`, that node has given no token yet.
  const isUnused = ({ max }: Promised): boolean => max === 0n || max + 1n === firstToken;
  if (firstToken !== null && promises.every(isUnused)) return firstToken - 1n;
  return BigInt(Math.floor(wallClockMs * 1_000));
}

/**
 * The longest lease that admitted nodes will grant: the limit that most of these nodes have. Of two
 * equally frequent limits it is the longer one. Null if no node has a limit.
 *
 * A limit is a fact of the nodes. A client's own limit, often a default, counts only for nodes of
 * which none has one. Otherwise the client that happens to come first after a restart would end the
 * longer leases of all others. A node that was away while an operator changed the limit may know an
 * earlier one. It loses, because most nodes have the new one.
 */
export function limitIn(
  nodes: readonly ({ readonly maxTtlMs: number | null } | null)[],
): number | null {
  const limits = nodes.flatMap((one) => one?.maxTtlMs ?? []);
  const byLimit = [...Map.groupBy(limits, (ms) => ms)];
  const [most] = byLimit.toSorted(([a, as], [b, bs]) => bs.length - as.length || b - a);
  return most?.[0] ?? null;
}

/**
 * Returns the nodes of which others know a later incarnation. Their memory is out of date and
 * blocks the gathering of promises.
 *
 * @param everybody as in `Gathering`
 */
export function findOutlived(
  inspections: readonly (Inspection | null)[],
  everybody: number | null,
): readonly (Inspection & Voter)[] {
  const known = inspections.flatMap((seen, index) => (seen ? [{ index, ...seen }] : []));
  const voters = known.filter(({ voting }) => voting);
  const witnesses = everybody === null ? voters : known.filter(({ roster }) => roster.length > 0);
  return outlivedIn(voters, witnesses);
}

/** True if the inspected nodes show the same votes and the same promises again. */
export function isSeenAgain(
  before: readonly (Inspection | null)[],
  now: readonly (Inspection | null)[],
): boolean {
  const lives = (seen: readonly (Inspection | null)[]): string =>
    JSON.stringify(
      seen.map((one) => one && [one.incarnation, one.voting, one.generation, one.roster]),
    );
  return lives(before) === lives(now);
}

/** Returns the indexes of two nodes that are the same server; null if there are none. */
export function findTwins(
  inspections: readonly (Inspection | null)[],
): readonly [number, number] | null {
  const histories = inspections.map((seen) => seen?.history);
  const second = histories.findIndex((history, at) => history && histories.indexOf(history) < at);
  return second === -1 ? null : [histories.indexOf(histories[second]), second];
}
