import type { Event } from '../history.js';
import { type LockKind, type Protection, protections, type StoreKind } from '../job.js';
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
  /** Resolves when the client has asked for the lock several times in vain, or its program has ended. */
  finishedOrTurnedAway(): Promise<void>;
}

export interface Stage {
  /** A client that is stopped before its write, until `proceed` or `wake`. */
  clientThatStops(number: 1 | 2): Promise<Actor>;
  /** Gateway A, which client 1 goes through and which is stopped before its first write, until `wake`. */
  gateway(): Pick<Actor, 'reachedItsWrite' | 'pause' | 'wake'>;
  /** A client that nothing is done to. */
  client(number: 1 | 2): Promise<Actor>;
  /** A client that asks for the lock once and goes away where it does not get it. */
  clientThatGivesUp(number: 1 | 2): Promise<Actor>;
  /** Client 1, connected to the lock nodes and stopped before it asks for the lock, until `proceed`. */
  clientBeforeItAsks(): Promise<Actor>;
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
  /** What the lock nodes answer to client 1, which stands before it asks, waits in the network from now on. */
  holdGrants(): void;
  /** Resolves when every lock node holds the lock for client 1, and its answer waits. */
  grantsAreHeld(): Promise<void>;
  /** Delivers what waits. */
  deliverGrants(): void;
  /** A client that is started from now on reaches these lock nodes only: `abc` are three. */
  reaches(number: 1 | 2, names: string): Promise<void>;
  /** The lock node writes to disk what it has. */
  save(name: string): Promise<void>;
  /** The lock nodes are killed and started again at once, with what they had on disk or without; they have forgotten the lease. */
  restart(names: string, data: 'kept' | 'none'): Promise<void>;
  /** The lock node's clock jumps an hour ahead, and the lease is over there. */
  jumpAhead(name: string): Promise<void>;
  /** From now on nothing more reaches the replica. */
  cutReplication(): void;
  /** The lock node dies, and its replica takes its place and has never heard of the lease. */
  failOver(name: string): Promise<void>;
}

/** What each protection comes to. One that is not there is not played: the story has nothing to say of it. */
type Pinned = Readonly<Partial<Record<Protection, Verdict>>>;

export interface Scenario {
  readonly number: number;
  readonly title: string;
  /** Who told the story first. */
  readonly source: string;
  readonly story: string;
  readonly pinned: Pinned;
  /** What people do instead of taking our lock, and what it comes to in this story. */
  readonly counterparts?: readonly { readonly lock: LockKind; readonly pinned: Pinned }[];
  /** The stores it is told for; all, where it does not say. */
  readonly stores?: readonly StoreKind[];
  /** What the story breaks: lock nodes and the ways to them, or clocks, too. The cell has nodes of its own then, in use before. */
  readonly breaks?: 'nodes' | 'clocks';
  /** The lock node that has a replica, where one has. */
  readonly replicated?: string;
  /** Client 1's lease is as long as client 2's: the story ends before it does. */
  readonly leaseLasts?: true;
  /** Something before the S3 server drops the conditions of writes. */
  readonly ignoresConditions?: true;
  /** Each client has a gateway of its own for lock and storage. */
  readonly behindGateways?: true;
  play(stage: Stage): Promise<void>;
  /** Null where the history shows that the story took place, else what is missing. Pure. */
  missing(events: readonly Event[]): string | null;
}

/** A story under one lock and one protection. */
export interface Play {
  readonly scenario: Scenario;
  readonly lock: LockKind;
  readonly protection: Protection;
  readonly pinned: Verdict;
}

/** In the order in which they are told: first under our lock. */
export function playsOf(scenario: Scenario): readonly Play[] {
  const { pinned, counterparts = [] } = scenario;
  return [{ lock: 'fenced' as const, pinned }, ...counterparts].flatMap(({ lock, pinned }) =>
    protections.flatMap((protection) => {
      const verdict = pinned[protection];
      return verdict ? [{ scenario, lock, protection, pinned: verdict }] : [];
    }),
  );
}

/** Whether the story is told for that store. */
export function isTold({ stores }: Scenario, store: StoreKind): boolean {
  return stores?.includes(store) ?? true;
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
