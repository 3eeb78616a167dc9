import { backoffMs } from '../core/backoff.js';
import { deadlineOf, nodeTimeoutMs } from '../core/validity.js';
import type {
  AcquireRequest,
  AcquisitionResult,
  LockHandle,
  LockTransport,
  ReleaseOutcome,
  Waiter,
} from '../lease/transport.js';
import { type Runtime, sleep } from '../runtime/runtime.js';
import type { Ensemble } from './ensemble.js';
import { Expiry, type LeaseRecord } from './expiry.js';
import { LeaseNodes } from './lease-nodes.js';
import type { Paths } from './paths.js';
import { CODE, ConnectionLostError, isRefusal, ZooKeeperError } from './protocol/errors.js';
import { type Position, WaitQueue } from './wait-queue.js';

/** Greater tokens are not exact in stores that keep tokens as floating-point numbers. */
const TOKEN_MAX = 2n ** 53n - 1n;

/**
 * The outcome of a try: the transaction that created the lease, or the milliseconds for which
 * others still hold one of the locks.
 */
type Tried = { readonly czxid: bigint } | { readonly heldMs: number };

/** Refusals of an acquisition because of other clients, or because the parent nodes are missing. */
const OTHERS = [CODE.nodeExists, CODE.noNode, CODE.badVersion, CODE.notEmpty];

/** One acquisition under one owner id, until it has an outcome. */
interface Acquisition {
  readonly request: AcquireRequest;
  readonly owner: string;
  readonly queue: WaitQueue;
  /** The time of its first request that may create a lease. */
  startedMs: number | null;
  /** True if a request that may have created a lease got no reply. */
  isDoubtful: boolean;
}

/** Leases in one ZooKeeper ensemble. */
export class ZooKeeperTransport implements LockTransport {
  readonly #ensemble: Ensemble;
  readonly #paths: Paths;
  readonly #nodes: LeaseNodes;
  readonly #maxTtlMs: number;
  readonly #runtime: Runtime;

  constructor(ensemble: Ensemble, paths: Paths, maxTtlMs: number, runtime: Runtime) {
    this.#ensemble = ensemble;
    this.#paths = paths;
    this.#nodes = new LeaseNodes(ensemble, paths, new Expiry(runtime));
    this.#maxTtlMs = maxTtlMs;
    this.#runtime = runtime;
  }

  close(): Promise<void> {
    return this.#ensemble.close();
  }

  acquire(request: AcquireRequest): Promise<AcquisitionResult> {
    const acquisition = this.#acquisition(request);
    return this.#settle(acquisition, (signal) => this.#tryAtOnce(acquisition, signal));
  }

  wait(request: AcquireRequest): Waiter {
    const queue = new WaitQueue(request.resources, this.#ensemble, this.#paths);
    const position = queue.position(this.#runtime.uniqueId());
    let woken = Promise.withResolvers<void>();
    // One function for all watches of this waiter, because `unwatch` removes all of them by it.
    const onWatch = (): void => woken.resolve();
    return {
      acquire: () => {
        woken = Promise.withResolvers();
        const acquisition = this.#acquisition(request);
        return this.#settle(acquisition, (signal) =>
          this.#tryQueued(acquisition, position, signal, onWatch),
        );
      },
      pause: async (attempts, { reason, retryAfterMs }, leftMs) => {
        // The first acquisition did not enqueue. The second does, so it follows at once.
        if (attempts === 1 && reason === 'held') return;
        const unknownMs =
          reason === 'held' ? leftMs : backoffMs(attempts, 0, this.#runtime.random());
        const delayMs = retryAfterMs > 0 ? retryAfterMs : unknownMs;
        await sleep(this.#runtime, Math.min(delayMs, leftMs), request.signal, woken.promise);
      },
      [Symbol.dispose]: () => {
        position.isGivenUp = true;
        this.#ensemble.session.unwatch(onWatch);
        void this.#leave(queue, position);
      },
    };
  }

  extend(resources: readonly string[], owner: string, ttlMs: number): Promise<number> {
    return this.#extend({ resources, owner }, ttlMs, 'other');
  }

  #extend(
    { resources, owner }: Pick<LockHandle, 'resources' | 'owner'>,
    ttlMs: number,
    by: 'holder' | 'other',
  ): Promise<number> {
    const { server } = this.#ensemble;
    return server.extended(this, { resources, owner }, () =>
      this.#ensemble.insist(nodeTimeoutMs(ttlMs), async (signal) => {
        const startedMs = this.#runtime.nowMs();
        const isHeld = await this.#nodes.extend(resources, owner, ttlMs, by, signal);
        return isHeld ? deadlineOf(startedMs, ttlMs) : null;
      }),
    );
  }

  async release(resources: readonly string[], owner: string): Promise<ReleaseOutcome> {
    let isRepeated = false;
    try {
      const isHeld = await this.#ensemble.insist(nodeTimeoutMs(this.#maxTtlMs), async (signal) => {
        const isFirst = !isRepeated;
        isRepeated = true;
        const isReleased = await this.#nodes.release(resources, owner, signal);
        // An earlier request, whose reply was lost, may have released the lease.
        return isReleased || (isFirst ? false : null);
      });
      if (isHeld === null) return 'unknown';
      return isHeld ? 'released' : 'expired';
    } catch {
      return 'unknown';
    }
  }

  #acquisition(request: AcquireRequest): Acquisition {
    const queue = new WaitQueue(request.resources, this.#ensemble, this.#paths);
    const owner = this.#runtime.uniqueId();
    return { request, owner, queue, startedMs: null, isDoubtful: false };
  }

  /** Runs `attempt` until it has an outcome, and makes the caller's result of the outcome. */
  #settle(
    acquisition: Acquisition,
    attempt: (signal: AbortSignal) => Promise<Tried>,
  ): Promise<AcquisitionResult> {
    const { request, owner } = acquisition;
    const { resources, ttlMs } = request;
    const { server } = this.#ensemble;
    return server.acquire(request, async (limitMs) => {
      try {
        const tried = await this.#ensemble.insist(limitMs, attempt);
        if ('heldMs' in tried) {
          if (acquisition.isDoubtful) void this.release(resources, owner);
          return server.held(tried.heldMs);
        }
        const deadlineMs = deadlineOf(acquisition.startedMs ?? 0, ttlMs);
        const { czxid: token } = tried;
        if (token <= TOKEN_MAX) {
          const extend = (forMs: number) => this.#extend({ resources, owner }, forMs, 'holder');
          return server.granted(this, { resources, token, deadlineMs, owner, extend });
        }
        void this.release(resources, owner);
        return server.failure('token-exhausted', { answer: 'token-exhausted' });
      } catch (error) {
        if (acquisition.isDoubtful) void this.release(resources, owner);
        throw error;
      }
    });
  }

  /** Takes the lock unless somebody holds it or waits for it. */
  async #tryAtOnce(acquisition: Acquisition, signal: AbortSignal): Promise<Tried> {
    const { request, queue } = acquisition;
    const { resources } = request;
    let found: (LeaseRecord | null)[] = [];
    for (;;) {
      const czxid = await this.#take(acquisition, found, queue.barrier, signal);
      if (czxid !== null) return { czxid };
      found = await this.#nodes.read(resources, signal);
      const own = ownToken(found, acquisition);
      if (own !== null) return { czxid: own };
      if (found.some((record) => record)) await this.#nodes.sampleClock(signal);
      const heldMs = this.#nodes.remainingMs(resources, found);
      if (heldMs > 0) return { heldMs };
      if (await queue.isWaitedFor(signal)) return { heldMs: 0 };
    }
  }

  /** Takes the lock if this waiter is the head of all queues, and the locks are free. */
  async #tryQueued(
    acquisition: Acquisition,
    position: Position,
    signal: AbortSignal,
    onWatch: () => void,
  ): Promise<Tried> {
    const { resources } = acquisition.request;
    for (;;) {
      if (acquisition.startedMs !== null) {
        // An earlier request may have taken the lock. The same transaction gave up the position, so
        // `isHead` would enqueue again.
        const own = ownToken(await this.#nodes.read(resources, signal), acquisition);
        if (own !== null) return { czxid: own };
      }
      if (!(await position.isHead(signal, onWatch))) return { heldMs: 0 };
      const found = await this.#nodes.read(resources, signal, onWatch);
      const heldMs = this.#nodes.remainingMs(resources, found);
      if (heldMs > 0) return { heldMs };
      const czxid = await this.#take(acquisition, found, position.removals, signal);
      if (czxid !== null) return { czxid };
    }
  }

  /** @returns null if the server refused because of other clients, or of missing parent nodes */
  async #take(
    acquisition: Acquisition,
    found: readonly (LeaseRecord | null)[],
    others: WaitQueue['barrier'],
    signal: AbortSignal,
  ): Promise<bigint | null> {
    const { resources, ttlMs } = acquisition.request;
    acquisition.startedMs ??= this.#runtime.nowMs();
    try {
      return await this.#nodes.take(resources, acquisition.owner, ttlMs, found, others, signal);
    } catch (error) {
      acquisition.isDoubtful ||= !(error instanceof ZooKeeperError);
      if (!isRefusal(error, ...OTHERS)) throw error;
      if (isRefusal(error, CODE.noNode) && found.length === 0) {
        // Parent nodes are missing, because this is the first acquisition below the root.
        await this.#ensemble.ensure(this.#paths.leases, signal);
        await this.#ensemble.ensure(this.#paths.queues, signal);
      }
      return null;
    }
  }

  /** Gives up a position: it would keep the others waiting for as long as the session lives. */
  async #leave(queue: WaitQueue, position: Position): Promise<void> {
    const leave = async (signal: AbortSignal): Promise<void> => {
      if (await position.leave(signal)) await queue.removeEmpty(signal);
    };
    while (!this.#ensemble.isClosing) {
      try {
        return await this.#ensemble.insist(nodeTimeoutMs(this.#maxTtlMs), leave);
      } catch (error) {
        if (!(error instanceof ConnectionLostError)) return;
      }
    }
  }
}

/** The token of an earlier request of the same acquisition, whose reply was lost; or null. */
function ownToken(found: readonly (LeaseRecord | null)[], { owner }: Acquisition): bigint | null {
  const [first] = found;
  return first && found.every((record) => record?.owner === owner) ? first.czxid : null;
}
