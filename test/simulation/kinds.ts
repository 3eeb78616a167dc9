import { NO_COUNTS } from './counts.ts';
import { simulateReadmissions } from './readmission-world.ts';
import { type Outcome, type RunOptions, simulate } from './world.ts';

/** Runs the world of a seed, of any kind. The page bundles only the worlds of `simulate`. */
export async function worldOf(seed: number, options: RunOptions): Promise<Outcome> {
  if (!options.readmissions) return simulate(seed, options);
  const life = simulateReadmissions(seed, options);
  return { ...NO_COUNTS, faultCount: 0, recoveryMs: 0, ...life };
}
