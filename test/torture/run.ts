import { setTimeout as sleep } from 'node:timers/promises';
import type { Fault } from './fault.ts';
import { FAULT_KINDS, makeFaults } from './faults.ts';
import type { Operation } from './history.ts';
import { World, type WorldOptions } from './world.ts';

export interface TortureOptions extends Partial<WorldOptions> {
  readonly seed: number;
  readonly seconds: number;
  /** @default all */
  readonly faults?: readonly string[];
}

export interface Run {
  readonly history: readonly Operation[];
  readonly faults: readonly Fault[];
  /** Names and versions of the servers. */
  readonly programs: Readonly<Record<string, string>>;
}

/** Lets clients work on real servers while faults are made. The seed decides what is drawn. */
export async function torture(options: TortureOptions): Promise<Run> {
  const {
    seed,
    seconds,
    workload = 'mixed',
    subject = 'fenced',
    threads = 3,
    faults: kinds = FAULT_KINDS,
  } = options;
  const hasMovableClocks = kinds.some((kind) => kind.endsWith('-clock'));
  await using world = await World.start({ seed, workload, subject, threads, hasMovableClocks });
  const signal = AbortSignal.timeout(seconds * 1_000);
  const made = makeFaults(world, { seed, kinds, signal });
  const [faults] = await Promise.all([made, sleep(seconds * 1_000)]);
  await world.finish();
  return { history: world.recorder.operations(), faults, programs: world.programs };
}
