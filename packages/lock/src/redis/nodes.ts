import { type NodeAnswer, nodeAnswer, type TokenBound, type VoteReply } from '../core/answers.js';
import { PreferredMajority } from '../core/preferred-majority.js';
import { NODE_TIMEOUT_MAX_MS, nodeTimeoutMs } from '../core/validity.js';
import { afterReading, inTime, nobody, type Runtime } from '../runtime/runtime.js';
import { Broadcast } from './broadcast.js';
import { Command, type Reply } from './command.js';
import type { Read, RedisNode } from './node.js';
import { type ExtendReply, extended, type ReleaseReply, released, vote } from './replies.js';

/**
 * By a hand-over, a waiter of the holder's process may be served before an older waiter of another
 * process. That one may be older by these milliseconds at most.
 */
const TOGETHER_MS = 50;

/** One acquisition and its lease, as the nodes know it: the resources, under an owner id. */
export class Ownership {
  /** Sorted. */
  readonly resources: readonly string[];
  /** Random, of one acquisition, never used again. */
  readonly owner: string;
  /** True if nodes may keep a queue position of this owner. */
  readonly mayBeQueued: boolean;
  /** The nodes that may hold the lock, or keep the queue position. */
  readonly asked: number[];
  /** True if RELEASE was sent. No other command is begun after that. */
  isReleased = false;
  /** True if ACQUIRE was sent. Some node may hold the lock then. */
  mayHold = false;
  /** Owner ids of waiters to which the lock was handed over. RELEASE ends their positions, too. */
  readonly successors: string[] = [];

  /** @param asked all nodes, if another process has taken the lock */
  constructor(
    resources: readonly string[],
    owner: string,
    mayBeQueued: boolean,
    asked: readonly number[] = [],
  ) {
    this.resources = resources;
    this.owner = owner;
    this.mayBeQueued = mayBeQueued;
    this.asked = [...asked];
  }
}

/** The queue position that a refused acquisition takes. */
export interface QueuePosition {
  /** Milliseconds since 1970. Lower is earlier. */
  readonly enqueuedMs: number;
  /** The channel on which the waiter is notified. */
  readonly channel: string;
  /** Milliseconds for which a silent waiter keeps its position. */
  readonly graceMs: number;
  /** The number of other waiters in this process that the lock may be handed over to. */
  readonly followersMax: number;
  /** The beginning of the owner ids of those waiters. */
  readonly processId: string;
}

export interface NodesOptions {
  readonly keyPrefix: string;
  readonly fenceTtlMs: number;
  readonly maxTtlMs: number;
}

/** The nodes of one lock service, sorted by name, and the commands for a lease. Never throws. */
export class Nodes {
  readonly all: readonly RedisNode[];
  readonly preferred: PreferredMajority;
  readonly runtime: Runtime;
  /** Called when an answer shows that a node must be readmitted. */
  readonly callForReadmission: () => void;
  /** Called if a sealed node refuses a release: the lease may be carried to the next set. */
  onSealed: ((resources: readonly string[], owner: string) => void) | null = null;
  readonly #options: NodesOptions;
  readonly #after: Runtime['after'];
  /** The number of RELEASE commands of `giveUp` that were sent to a node and not answered yet. */
  #unanswered = 0;
  #answered = Promise.withResolvers<void>();
  readonly #noteAnswer = (): void => {
    this.#unanswered -= 1;
    if (this.#unanswered > 0) return;
    this.#answered.resolve();
    this.#answered = Promise.withResolvers();
  };

  constructor(
    all: readonly RedisNode[],
    options: NodesOptions,
    runtime: Runtime,
    callForReadmission: () => void = () => {},
  ) {
    this.all = all;
    this.callForReadmission = callForReadmission;
    this.preferred = new PreferredMajority(all.length);
    this.#options = options;
    this.runtime = runtime;
    this.#after = afterReading(runtime);
  }

  /** Calls back once after `delayMs`, unless cancelled. Does not keep a process alive. */
  after(delayMs: number, callback: () => void): () => void {
    return this.#after(delayMs, callback, 'background');
  }

  /** These answers, in the order of the nodes, with their names. */
  answers(answers: readonly (Omit<NodeAnswer, 'name'> | undefined)[]): readonly NodeAnswer[] {
    return this.all.map(({ name }, at) => nodeAnswer(name, answers[at] ?? { answer: 'pending' }));
  }

  /** @param limitMs the time for all answers */
  broadcast<Answer extends object>(limitMs: number): Broadcast<Answer> {
    return new Broadcast(this, limitMs);
  }

  /** ACQUIRE: takes the locks of all resources or none. If refused, takes the queue position. */
  acquire(
    broadcast: Broadcast<VoteReply>,
    indexes: readonly number[],
    ownership: Ownership,
    ttlMs: number,
    position: QueuePosition | null,
  ): void {
    ownership.mayHold = true;
    const values = [ownership.owner, ttlMs, this.#options.fenceTtlMs];
    const place = position ? positionValues(position) : [];
    const handOver = position ? [position.followersMax, position.processId, TOGETHER_MS] : [];
    const keys = this.#keys(ownership, position !== null);
    const command = new Command('acquire', keys, [...values, ...place, ...handOver]);
    const read = this.#cleaning<VoteReply>(
      ownership,
      vote,
      ({ answer }) => answer === 'granted' || (answer === 'held' && position !== null),
    );
    this.#send(broadcast, indexes, ownership, command, read);
  }

  /** ENQUEUE: takes the queue position, and no lock. */
  enqueue(
    broadcast: Broadcast<VoteReply>,
    indexes: readonly number[],
    ownership: Ownership,
    position: QueuePosition,
  ): void {
    const keys = this.#keys(ownership, true);
    const command = new Command('enqueue', keys, [ownership.owner, ...positionValues(position)]);
    const read = this.#cleaning<VoteReply>(
      ownership,
      vote,
      ({ answer }) => answer === 'head' || answer === 'held',
    );
    this.#send(broadcast, indexes, ownership, command, read);
  }

  /**
   * BACKFILL: lets these nodes, too, hold a lease that a majority holds.
   *
   * @param bound the lease's token; or the number that the node reported, with its incarnation
   */
  backfill(
    indexes: readonly number[],
    ownership: Ownership,
    { number, incarnation }: Pick<TokenBound, 'number'> & Partial<TokenBound>,
    ttlMs: number,
  ): Broadcast<VoteReply> {
    const known = incarnation === undefined ? [] : [incarnation];
    const values = [ownership.owner, ttlMs, number, this.#options.fenceTtlMs, ...known];
    const command = new Command('backfill', this.#keys(ownership), values);
    const read = this.#cleaning<VoteReply>(ownership, vote, ({ answer }) => answer === 'granted');
    const broadcast = this.broadcast<VoteReply>(nodeTimeoutMs(ttlMs));
    this.#send(broadcast, indexes, ownership, command, read);
    return broadcast;
  }

  /** CONFIRM: raises these nodes to `token`, if the acquisition still holds the locks there. */
  confirm(
    broadcast: Broadcast<VoteReply>,
    indexes: readonly number[],
    ownership: Ownership,
    token: bigint,
  ): void {
    const values = [ownership.owner, token.toString(), this.#options.fenceTtlMs];
    const command = new Command('confirm', this.#keys(ownership), values);
    broadcast.send(indexes, command, vote, NODE_TIMEOUT_MAX_MS);
  }

  /**
   * EXTEND: gives the lease more time on the nodes that still hold it.
   *
   * @param token of the lease. A node that may have granted a later lease meanwhile does not extend
   */
  extend(ownership: Ownership, token: bigint, ttlMs: number): Broadcast<ExtendReply> {
    const values = [ownership.owner, ttlMs, token.toString()];
    const command = new Command('extend', this.#keys(ownership), values);
    const broadcast = this.broadcast<ExtendReply>(nodeTimeoutMs(ttlMs));
    broadcast.send(this.preferred.all, command, extended, NODE_TIMEOUT_MAX_MS);
    return broadcast;
  }

  /**
   * RELEASE: gives up the locks and queue positions of the owner. A node gets the command even if
   * it cannot answer within `limitMs`.
   *
   * @param isOver true if the lease is over, so other clients may have held the lock since
   */
  release(ownership: Ownership, limitMs: number, isOver: boolean): Broadcast<ReleaseReply> {
    ownership.isReleased = true;
    const broadcast = this.broadcast<ReleaseReply>(limitMs);
    const command = this.#releaseOf(ownership, isOver);
    broadcast.send(ownership.asked, command, this.#releasing(ownership), this.#options.maxTtlMs);
    return broadcast;
  }

  /** RELEASE, without waiting for the answers. */
  giveUp(ownership: Ownership): void {
    ownership.isReleased = true;
    this.#releaseOn(
      ownership.asked.flatMap((index) => this.all[index] ?? []),
      ownership,
    );
  }

  /** Resolves when the nodes have answered each `giveUp`, at the latest after `limitMs`. */
  async givenUp(limitMs: number): Promise<void> {
    if (this.#unanswered === 0) return;
    await inTime(this.runtime, nobody, this.#answered.promise, limitMs);
  }

  /** Hands a lock over: the successor now has it, but the nodes know it by the first owner id. */
  handOver(from: Ownership, to: Ownership): void {
    from.successors.push(to.owner);
    noteAsked(from, to.asked);
    // The successor may have won some nodes under its own owner id.
    if (to.mayHold) this.giveUp(to);
    to.isReleased = true;
  }

  #send(
    broadcast: Broadcast<VoteReply>,
    indexes: readonly number[],
    ownership: Ownership,
    command: Command,
    read: Read<VoteReply>,
  ): void {
    noteAsked(ownership, indexes);
    broadcast.send(indexes, command, read, NODE_TIMEOUT_MAX_MS);
  }

  /**
   * Reads the reply to a command. If the node may have run the command after the owner's RELEASE,
   * releases there once more.
   *
   * @param leavesTraces true for answers after which the node keeps a lock or a queue position
   */
  #cleaning<Answer>(
    ownership: Ownership,
    read: Read<Answer>,
    leavesTraces: (answer: Answer) => boolean,
  ): Read<Answer> {
    return (reply, service, node) => {
      const answer = read(reply, service, node);
      if (ownership.isReleased && reply.mayBeLate && leavesTraces(answer)) {
        this.#releaseOn([node], ownership);
      }
      return answer;
    };
  }

  #releaseOn(nodes: readonly RedisNode[], ownership: Ownership): void {
    const command = this.#releaseOf(ownership, false);
    const untilMs = this.runtime.nowMs() + this.#options.maxTtlMs;
    this.#unanswered += nodes.length;
    const read = this.#releasing(ownership);
    const onReply = (node: RedisNode, reply: Reply | Error): void => {
      this.#noteAnswer();
      node.read(reply, read);
    };
    for (const node of nodes) node.send({ command, untilMs, onReply });
  }

  #releasing({ resources, owner }: Ownership): Read<ReleaseReply> {
    return (reply) => {
      const answer = released(reply);
      if ('nextSet' in answer) this.onSealed?.(resources, owner);
      return answer;
    };
  }

  #releaseOf({ resources, owner, mayBeQueued, successors }: Ownership, isOver: boolean): Command {
    const waiters = mayBeQueued ? [owner, ...successors] : successors;
    const keys = [...this.#queues(resources), ...waiters.map((waiter) => this.#waiter(waiter))];
    const isKnown = waiters.length === 0 && !isOver;
    return new Command('release', keys, isKnown ? [owner] : [owner, waiters.length]);
  }

  /** The key of each resource; then the waiter's own key. */
  #keys({ resources, owner }: Ownership, withWaiter = false): string[] {
    const queues = this.#queues(resources);
    return withWaiter ? [...queues, this.#waiter(owner)] : queues;
  }

  #queues(resources: readonly string[]): string[] {
    return resources.map((resource) => `${this.#options.keyPrefix}queue:${resource}`);
  }

  #waiter(owner: string): string {
    return `${this.#options.keyPrefix}waiter:${owner}`;
  }
}

function noteAsked({ asked }: Ownership, indexes: readonly number[]): void {
  for (const index of indexes) if (!asked.includes(index)) asked.push(index);
}

function positionValues({ enqueuedMs, channel, graceMs }: QueuePosition) {
  return [enqueuedMs, channel, graceMs];
}
