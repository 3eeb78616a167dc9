import type { Mutant } from '../../../../test/simulation/mutant-list.ts';

/**
 * The file of the simulator. A mutant is the protocol without one protective step. Mutants that
 * replace source text have files of their own.
 */
export function fileOf(mutant: Mutant | null): string {
  return `simulator/${mutant?.patch ? mutant.name.replaceAll(' ', '-') : 'shipping'}.js`;
}
