import type { Memory } from './machine.ts';
import type { Random } from './random.ts';
import type { Settings } from './settings.ts';

/**
 * A fault at a time. `node` and `client` are indexes. `ms` is a duration, or the size of a jump.
 */
export interface Fault {
  readonly atMs: number;
  /** `start-mover` and `kill-mover` concern the process that moves the nodes. */
  readonly kind: FaultKind | 'start-mover' | 'kill-mover';
  readonly node: number;
  readonly client: number;
  readonly ms: number;
  readonly memory: Memory;
}

const weights = {
  /** A snapshot is saved. A later crash or failover may load it. */
  save: 10,
  /** The process ends, and another one starts `ms` later. */
  crash: 5,
  failover: 4,
  /** The old master of a failover ends. */
  'bury-ghost': 2,
  /** The node becomes a replica that accepts writes, for four times `ms`. */
  'replica-for-a-while': 2,
  flush: 1,
  'lose-lock': 12,
  'lose-record': 4,
  /** One of the node's hashes is evicted: with the memory `snapshot`, the older one. */
  'lose-node': 2,
  /** The clock of a node jumps: keys expire, and a recovery wait ends early. */
  'leap-forward': 3,
  'leap-back': 1,
  /** The memory of a node is full for `ms`. */
  full: 5,
  cut: 6,
  /** Nothing gets through between a client and a node for `ms`. */
  block: 4,
  pause: 5,
  'wall-jump': 3,
  /** The client's process ends, and another one takes its place. */
  'kill-client': 4,
} as const;

export type FaultKind = keyof typeof weights;

const faultKinds = Object.keys(weights) as FaultKind[];

/** Faults that do not change the data of the nodes. */
const aside: ReadonlySet<string> = new Set<FaultKind>([
  'save',
  'full',
  'cut',
  'block',
  'pause',
  'wall-jump',
  'kill-client',
]);

/** Losses of memory after which the node has a recovery wait, so no lease can be held twice. */
const waitedFor: ReadonlySet<string> = new Set<FaultKind>(['crash', 'flush', 'lose-node']);

const HOUR_MS = 3_600_000;

/**
 * Draws all faults of a world, in the order of time. They are drawn beforehand, so that any of them
 * can be left out. Each world has only some kinds of faults: `only`, or kinds that are drawn. So
 * each kind is frequent in some worlds.
 */
export function planFaults(
  settings: Settings,
  random: Random,
  only?: readonly FaultKind[],
): readonly Fault[] {
  const { faultCount, calmAtMs, maxTtlMs, nodeCount, clientCount } = settings;
  const isPossible = (kind: FaultKind): boolean => {
    if (aside.has(kind)) return true;
    return settings.areLossesWaitedFor ? waitedFor.has(kind) : !settings.areNodesSound;
  };
  const drawn = only ?? faultKinds.filter(() => random.chance(0.6));
  const kinds = drawn.filter(isPossible).flatMap((kind) => Array(weights[kind]).fill(kind));
  if (kinds.length === 0) return [];
  const atMs = Array.from({ length: faultCount }, () => random.between(0, calmAtMs));
  return atMs
    .sort((a, b) => a - b)
    .map((time) => {
      const kind = random.pick(kinds);
      return {
        atMs: time,
        kind,
        node: random.below(nodeCount),
        client: random.below(clientCount),
        ms: kind === 'wall-jump' ? random.between(-HOUR_MS, HOUR_MS) : lengthMs(maxTtlMs, random),
        memory: random.pick(['nothing', 'nothing', 'snapshot', 'snapshot', 'all']),
      };
    });
}

/**
 * Draws jumps of nodes' clocks for a world in which two valid leases at once are a violation. The
 * clocks jump back only, which makes nodes keep locks and recovery waits for longer. A clock that
 * jumps forward ends leases early, so exclusion is not promised then.
 */
export function planLeapsBack(settings: Settings, random: Random): readonly Fault[] {
  const { areNodesSound, areLossesWaitedFor, calmAtMs, maxTtlMs, nodeCount } = settings;
  if (!areNodesSound && !areLossesWaitedFor) return [];
  return Array.from({ length: random.pick([0, 1, 3, 10]) }, () => ({
    atMs: random.between(0, calmAtMs),
    kind: 'leap-back',
    node: random.below(nodeCount),
    client: 0,
    ms: lengthMs(maxTtlMs, random) * random.pick([1, 1, 5]),
    memory: 'all',
  }));
}

/** Draws a duration: mostly shorter than a lease, sometimes longer. */
function lengthMs(maxTtlMs: number, random: Random): number {
  return maxTtlMs * random.pick([0.05, 0.2, 0.6, 2]) * random.unit();
}
