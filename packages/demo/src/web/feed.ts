import type { Event } from '../history.js';
import type { RecordedVariant, Recording, SeenLease } from './recording.js';

/** A story that this machine can play, with the variants that the page offers. */
export interface OfferedStory {
  readonly story: number | null;
  readonly title: string;
  readonly variants: readonly Pick<RecordedVariant, 'lock' | 'protection'>[];
}

/** A message to the page. `lease` replaces the lease with the same index. */
export type FeedMessage =
  | {
      readonly kind: 'offer';
      readonly machine: Readonly<Record<string, string>>;
      readonly stories: readonly OfferedStory[];
    }
  | { readonly kind: 'begin'; readonly variant: RecordedVariant; readonly nodes: readonly string[] }
  | { readonly kind: 'event'; readonly event: Event }
  | { readonly kind: 'lease'; readonly at: number; readonly lease: SeenLease }
  | {
      readonly kind: 'process';
      readonly client: 1 | 2;
      readonly pid: number;
      readonly state: 'running' | 'stopped' | 'ended';
    }
  | { readonly kind: 'packets'; readonly held: boolean }
  | { readonly kind: 'now'; readonly atMs: number }
  | { readonly kind: 'end'; readonly recording: Recording }
  | { readonly kind: 'failed'; readonly reason: string };

export const actions = ['stop', 'continue', 'hold', 'deliver', 'wipe'] as const;

/** A fault that the reader makes in a run of their own. */
export interface Action {
  readonly action: (typeof actions)[number];
  /** Of `stop` and `continue`. */
  readonly client?: 1 | 2;
  /** Of `wipe`: the letter of the node. */
  readonly node?: string;
}
