import type { Redlock } from '../../packages/lock/src/redlock/redlock.ts';
import { sleep } from '../../packages/lock/src/runtime/runtime.ts';
import type { Computer } from './computer.ts';
import type { Fault } from './faults.ts';
import type { Random } from './random.ts';
import type { Settings } from './settings.ts';

/** One node set of a world: its key prefix, and the indexes of its machines. */
export interface SetPlan {
  readonly keyPrefix: string;
  readonly machines: readonly number[];
}

/** The move of a world: from the first set to the second, and perhaps to a third. */
export interface MovePlan {
  readonly present: SetPlan;
  readonly next: SetPlan;
  /** The set of a rival move: some processes want to move there instead. Null in most worlds. */
  readonly other: SetPlan | null;
  /** The third set, to which the locks move from the second one. Null in many worlds. */
  readonly after: SetPlan | null;
  readonly machineCount: number;
  readonly faults: readonly Fault[];
}

/** The number of processes that may move the nodes at the same time. */
export const MOVERS = 2;

/** The values of `node` in a fault `start-mover`: the set to which that process moves the locks. */
export const Target = { next: 0, other: 1, after: 2 } as const;

export function planMove(settings: Settings, random: Random): MovePlan {
  const { nodeCount, calmAtMs, maxTtlMs } = settings;
  const machineCount = nodeCount + random.pick([0, 1, 1, 2, 3]);
  const some = (keyPrefix: string): SetPlan => {
    const count = Math.min(machineCount, random.pick([1, 2, 3, 3, 3, 3, 4, 5]));
    const left = Array.from({ length: machineCount }, (_, at) => at);
    const machines = Array.from(
      { length: count },
      () => left.splice(random.below(left.length), 1)[0] ?? 0,
    );
    return { keyPrefix, machines: machines.sort((a, b) => a - b) };
  };
  const next = some('{next}:');
  const other = random.chance(0.15) ? some('{other}:') : null;
  const hasOther = other !== null && machineCount > 1;
  const begunMs = random.between(0, 0.9 * calmAtMs);
  const faults = Array.from({ length: random.pick([1, 2, 4, 8]) }, (_, at): Fault => {
    // Most movers are killed before they are done, and later ones go on.
    const atMs = at === 0 ? begunMs : random.between(begunMs, calmAtMs);
    const kind = at > 0 && random.chance(0.5) ? 'kill-mover' : 'start-mover';
    const common = { client: random.below(MOVERS), memory: 'all' } as const;
    const node = hasOther && random.below(2) === 1 ? Target.other : Target.next;
    return { ...common, atMs, kind, node, ms: maxTtlMs };
  });
  const kills = faults.flatMap((fault): Fault[] => {
    if (fault.kind === 'kill-mover' || random.chance(0.4)) return [];
    const livesMs = random.pick([1, 5, 20, 100]) * random.unit();
    return [{ ...fault, kind: 'kill-mover', atMs: fault.atMs + livesMs }];
  });
  const after =
    other === null && machineCount > Target.after && random.chance(0.4) ? some('{after}:') : null;
  if (after) {
    const onward = faults.map((fault) => ({ ...fault, node: Target.after }));
    faults.push(
      ...onward.map((fault) => ({ ...fault, atMs: random.between(fault.atMs, calmAtMs) })),
    );
  }
  const numbers = Array.from({ length: nodeCount }, (_, at) => at);
  return {
    present: { keyPrefix: '{fenced}:', machines: numbers },
    next,
    other,
    after,
    machineCount,
    faults: [...faults, ...kills],
  };
}

/** The program of an operator: moves until it is done, or refused. */
export async function runMover(
  computer: Computer,
  redlock: Redlock,
  isForced: boolean,
): Promise<void> {
  for (;;) {
    const { state, retryAfterMs } = await redlock.move({ force: isForced });
    if (state === 'done') return;
    await sleep(computer.runtime, Math.max(50, retryAfterMs));
  }
}
