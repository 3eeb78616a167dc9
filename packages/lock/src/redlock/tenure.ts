import type { Given } from '../core/answers.js';
import { failureError } from '../core/failure.js';
import { nodeTimeoutMs } from '../core/validity.js';
import type { LeaseClaim, ReleaseOutcome } from '../lease/transport.js';
import type { LocalQueue, Place } from '../queue/waiting.js';
import type { Holding, Nodes } from '../redis/nodes.js';
import type { Runtime } from '../runtime/runtime.js';
import type { Backfill } from './backfill.js';
import { extendOnAll, releaseWhereAsked, writeBack } from './holding.js';

/** How much of its time a lease that is handed on must have left: others have asked for all of it. */
const LEFT_MIN = 0.9;

/** A lock that the nodes have granted to this process. */
export interface Grant {
  readonly holding: Holding;
  readonly ttlMs: number;
  readonly token: bigint;
  /** On the runtime's monotonic clock. */
  readonly deadlineMs: number;
  /** Where a bare majority has granted it. */
  readonly backfill: Backfill | null;
  /** Those who stand directly behind its holder in line, and wait in this process. Each has the next higher token. */
  readonly heirs: readonly Place[];
  /** Whether others are next after those. */
  readonly othersWait: boolean;
}

/**
 * What one lease has of a grant. When it is given up, the first of its heirs that still waits has the lock at once: on the nodes it stays
 * locked under the same owner id, and the last of them gives it up there.
 */
export class Tenure implements LeaseClaim {
  readonly grant: Grant;
  readonly #nodes: Nodes;
  readonly #localQueue: LocalQueue;
  readonly #runtime: Runtime;
  readonly #callForAdmission: () => void;
  #heirs: readonly Place[];
  /** The place of the heir, whose owner id nothing is held under any more. */
  #handedTo: Holding | null = null;

  /** @param callForAdmission called when an extension shows that a node is to be admitted */
  constructor(
    nodes: Nodes,
    grant: Grant,
    localQueue: LocalQueue,
    runtime: Runtime,
    callForAdmission: () => void,
  ) {
    this.#nodes = nodes;
    this.grant = grant;
    this.#localQueue = localQueue;
    this.#runtime = runtime;
    this.#callForAdmission = callForAdmission;
    this.#heirs = grant.heirs;
  }

  get owner(): string {
    return this.grant.holding.owner;
  }

  get resources(): readonly string[] {
    return this.grant.holding.resources;
  }

  get token(): bigint {
    return this.grant.token;
  }

  get deadlineMs(): number {
    return this.grant.deadlineMs;
  }

  /** Who knows its owner id may give it up: nobody else may have it under that. */
  share(): string {
    if (this.#handedTo) return this.#handedTo.owner;
    this.#heirs = [];
    this.grant.backfill?.share();
    return this.owner;
  }

  async extend(ttlMs: number): Promise<number> {
    const { holding, backfill } = this.grant;
    this.#heirs = [];
    backfill?.ask(ttlMs);
    let free = new Map<number, Given>();
    let isExtended = false;
    const takeBack = (): void => {
      const told = free;
      free = new Map();
      if (told.size > 0) void writeBack(this.#nodes, holding, told, ttlMs, this.#runtime);
    };
    const extended = await extendOnAll(this.#nodes, holding, ttlMs, this.#runtime, {
      callForAdmission: this.#callForAdmission,
      free: (index, given) => {
        free.set(index, given);
        if (isExtended) takeBack();
      },
    });
    if (extended.ok) {
      isExtended = true;
      takeBack();
      backfill?.extended(extended.deadlineMs);
      return extended.deadlineMs;
    }
    // What a minority may still hold would only be in the way of the next holder.
    if (extended.reason === 'lost') void this.release();
    throw failureError(extended, holding.resources, 0);
  }

  release(): Promise<ReleaseOutcome> {
    if (this.#handOn()) return Promise.resolve('released');
    const { holding, backfill, ttlMs, deadlineMs, othersWait } = this.grant;
    backfill?.end();
    const next = othersWait ? null : this.#localQueue.first(holding.resources);
    if (othersWait) this.#localQueue.letPass(holding.resources);
    const released = releaseWhereAsked(this.#nodes, holding, {
      limitMs: nodeTimeoutMs(ttlMs),
      isOver: this.#runtime.nowMs() >= deadlineMs,
      next: next?.holding.owner,
    });
    // Its ACQUIRE travels with this RELEASE, and finds what that has left.
    next?.call();
    return released;
  }

  #handOn(): boolean {
    const { ttlMs, deadlineMs, token, holding, backfill } = this.grant;
    const [heir, ...heirs] = this.#heirs.filter(({ isWaiting }) => isWaiting);
    if (!heir?.wants(ttlMs)) return false;
    if (deadlineMs - this.#runtime.nowMs() < LEFT_MIN * ttlMs) return false;
    this.#handedTo = heir.holding;
    this.#nodes.handOn(holding, heir.holding);
    backfill?.begin();
    const next = { ...this.grant, token: token + 1n, heirs };
    const [nodes, localQueue, runtime] = [this.#nodes, this.#localQueue, this.#runtime];
    heir.inherit(new Tenure(nodes, next, localQueue, runtime, this.#callForAdmission));
    return true;
  }
}
