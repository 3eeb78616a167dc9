import type { Mutant } from '../../../../test/simulation/mutant-list.ts';
import type { Protection } from '../../../demo/src/job.ts';
import type { Run } from '../world/run.ts';
import type { Sandbox } from '../world/sandbox-fault.ts';

/** The part of a mutant that is not built into its simulator. */
export type World = Pick<Mutant, 'flaw' | 'moves' | 'world'>;

/** A task for the worker. */
export type Task =
  | {
      readonly kind: 'story';
      readonly id: string;
      readonly protection: Protection;
      readonly votesAtOnce: boolean;
    }
  | ({ readonly kind: 'sandbox' } & Sandbox)
  /** Runs worlds of the project's simulation. */
  | { readonly kind: 'trace'; readonly firstSeed: number; readonly seeds: number }
  /** Runs every `stride`th world from a seed on, until one violates an invariant. */
  | {
      readonly kind: 'search';
      readonly world: World;
      readonly firstSeed: number;
      readonly stride: number;
    }
  /** Leaves out faults of a violated world while it stays violated. */
  | { readonly kind: 'shrink'; readonly world: World; readonly seed: number }
  | {
      readonly kind: 'replay';
      readonly world: World;
      readonly seed: number;
      readonly without: readonly number[];
    };

/** A world of the simulation, without some of its faults. */
export interface Finding {
  readonly seed: number;
  readonly without: readonly number[];
  /** Null if the world keeps its invariants. */
  readonly violation: string | null;
  readonly faultCount: number;
  readonly trace: readonly string[];
}

export type Answer =
  | { readonly kind: 'run'; readonly run: Run }
  /**
   * `digest` chains all worlds: each is the SHA-1 of the digest before it and of the world's trace.
   */
  | { readonly kind: 'trace'; readonly digest: string; readonly lines: number }
  /** Sent during a search. */
  | { readonly kind: 'progress'; readonly seeds: number }
  | { readonly kind: 'finding'; readonly finding: Finding }
  | { readonly kind: 'failed'; readonly message: string };
