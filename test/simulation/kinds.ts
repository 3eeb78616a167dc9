import { simulateReadmissions } from './readmission-world.ts';
import { type Outcome, type RunOptions, simulate } from './world.ts';

/** The counts that a world of readmissions does not have. */
const NONE = {
  writeBacks: 0,
  moves: 0,
  carried: 0,
  excepted: 0,
  handOvers: 0,
  handOversBeside: 0,
  faultCount: 0,
  recoveryMs: 0,
};

/** Runs the world of a seed, of any kind. The page bundles only the worlds of `simulate`. */
export async function worldOf(seed: number, options: RunOptions): Promise<Outcome> {
  if (!options.readmissions) return simulate(seed, options);
  return { ...NONE, ...simulateReadmissions(seed, options) };
}
