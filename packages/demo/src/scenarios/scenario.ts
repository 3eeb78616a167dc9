import type { Event } from '../history.js';
import type { Protection, StoreKind } from '../job.js';
import type { Verdict } from '../verdict.js';

/** A client on the stage: a real process, and what the director may do to it. */
export interface Actor {
  /** Resolves when the client stands between its last check and its write. */
  reachedItsWrite(): Promise<void>;
  /** Lets the client go on from there. */
  proceed(): void;
  /** Stops the process (SIGSTOP); resolves when the kernel says that it is stopped. */
  pause(): Promise<void>;
  /** Lets the process run on (SIGCONT), also past that place. */
  wake(): Promise<void>;
  /** Resolves when the client's program has ended. */
  finished(): Promise<void>;
}

export interface Stage {
  /** A client that is stopped before its write, until `proceed` or `wake`. */
  clientThatStops(number: 1 | 2): Promise<Actor>;
  /** A client that nothing is done to. */
  client(number: 1 | 2): Promise<Actor>;
  /** What client 1 sends to the storage waits in the network from now on. */
  holdPackets(): void;
  /** Resolves when something waits there. */
  packetIsHeld(): Promise<void>;
  /** Delivers what waits. */
  deliver(): void;
  /** What the storage answers to client 1 is lost from now on. */
  loseReplies(): void;
  /** Resolves when a reply was lost; its connection breaks, and new ones work. */
  replyIsLost(): Promise<void>;
  /** Resolves when no majority of the lock nodes holds the present lease any more; at once where there is none. */
  leaseIsOver(): Promise<void>;
}

export interface Scenario {
  readonly number: number;
  readonly title: string;
  /** Who told the story first. */
  readonly source: string;
  readonly story: string;
  /** What comes of it under each protection that the story is told for. */
  readonly pinned: Readonly<Partial<Record<Protection, Verdict>>>;
  /** The stores it is told for; all, where it does not say. */
  readonly stores?: readonly StoreKind[];
  /** Whether something before the S3 server drops the conditions of writes. */
  readonly ignoresConditions?: boolean;
  play(stage: Stage): Promise<void>;
  /** Null where the history shows that the story took place, else what is missing. Pure. */
  missing(events: readonly Event[]): string | null;
}

/** Whether the story is told for that protection and that store. */
export function isTold(scenario: Scenario, protection: Protection, store: StoreKind): boolean {
  return scenario.pinned[protection] !== undefined && (scenario.stores?.includes(store) ?? true);
}

/** The first event of that kind, or undefined. */
export function find(
  events: readonly Event[],
  actor: Event['actor'],
  operation: Event['operation'],
  phase: Event['phase'] = 'ok',
): Event | undefined {
  return events.find(
    (event) => event.actor === actor && event.operation === operation && event.phase === phase,
  );
}

/** The storage's answer to a client's write, whether it was applied or refused. */
export function replyToWrite(events: readonly Event[], actor: Event['actor']): Event | undefined {
  return find(events, actor, 'write') ?? find(events, actor, 'write', 'refused');
}

/** Null where all of these took place, and in this order. */
export function inOrder(
  ...events: readonly (readonly [name: string, event: Event | undefined])[]
): string | null {
  let previous: readonly [string, Event] | null = null;
  for (const [name, event] of events) {
    if (!event) return `${name} is missing`;
    if (previous && event.atMs < previous[1].atMs) return `${name} came before ${previous[0]}`;
    previous = [name, event];
  }
  return null;
}
