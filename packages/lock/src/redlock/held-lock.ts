import type { TokenBound } from '../core/answers.js';
import { failureError } from '../core/failure.js';
import { nodeTimeoutMs } from '../core/validity.js';
import type { AcquisitionResult, LockHandle, ReleaseOutcome } from '../lease/transport.js';
import type { Nodes, Ownership } from '../redis/nodes.js';
import type { AcquisitionRequest, Granted } from './acquire.js';
import { Backfill } from './backfill.js';
import { bringBack, extendOnAll } from './extend.js';
import { release } from './release.js';

/**
 * A lease is handed over only while at least this part of its TTL is left, because the successor
 * asked for the whole TTL.
 */
const HAND_OVER_PART_MIN = 0.9;

/** A waiter of this process to which the lock may be handed over, without asking the nodes. */
export interface Successor {
  readonly ownership: Ownership;
  /** True if it is queued, and no acquisition of its own is under way. */
  readonly isWaiting: boolean;
  /** True if it waits for a single resource, and for a lease of this TTL. */
  wants(ttlMs: number): boolean;
  handOver(handle: HeldLock): void;
}

/** The facts of a lock that the nodes hold for this process. */
export interface HeldLockFacts {
  readonly ownership: Ownership;
  readonly ttlMs: number;
  readonly token: bigint;
  /** On the runtime's monotonic clock. */
  readonly deadlineMs: number;
  /** Copies the lease to nodes that were not asked; null if all were asked. */
  readonly backfill: Backfill | null;
  /** The waiters that are next in the queue. The first one's token is `token + 1`, and so on. */
  readonly successors: readonly Successor[];
}

/**
 * A lock that the nodes hold for this process. Its release hands it over to the first successor
 * that still waits. The nodes do not notice: to them, the first holder's owner id has the lock
 * until the last successor releases it.
 */
export class HeldLock implements LockHandle {
  readonly owner: string;
  readonly resources: readonly string[];
  readonly token: bigint;
  readonly deadlineMs: number;
  readonly #nodes: Nodes;
  readonly #facts: HeldLockFacts;
  #successors: readonly Successor[];
  /** The successor that got the lock. The nodes hold nothing under its own owner id. */
  #handedOverTo: Ownership | null = null;

  constructor(nodes: Nodes, facts: HeldLockFacts) {
    this.owner = facts.ownership.owner;
    this.resources = facts.ownership.resources;
    this.token = facts.token;
    this.deadlineMs = facts.deadlineMs;
    this.#nodes = nodes;
    this.#facts = facts;
    this.#successors = facts.successors;
  }

  /**
   * Returns the owner id for other processes. They may release the lock by it from now on, so there
   * are no hand-overs any more. If the lock was handed over before, the id is one that holds
   * nothing.
   */
  share(): string {
    if (this.#handedOverTo) return this.#handedOverTo.owner;
    this.#successors = [];
    this.#facts.backfill?.share();
    return this.owner;
  }

  async extend(ttlMs: number): Promise<number> {
    const { ownership, backfill } = this.#facts;
    this.#successors = [];
    void backfill?.send(ttlMs);
    // The nodes that have lost the lease, and hold the locks for nobody else.
    let free = new Map<number, TokenBound>();
    let isExtended = false;
    const bringBackToFree = (): void => {
      const bounds = free;
      free = new Map();
      if (bounds.size > 0) void bringBack(this.#nodes, ownership, this.token, bounds, ttlMs);
    };
    const onFree = (index: number, bound: TokenBound): void => {
      free.set(index, bound);
      if (isExtended) bringBackToFree();
    };
    const extended = await extendOnAll(this.#nodes, ownership, this.token, ttlMs, onFree);
    if (extended.ok) {
      isExtended = true;
      bringBackToFree();
      backfill?.extended(extended.deadlineMs);
      return extended.deadlineMs;
    }
    // A minority of the nodes may still hold the lost lease. That would only block the next holder.
    if (extended.reason === 'lost') void this.release();
    throw failureError(extended, ownership.resources, 0);
  }

  async release(): Promise<ReleaseOutcome> {
    if (this.#handOver()) return 'released';
    const { ownership, backfill, ttlMs, deadlineMs } = this.#facts;
    backfill?.end();
    const isOver = this.#nodes.runtime.nowMs() >= deadlineMs;
    return release(this.#nodes, ownership, nodeTimeoutMs(ttlMs), isOver);
  }

  #handOver(): boolean {
    const { ttlMs, deadlineMs, token, ownership, backfill } = this.#facts;
    const at = this.#successors.findIndex(({ isWaiting }) => isWaiting);
    const successor = this.#successors[at];
    if (!successor?.wants(ttlMs)) return false;
    if (deadlineMs - this.#nodes.runtime.nowMs() < HAND_OVER_PART_MIN * ttlMs) return false;
    this.#handedOverTo = successor.ownership;
    this.#nodes.handOver(ownership, successor.ownership);
    backfill?.begin();
    const next = {
      ...this.#facts,
      token: token + 1n,
      successors: this.#successors.slice(at + 1),
    };
    successor.handOver(new HeldLock(this.#nodes, next));
    return true;
  }
}

/** The handle of a lock that was just granted. */
export function handleOf(
  nodes: Nodes,
  { ownership, ttlMs }: AcquisitionRequest,
  { token, lastToken, deadlineMs, unasked, answers }: Granted,
  successors: readonly Successor[],
): AcquisitionResult {
  const backfill =
    unasked.length > 0 ? new Backfill(nodes, ownership, lastToken, deadlineMs, unasked) : null;
  const facts = { ownership, ttlMs, token, deadlineMs, backfill, successors };
  return { ok: true, handle: new HeldLock(nodes, facts), answers };
}
