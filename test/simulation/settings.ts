import type { Random } from './random.ts';

/** What kind of world it is. */
export interface Settings {
  readonly nodeCount: number;
  readonly clientCount: number;
  /** How many in one client take locks at the same time. */
  readonly workerCount: number;
  readonly resourceCount: number;
  readonly maxTtlMs: number;
  readonly fenceTtlMs: number;
  /**
   * `few`: fewer than a majority of the nodes are without memory at one time, and wall clocks jump at will: nothing may rest
   * on them. `any`: any number of nodes loses its memory; they begin again together once all answer, with the wall clock as seed,
   * which therefore must be right.
   */
  readonly losses: 'few' | 'any';
  /** Nodes are declared `durable`, rightly or not: they are readmitted at once, and tokens must not rest on the delay. */
  readonly durable: boolean;
  readonly firstToken: bigint | null;
  /** Whether nothing happens to the nodes: then no two may hold a lease at once, whatever clients and networks do. */
  readonly areNodesSound: boolean;
  /**
   * Whether nodes lose their memory only in ways that they wait for: by a restart or a flush, fewer than a majority at a time,
   * under clocks that do not jump. No two may hold a lease at once then either.
   */
  readonly areLossesWaitedFor: boolean;
  /** Whether one more client is configured with some of the nodes only. */
  readonly hasStranger: boolean;
  readonly resends: boolean;
  readonly delayChance: number;
  readonly delayMaxMs: number;
  readonly pauseChance: number;
  readonly faultCount: number;
  /** When the faults end and everything is well again. */
  readonly calmAtMs: number;
}

export function settingsFor(random: Random): Settings {
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
