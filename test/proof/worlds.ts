import { planFaults } from '../simulation/faults.ts';
import { Random } from '../simulation/random.ts';
import { Recorder } from '../simulation/recorder.ts';
import type { NodeFlaw } from '../simulation/redis-process.ts';
import { settingsFor } from '../simulation/settings.ts';
import { simulate } from '../simulation/world.ts';
import { type Rosters, type Trace, traceOf } from '../spec/trace.ts';

/** A trace, and the names of the nodes of its world in their order. */
export interface WorldTrace extends Trace {
  readonly nodes: readonly string[];
}

/** Number of recorded steps of each trace. */
const STEPS_MAX = 200;
const NAMES = ['a', 'b', 'c', 'd', 'e'];
/**
 * Faults after which an old master goes on answering. The proof assumes that after a first start,
 * most old masters are silent. So worlds in which no majority may vote are without these faults.
 */
const OLD_MASTERS: ReadonlySet<string> = new Set(['failover', 'bury-ghost', 'replica-for-a-while']);

/**
 * Records the traces of the first `count` worlds from a seed on that have one resource and no
 * hand-over: one program in each client.
 */
export async function record(
  firstSeed: number,
  count: number,
  rosters: Rosters,
  flaws: ReadonlySet<NodeFlaw> = new Set(),
): Promise<WorldTrace[]> {
  const traces: WorldTrace[] = [];
  for (let seed = firstSeed; traces.length < count; seed += 1) {
    const settings = settingsFor(seed);
    const { nodeCount, resourceCount, workerCount, hasStranger, losses } = settings;
    if (resourceCount > 1 || workerCount > 1 || hasStranger) continue;
    const faults = planFaults(settings, new Random(seed, 'faults'));
    const mayStartAgain = losses === 'any' || nodeCount < 3;
    const isOutside = (kind: string): boolean => mayStartAgain && OLD_MASTERS.has(kind);
    const without = new Set(faults.flatMap(({ kind }, at) => (isOutside(kind) ? [at] : [])));
    const nodes = NAMES.slice(0, nodeCount);
    const recorder = new Recorder(STEPS_MAX, nodes);
    await simulate(seed, { without, flaws, recorder });
    traces.push({ ...traceOf(seed, recorder, nodes, rosters), nodes });
  }
  return traces;
}
