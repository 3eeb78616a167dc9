import type { Verdict } from '../checker.js';
import type { Event } from '../history.js';
import { type LockKind, type Protection, protections, type StoreKind } from '../job.js';

/** A client, which is a real process, and the faults that a story can inject into it. */
export interface ControlledClient {
  /** Resolves when the client is held between its last check and its write. */
  reachedWrite(): Promise<void>;
  /** Lets a held client continue. */
  proceed(): void;
  /** Stops the process (SIGSTOP). Resolves when the kernel reports that it is stopped. */
  pause(): Promise<void>;
  /** Continues the process (SIGCONT), also if it is held. */
  wake(): Promise<void>;
  /** Resolves when the client's program has ended. */
  finished(): Promise<void>;
  /** Resolves when the client was refused the lock several times, or its program has ended. */
  finishedOrTurnedAway(): Promise<void>;
}

/** The clients and faults that a story is made of. Lock nodes have letters: `abc` are three. */
export interface Controls {
  /** Starts a client without faults. */
  client(number: 1 | 2): Promise<ControlledClient>;
  /** Starts a client that is held before its write, until `proceed` or `wake`. */
  clientStoppedBeforeWrite(number: 1 | 2): Promise<ControlledClient>;
  /** Starts client 1. It is connected to the lock nodes, and held before it asks for the lock. */
  clientStoppedBeforeAcquire(): Promise<ControlledClient>;
  /** Starts a client that asks for the lock once, and ends if it is refused. */
  clientThatGivesUp(number: 1 | 2): Promise<ControlledClient>;
  /** Returns client 1's gateway, which is held before its first write until `wake`. */
  gateway(): Pick<ControlledClient, 'reachedWrite' | 'pause' | 'wake'>;

  /** From now on, packets of client 1 to the storage wait in the network. */
  holdPackets(): void;
  /** Resolves when such a packet waits. */
  packetIsHeld(): Promise<void>;
  /** Delivers the waiting packets. */
  deliver(): void;
  /** From now on, replies of the storage to client 1 are lost. */
  loseReplies(): void;
  /** Resolves when a reply was lost. Its connection breaks; new connections work. */
  replyIsLost(): Promise<void>;

  /** Resolves when no majority of the lock nodes holds the present lease. */
  leaseEnds(): Promise<void>;
  /** From now on, replies of the lock nodes to client 1 wait in the network. */
  holdGrants(): void;
  /** Resolves when every lock node holds the lock for client 1, and every reply waits. */
  grantsAreHeld(): Promise<void>;
  /** Delivers the waiting replies. */
  deliverGrants(): void;
  /** Connects a client that starts later with these lock nodes only. */
  reaches(number: 1 | 2, names: string): Promise<void>;

  /** Saves the lock node's data to disk. */
  save(name: string): Promise<void>;
  /** Kills and restarts lock nodes, with the data on disk or without. They forget the lease. */
  restart(names: string, data: 'kept' | 'none'): Promise<void>;
  /** Moves the lock node's clock one hour ahead, so the lease is over there. */
  jumpAhead(name: string): Promise<void>;
  /** From now on, the replica receives nothing. */
  cutReplication(): void;
  /** Kills the lock node and promotes its replica, which does not know the lease. */
  failOver(name: string): Promise<void>;
}

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
  /** Faults that need lock nodes of the variant's own. `clocks` includes `nodes`. */
  readonly breaks?: 'nodes' | 'clocks';
  /** The lock node that has a replica. */
  readonly replicated?: string;
  /** Client 1's lease outlasts the story. */
  readonly leaseLasts?: true;
  /** A proxy before the S3 server drops the conditions of writes. */
  readonly ignoresConditions?: true;
  /** Each client uses a gateway of its own for lock and storage. */
  readonly behindGateways?: true;
  play(controls: Controls): Promise<void>;
  /** Events that must be in the history, in this order. Otherwise the story did not happen. */
  readonly steps: readonly Step[];
  /** The steps instead, if client 1 refused the store. */
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

/** An event that a story consists of. */
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
