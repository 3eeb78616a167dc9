import { backoffMs } from '../core/backoff.js';
import type { AcquireFailure } from '../core/failure.js';
import { majorityOf } from '../core/quorum.js';
import { isTaken } from '../core/tally.js';
import type { AcquireRequest, AcquisitionResult, Waiter } from '../lease/transport.js';
import { type Nodes, Ownership, type QueuePosition } from '../redis/nodes.js';
import { acquire } from '../redlock/acquire.js';
import { type HeldLock, handleOf, type Successor } from '../redlock/held-lock.js';
import { sleep } from '../runtime/runtime.js';
import { enqueue } from './enqueue.js';
import type { LocalQueue } from './local-queue.js';
import type { WakeUps } from './wake-ups.js';

/** The longest grace period: a crashed waiter delays the queue by this time at most. */
const GRACE_MAX_MS = 2_000;
/** The number of times that a waiter renews its position in one grace period. */
const RENEWALS_PER_GRACE = 3;
/**
 * Milliseconds that a waiter gives the other nodes: to notify it after the first one has, or to
 * become free after a split vote.
 */
const OTHER_NODES_MS = 10;
/**
 * The number of split votes in a row after which a waiter releases the votes that it won. In a
 * split vote, several clients have won some nodes, and none has a majority.
 */
const SPLITS_MAX = 2;

/** The parts of the lock service that a waiter uses. */
export interface WaiterContext {
  readonly nodes: Nodes;
  readonly wakeUps: WakeUps;
  readonly localQueue: LocalQueue<QueuedWaiter>;
  /** Acquires; if too few nodes may vote, readmits nodes and acquires once more. */
  withReadmission(
    request: AcquireRequest,
    acquireOnce: (limitMs: () => number) => Promise<AcquisitionResult>,
  ): Promise<AcquisitionResult>;
}

/**
 * A waiter in the queues of all nodes. It acquires when a majority has notified it that it is
 * first. It also renews its position at intervals: a message may be lost, and the position of a
 * silent waiter expires.
 *
 * Only votes decide whether it has the lock, as for every other client.
 */
export class QueuedWaiter implements Waiter, Successor {
  readonly #context: WaiterContext;
  readonly #request: AcquireRequest;
  /** The nodes that have notified it since its last pause. */
  readonly #notifiedBy = new Set<number>();
  #mustAsk = false;
  #handedOver: HeldLock | null = null;
  #onHandOver: () => void = () => {};
  #ownership: Ownership | null = null;
  /** The owner id under which it is subscribed. */
  #listensAs: string | null = null;
  /** Null until a node has answered that somebody else holds the lock. */
  #position: Omit<QueuePosition, 'followersMax' | 'processId'> | null = null;
  #isQueued = false;
  #isFirst = false;
  #isAcquiring = false;
  #splits = 0;
  #unsubscribe: () => void = () => {};
  #awaken: () => void = () => {};

  constructor(context: WaiterContext, request: AcquireRequest) {
    this.#context = context;
    this.#request = request;
  }

  /** The owner id of the next acquisition, with the resources. */
  get ownership(): Ownership {
    const { localQueue, nodes } = this.#context;
    const { resources } = this.#request;
    this.#ownership ??= new Ownership(
      resources,
      resources.length === 1 ? localQueue.newOwner() : nodes.runtime.uniqueId(),
      true,
    );
    return this.#ownership;
  }

  get isWaiting(): boolean {
    return this.#isQueued && !this.#isAcquiring && !this.#request.signal.aborted;
  }

  wants(leaseMs: number): boolean {
    const { resources, ttlMs } = this.#request;
    return resources.length === 1 && ttlMs === leaseMs;
  }

  /** Receives the lock of a holder in this process. */
  handOver(handle: HeldLock): void {
    this.#handedOver = handle;
    this.#isQueued = false;
    this.#leave();
    this.#onHandOver();
    this.#awaken();
  }

  async acquire(): Promise<AcquisitionResult> {
    const handle = this.#takeHandedOver();
    if (handle) return { ok: true, handle, answers: () => this.#context.nodes.answers([]) };
    return this.#context.withReadmission(this.#request, (limitMs) => this.#acquireOnce(limitMs));
  }

  /** Acquires if it is first. Else it enqueues, and acquires if that shows that it is first. */
  async #acquireOnce(limitMs: () => number): Promise<AcquisitionResult> {
    if (this.#handedOver) return HANDED_OVER;
    const { nodes, localQueue } = this.#context;
    const { ttlMs, signal } = this.#request;
    const { ownership } = this;
    // Not kept in a field: each served waiter would keep the next one alive, and so on.
    const followers = this.#followersNow();
    const position = this.#position && {
      ...this.#position,
      followersMax: followers.length,
      processId: localQueue.processId,
    };
    if (position && !this.#isFirst) {
      const request = { ownership, position, limitMs: limitMs(), signal };
      const asked = enqueue(nodes, request);
      const refused = await this.#unlessHandedOver(asked);
      if (refused) return this.#noteRefusal(refused, true);
    }
    this.#isAcquiring = true;
    const request = { ownership, position, limitMs: limitMs(), signal, ttlMs };
    const result = await acquire(nodes, request);
    this.#isAcquiring = false;
    if (!result.ok) return this.#noteRefusal(result, false);
    this.#isQueued = false;
    const successors = followers.slice(0, result.followers);
    return handleOf(nodes, request, result, successors);
  }

  async pause(attempts: number, failure: AcquireFailure, leftMs: number): Promise<void> {
    const { localQueue, nodes } = this.#context;
    const { signal } = this.#request;
    if (failure.reason === 'held') {
      localQueue.noteClocks(failure.nodes);
      if (this.#position === null) return this.enter();
    }
    const delayMs = this.#delayMs(attempts, failure);
    if (this.#splits === SPLITS_MAX) this.#stepBack();
    if (this.#position && this.#listensAs !== this.ownership.owner) this.#listen();
    const woken = new Promise<void>((resolve) => {
      this.#awaken = resolve;
    });
    if (this.#isNotified || this.#mustAsk || this.#handedOver) this.#awaken();
    await sleep(nodes.runtime, Math.min(delayMs, leftMs), signal, woken);
    this.#isFirst = this.#isNotified;
    this.#notifiedBy.clear();
    this.#mustAsk = false;
  }

  /** Goes to the end of the queue. */
  enter(): void {
    const { localQueue, wakeUps } = this.#context;
    this.#position = {
      enqueuedMs: localQueue.newEnqueuedMs(),
      channel: wakeUps.channel,
      graceMs: Math.min(this.#request.ttlMs, GRACE_MAX_MS),
    };
    localQueue.join(this, this.#request.resources);
    this.#listen();
  }

  [Symbol.dispose](): void {
    this.#context.localQueue.leave(this, this.#request.resources);
    if (this.#isQueued) this.#stepBack();
    this.#leave();
    void this.releaseHandedOver();
  }

  async releaseHandedOver(): Promise<void> {
    await this.#takeHandedOver()?.release();
  }

  #takeHandedOver(): HeldLock | null {
    const handle = this.#handedOver;
    this.#handedOver = null;
    return handle;
  }

  /** The answer of the nodes, or a refusal as soon as the lock is handed over to this waiter. */
  #unlessHandedOver(asked: Promise<AcquireFailure | null>): Promise<AcquireFailure | null> {
    return new Promise((resolve) => {
      this.#onHandOver = () => resolve(HANDED_OVER);
      void asked.then(resolve);
    });
  }

  /** The other waiters of this process for the same resource. */
  #followersNow(): readonly QueuedWaiter[] {
    const [resource = '', ...more] = this.#request.resources;
    if (this.#position === null || more.length > 0) return [];
    return this.#context.localQueue.followersOf(this, resource);
  }

  /**
   * Takes note of a refusal. Only a waiter that stays queued goes on under its owner id.
   *
   * @param hasOnlyAsked true if ENQUEUE was refused, false if ACQUIRE was
   */
  #noteRefusal(failure: AcquireFailure, hasOnlyAsked: boolean): AcquireFailure {
    if (this.#handedOver) return failure;
    const { reason, nodes } = failure;
    const keepsPosition = reason === 'held' || (reason === 'no-quorum' && hasOnlyAsked);
    if (this.#position === null || !keepsPosition) {
      this.#isQueued = false;
      this.#leave();
      return failure;
    }
    this.#isQueued = !this.ownership.isReleased;
    if (!this.#isQueued) this.#leave();
    // If another client holds the lock on a majority, being first on other nodes is no split vote.
    const has = nodes.some(({ answer }) => answer === 'granted' || answer === 'head');
    const isSplit = (has && !isTaken(nodes)) || !this.#isQueued;
    this.#splits = isSplit ? this.#splits + 1 : 0;
    return failure;
  }

  #delayMs(attempts: number, { reason, retryAfterMs }: AcquireFailure): number {
    const { nodes, wakeUps } = this.#context;
    const random = nodes.runtime.random();
    if (this.#splits > 0) return OTHER_NODES_MS * (1 + random);
    const isListening = wakeUps.subscribedCount >= majorityOf(nodes.all.length);
    const isAnswered = reason === 'held' ? isListening : this.#isQueued;
    if (!this.#position || !isAnswered) return backoffMs(attempts, retryAfterMs, random);
    const renewMs = this.#position.graceMs / RENEWALS_PER_GRACE;
    return Math.min(renewMs, retryAfterMs > 0 ? retryAfterMs : renewMs) * (1 + random / 10);
  }

  /** Releases the votes that it won. Later it joins the queue again, with its old enqueue time. */
  #stepBack(): void {
    this.#context.nodes.giveUp(this.ownership);
    this.#isQueued = false;
    this.#leave();
  }

  /** Forgets the owner id and the subscription. If the waiter goes on, it gets another owner id. */
  #leave(): void {
    this.#unsubscribe();
    this.#unsubscribe = () => {};
    this.#listensAs = null;
    this.#notifiedBy.clear();
    this.#splits = 0;
    this.#ownership = null;
  }

  #listen(): void {
    const { nodes, wakeUps } = this.#context;
    const { owner } = this.ownership;
    this.#unsubscribe();
    this.#listensAs = owner;
    this.#unsubscribe = wakeUps.subscribe(owner, {
      notified: (node) => {
        this.#notifiedBy.add(node);
        if (this.#isNotified) this.#awaken();
        else nodes.runtime.after(OTHER_NODES_MS, () => this.#awaken(), 'background');
      },
      missed: () => {
        this.#mustAsk = true;
        this.#awaken();
      },
    });
  }

  get #isNotified(): boolean {
    return this.#notifiedBy.size >= majorityOf(this.#context.nodes.all.length);
  }
}

const HANDED_OVER: AcquireFailure = { ok: false, reason: 'held', nodes: [], retryAfterMs: 0 };
