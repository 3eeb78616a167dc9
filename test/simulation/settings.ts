import { Random } from './random.ts';

/** The kind of a world. */
export interface Settings {
  readonly nodeCount: number;
  readonly clientCount: number;
  /** Number of concurrent programs in one client. */
  readonly workerCount: number;
  readonly resourceCount: number;
  readonly maxTtlMs: number;
  readonly fenceTtlMs: number;
  /**
   * `few`: fewer than a majority of the nodes are without memory at one time. Wall clocks jump at
   * will, so nothing may depend on them.
   *
   * `any`: any number of nodes loses its memory. Once all answer, they begin again together, with
   * tokens from the wall clock. So the wall clock must be right.
   */
  readonly losses: 'few' | 'any';
  /**
   * True if nodes are declared `durable`, rightly or wrongly. Then they are readmitted at once, so
   * tokens must not depend on the recovery wait.
   */
  readonly durable: boolean;
  readonly firstToken: bigint | null;
  /**
   * True if no fault changes the data of a node, and the clocks of nodes jump back only. Then no
   * two clients may hold valid leases at once, whatever happens to clients and networks.
   */
  readonly areNodesSound: boolean;
  /**
   * True if nodes lose their memory only in ways that a recovery wait covers: a restart, a flush,
   * or an eviction of the node's hash. In such worlds, clocks of nodes jump back only, and fewer
   * than a majority are without memory at one time. So no two clients may hold valid leases at
   * once.
   */
  readonly areLossesWaitedFor: boolean;
  /** True if one more client is configured with only some of the nodes. */
  readonly hasStranger: boolean;
  readonly resends: boolean;
  readonly delayChance: number;
  readonly delayMaxMs: number;
  /** True if second copies of a lease's commands arrive late although no connection broke. */
  readonly hasLeaseStrays: boolean;
  /**
   * True if programs read the owner id of each lease at once. Such a lease is never handed over in
   * its process. Otherwise, they read the id of a lease that another process extends.
   */
  readonly readsOwners: boolean;
  readonly pauseChance: number;
  readonly faultCount: number;
  /** The time at which all faults end. */
  readonly calmAtMs: number;
}

/** A short world has two clients, few faults, and an end after at most four leases' time. */
export function settingsFor(seed: number, isShort = false): Settings {
  const random = new Random(seed, 'settings');
  const hasLeaseStrays = new Random(seed, 'lease strays').chance(0.5);
  const readsOwners = new Random(seed, 'owners').chance(0.5);
  const settings = { ...longSettings(random), hasLeaseStrays, readsOwners };
  if (!isShort) return settings;
  const calmAtMs = random.between(1, 4) * settings.maxTtlMs;
  return { ...settings, calmAtMs, clientCount: 2, workerCount: 1, faultCount: random.below(9) };
}

function longSettings(random: Random): Omit<Settings, 'hasLeaseStrays' | 'readsOwners'> {
  const nodeCount = random.pick([3, 3, 3, 3, 3, 3, 5, 5, 5, 4, 2, 1]);
  const maxTtlMs = random.pick([40, 150, 600]);
  const losses = random.chance(0.6) ? 'few' : 'any';
  const calmAtMs = random.between(5, 40) * maxTtlMs;
  const durable = random.chance(0.6);
  const areNodesSound = random.chance(0.2);
  const waitsForLosses = losses === 'few' && !areNodesSound && random.chance(0.4);
  return {
    nodeCount,
    maxTtlMs,
    losses,
    calmAtMs,
    clientCount: 2 + random.below(3),
    resourceCount: random.pick([1, 1, 1, 2, 3]),
    durable: durable && !waitsForLosses,
    areLossesWaitedFor: waitsForLosses,
    firstToken: losses === 'few' && random.chance(0.5) ? 33n : null,
    areNodesSound,
    hasStranger: losses === 'few' && nodeCount === 5 && random.chance(0.5),
    resends: random.chance(0.7),
    delayChance: random.pick([0.02, 0.1, 0.3]),
    delayMaxMs: random.pick([5, 0.3 * maxTtlMs, maxTtlMs, 3 * maxTtlMs]),
    pauseChance: random.pick([0, 0, 0.003, 0.02]),
    faultCount: Math.floor(random.between(5, 120)),
    workerCount: random.pick([1, 1, 2, 4]),
    fenceTtlMs: maxTtlMs * random.pick([1, 3, 1_000]),
  };
}
