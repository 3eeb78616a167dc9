import type { Verdict } from '../checker.js';
import type { StoryControls } from '../controls.js';
import type { Event } from '../history.js';
import {
  type LockKind,
  type LockServiceKind,
  type Protection,
  protections,
  type StoreKind,
} from '../job.js';

/** The expected verdict of each protection. A protection that is left out is not played. */
type Pinned = Readonly<Partial<Record<Protection, Verdict>>>;

export interface Story {
  readonly number: number;
  readonly title: string;
  /** Origin of the story. */
  readonly source: string;
  readonly summary: string;
  /** The conclusion, in one sentence. */
  readonly lesson: string;
  readonly pinned: Pinned;
  /** Do-it-yourself locks that the story is played with too, and their expected verdicts. */
  readonly counterparts?: readonly { readonly lock: LockKind; readonly pinned: Pinned }[];
  /** Stores that the story is played on. @default all */
  readonly stores?: readonly StoreKind[];
  /** The story is the same with each lock service of `@fenced/lock`. */
  readonly anyLockService?: true;
  /**
   * The story breaks lock nodes, so each variant starts its own nodes. `clocks`: it moves their
   * clocks, too.
   */
  readonly breaks?: 'nodes' | 'clocks';
  /** The lock node that has a replica. */
  readonly replicated?: string;
  /** Client 1's lease outlasts the story. */
  readonly leaseLasts?: true;
  /** A proxy before the S3 server drops the conditions of writes. */
  readonly ignoresConditions?: true;
  /** Each client uses a gateway of its own for lock and storage. */
  readonly behindGateways?: true;
  /** Each client is a shell job under `fenced run`. */
  readonly underFencedRun?: true;
  play(controls: StoryControls): Promise<void>;
  /** Events that must be in the history, in this order. Otherwise the story did not happen. */
  readonly steps: readonly Step[];
  /** The steps in place of `steps`, if client 1 refused the store. */
  readonly stepsIfRefused?: readonly Step[];
}

/** A story under one lock and one protection. */
export interface Variant {
  readonly story: Story;
  readonly lock: LockKind;
  readonly protection: Protection;
  readonly pinned: Verdict;
}

/** Returns the variants in the order of playing: those under `@fenced/lock` come first. */
export function variantsOf(story: Story): readonly Variant[] {
  const { pinned, counterparts = [] } = story;
  return [{ lock: 'fenced' as const, pinned }, ...counterparts].flatMap(({ lock, pinned }) =>
    protections.flatMap((protection) => {
      const verdict = pinned[protection];
      return verdict ? [{ story, lock, protection, pinned: verdict }] : [];
    }),
  );
}

export function isPlayedOn({ stores }: Story, store: StoreKind): boolean {
  return stores?.includes(store) ?? true;
}

export function isPlayedUnder({ anyLockService }: Story, service: LockServiceKind): boolean {
  return service === 'redis' || (anyLockService ?? false);
}

/** An event that must occur in a story. */
export interface Step {
  readonly name: string;
  readonly matches: (event: Event) => boolean;
  /** Takes the last such event instead of the first. */
  readonly isLast?: true;
  /** May come at any time. */
  readonly isUnordered?: true;
}

export function step(
  actor: Event['actor'],
  operation: Event['operation'],
  ...phases: readonly Event['phase'][]
): Step {
  const wanted = phases.length > 0 ? phases : ['ok'];
  return {
    name: `${actor}: ${operation} ${wanted.join(' or ')}`,
    matches: (event) =>
      event.actor === actor && event.operation === operation && wanted.includes(event.phase),
  };
}

/** The storage's reply to a client's write, or its refusal of the client's claim. */
export function reply(actor: Event['actor']): Step {
  return {
    name: `${actor}: reply to its write`,
    matches: ({ actor: whose, operation, phase }) =>
      whose === actor &&
      ((operation === 'write' && (phase === 'ok' || phase === 'refused')) ||
        (operation === 'claim' && phase === 'refused')),
    isLast: true,
  };
}

/** Returns the missing step of a story, or null if the history shows that the story happened. */
export function missingStep(
  { steps, stepsIfRefused }: Pick<Story, 'steps' | 'stepsIfRefused'>,
  events: readonly Event[],
): string | null {
  const isRefused = events.some(step('client 1', 'probe', 'refused').matches);
  let previous: { readonly name: string; readonly atMs: number } | null = null;
  for (const { name, matches, isLast, isUnordered } of (isRefused && stepsIfRefused) || steps) {
    const event = isLast ? events.findLast(matches) : events.find(matches);
    if (!event) return `"${name}" is missing`;
    if (isUnordered) continue;
    if (previous && event.atMs < previous.atMs) return `"${name}" came before "${previous.name}"`;
    previous = { name, atMs: event.atMs };
  }
  return null;
}
