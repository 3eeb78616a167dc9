import type { NodeAnswer } from '../core/answers.js';
import { NoQuorumError, QuorumError } from '../core/errors.js';
import type { AcquireFailure } from '../core/failure.js';
import { NODE_TIMEOUT_MAX_MS } from '../core/validity.js';
import type {
  AcquireRequest,
  AcquisitionResult,
  LockTransport,
  ReleaseOutcome,
  Waiter,
} from '../lease/transport.js';
import { inTime, nobody, type Runtime, sleep, unlessAborted } from '../runtime/runtime.js';
import { Announcements } from './announcements.js';
import type { Move, MoveStatus } from './move.js';
import type { RedlockTransport } from './redlock-transport.js';

/** Milliseconds between two checks of a move that is under way. */
const LOOK_EVERY_MS = 50;
/** Milliseconds between two searches for a move, while too few nodes of the present set answer. */
const LOOK_AGAIN_MS = 250;
/**
 * Least milliseconds after which this process finishes a move that another process has begun. The
 * time is random, up to twice as long, so not all processes do so at the same moment.
 */
const TAKE_OVER_MS = 1_000;

/**
 * Milliseconds for which a release waits for the end of a move. It is longer than `TAKE_OVER_MS`,
 * so a move without a live process can still end in this time.
 */
const RELEASE_WITHIN_MS = 5_000;

const UNDER_WAY = 'the nodes move to another set, which takes longer than the call may: try again';

/**
 * Serves from the present node set, and from the next one as soon as that votes. While the present
 * set serves, a call costs nothing more than without a next set.
 */
export class MovingTransport implements LockTransport {
  readonly next: LockTransport;
  readonly #present: RedlockTransport;
  readonly #move: Move;
  readonly #runtime: Runtime;
  readonly #announcements: Announcements;
  #isMoved = false;
  #round: Promise<MoveStatus> | null = null;
  #last: MoveStatus | null = null;
  /** The end of the time for which `#last` holds, on the runtime's monotonic clock. */
  #lastUntilMs = 0;
  #takeOverMs: number | null = null;
  /** The latest releases in the next set, by owner. */
  readonly #releases = new Map<string, Promise<ReleaseOutcome>>();

  constructor(present: RedlockTransport, next: LockTransport, move: Move, runtime: Runtime) {
    this.#present = present;
    this.next = next;
    this.#move = move;
    this.#runtime = runtime;
    this.#announcements = new Announcements(move, runtime);
    present.nodes.onSealed = (resources, owner) => void this.#releaseInNext(resources, owner);
  }

  /** True once the next set is known to vote, because the present one was sealed. */
  get isMoved(): boolean {
    return this.#isMoved;
  }

  async acquire(request: AcquireRequest): Promise<AcquisitionResult> {
    if (!this.#isMoved) {
      const result = await this.#present.acquire(request);
      if (result.ok) return this.followed(result);
      const obstacle = await this.follow(result, request);
      if (obstacle) return obstacle;
    }
    return this.next.acquire(request);
  }

  wait(request: AcquireRequest): Waiter {
    if (this.#isMoved) return this.next.wait(request);
    return new MovingWaiter(this, this.#present.wait(request), request);
  }

  waitBehindOthers(request: AcquireRequest): Waiter | null {
    if (this.#isMoved) return this.next.waitBehindOthers?.(request) ?? null;
    const waiter = this.#present.waitBehindOthers(request);
    return waiter ? new MovingWaiter(this, waiter, request) : null;
  }

  extend(
    resources: readonly string[],
    owner: string,
    ttlMs: number,
    token: bigint,
  ): Promise<number> {
    return this.extendBy(() => this.#present.extend(resources, owner, ttlMs, token), {
      resources,
      owner,
      ttlMs,
      token,
    });
  }

  release(resources: readonly string[], owner: string): Promise<ReleaseOutcome> {
    if (this.#isMoved) return this.next.release(resources, owner);
    return this.releaseBy(() => this.#present.release(resources, owner), resources, owner);
  }

  async close(): Promise<void> {
    this.#announcements.end();
    await Promise.all([this.#present.close(), this.next.close()]);
  }

  /** Adapts a lease of the present set. After the move, its calls go to the next set. */
  followed(result: AcquisitionResult & { readonly ok: true }): AcquisitionResult {
    this.#announcements.begin();
    const { handle } = result;
    const { resources, token, deadlineMs, owner } = handle;
    return {
      ...result,
      handle: {
        resources,
        token,
        deadlineMs,
        owner,
        share: () => handle.share?.() ?? owner,
        extend: (ttlMs) =>
          this.extendBy(() => handle.extend(ttlMs), { resources, owner, ttlMs, token }),
        // The handle's own release may hand the lock over to a waiter of this process.
        release: () => this.releaseBy(() => handle.release(), resources, owner),
      },
    };
  }

  /**
   * Finds out if the failure of the present set is due to a move, and finishes a move that nobody
   * else finishes.
   *
   * @returns the failure for the caller; null if the next set must be asked
   */
  async follow(
    failure: AcquireFailure,
    { signal, endMs }: AcquireRequest,
  ): Promise<AcquireFailure | null> {
    const isSealed = hasSealed(failure.nodes);
    if (!isSealed && failure.reason !== 'no-quorum') return failure;
    const leftMs = Math.max(1, endMs - this.#runtime.nowMs());
    const outcome = await unlessAborted(
      inTime(this.#runtime, nobody, this.#look(), leftMs),
      signal,
    );
    if (outcome === null) return { ...failure, reason: 'aborted', retryAfterMs: 0 };
    const waits = { ...failure, reason: 'no-quorum', retryAfterMs: LOOK_EVERY_MS } as const;
    if ('answer' in outcome) return isSealed ? { ...waits, hint: UNDER_WAY } : failure;
    switch (outcome.state) {
      case 'done':
        return null;
      case 'begun':
        return { ...waits, hint: outcome.reason, retryAfterMs: outcome.retryAfterMs };
      case 'not-begun':
        // The node was sealed after the state of the move was read.
        return isSealed ? { ...waits, hint: UNDER_WAY } : failure;
      case 'refused':
        return { ...failure, hint: outcome.reason };
    }
  }

  /** Extends by the present set, or by the next one if the lease moves meanwhile. */
  async extendBy(
    extend: () => Promise<number>,
    lease: {
      readonly resources: readonly string[];
      readonly owner: string;
      readonly ttlMs: number;
      readonly token: bigint;
    },
  ): Promise<number> {
    if (!this.#isMoved) {
      try {
        return await extend();
      } catch (error) {
        if (!(await this.#hasMoved(error, lease.ttlMs))) throw error;
      }
    }
    return this.next.extend(lease.resources, lease.owner, lease.ttlMs, lease.token);
  }

  /** Releases in the present set. If that is sealed, also in the next one. */
  async releaseBy(
    release: () => Promise<ReleaseOutcome>,
    resources: readonly string[],
    owner: string,
  ): Promise<ReleaseOutcome> {
    const outcome = await release();
    return outcome === 'unknown' ? this.#releaseInNext(resources, owner) : outcome;
  }

  /** Once the next set votes, releases a lease there, because the move may have carried it. */
  #releaseInNext(resources: readonly string[], owner: string): Promise<ReleaseOutcome> {
    const begun = this.#releases.get(owner);
    if (begun !== undefined) return begun;
    const release = async (): Promise<ReleaseOutcome> => {
      const state = this.#isMoved ? 'done' : await this.#waitForMove(RELEASE_WITHIN_MS);
      return state === 'done' ? this.next.release(resources, owner) : 'unknown';
    };
    const releasing = release();
    this.#releases.set(owner, releasing);
    // Kept for a while, because each sealed node that refuses the release calls this again.
    const forget = (): void => void this.#releases.delete(owner);
    this.#runtime.after(2 * RELEASE_WITHIN_MS, forget, 'background');
    return releasing;
  }

  async #hasMoved(error: unknown, ttlMs: number): Promise<boolean> {
    if (!(error instanceof QuorumError)) return false;
    const isSealed = hasSealed(error.nodes);
    if (!isSealed && error.code !== 'no-quorum') return false;
    const state = await this.#waitForMove(Math.min(ttlMs / 2, NODE_TIMEOUT_MAX_MS));
    if (state === 'done') return true;
    if (isSealed && state !== 'refused') throw new NoQuorumError('no-quorum', UNDER_WAY, error);
    return false;
  }

  /** Waits for the end of a move that has begun, for `limitMs` at most. @returns its state */
  async #waitForMove(limitMs: number): Promise<MoveStatus['state'] | null> {
    const untilMs = this.#runtime.nowMs() + limitMs;
    for (;;) {
      const leftMs = untilMs - this.#runtime.nowMs();
      if (leftMs <= 0) return this.#last?.state ?? null;
      const outcome = await inTime(this.#runtime, nobody, this.#look(), leftMs);
      if ('answer' in outcome) return this.#last?.state ?? null;
      if (outcome.state !== 'begun') return outcome.state;
      await sleep(this.#runtime, Math.min(LOOK_EVERY_MS, leftMs));
    }
  }

  #look(): Promise<MoveStatus> {
    const nowMs = this.#runtime.nowMs();
    if (this.#last && nowMs < this.#lastUntilMs) return Promise.resolve(this.#last);
    this.#round ??= this.#step().then((outcome) => {
      this.#round = null;
      this.#last = outcome;
      const forMs = outcome.state === 'begun' ? outcome.retryAfterMs : LOOK_AGAIN_MS;
      this.#lastUntilMs = this.#runtime.nowMs() + forMs;
      if (outcome.state === 'done') {
        this.#isMoved = true;
        this.#announcements.end();
      }
      return outcome;
    });
    return this.#round;
  }

  async #step(): Promise<MoveStatus> {
    const seen = await this.#move.look(true);
    if (seen.state !== 'begun') return seen;
    const { nowMs, random } = this.#runtime;
    this.#takeOverMs ??= nowMs() + TAKE_OVER_MS * (1 + random());
    if (nowMs() >= this.#takeOverMs) return this.#move.run({ mayBegin: false });
    return { state: 'begun', reason: UNDER_WAY, retryAfterMs: LOOK_EVERY_MS };
  }
}

function hasSealed(nodes: readonly NodeAnswer[]): boolean {
  return nodes.some(({ nextSet }) => nextSet !== undefined);
}

/** A waiter in the queues of the present set, and after the move in those of the next one. */
class MovingWaiter implements Waiter {
  readonly #transport: MovingTransport;
  readonly #request: AcquireRequest;
  #waiter: Waiter;
  #isInNext = false;

  constructor(transport: MovingTransport, waiter: Waiter, request: AcquireRequest) {
    this.#transport = transport;
    this.#waiter = waiter;
    this.#request = request;
  }

  async acquire(): Promise<AcquisitionResult> {
    if (!this.#isInNext) {
      const result = await this.#waiter.acquire();
      if (result.ok) return this.#transport.followed(result);
      const obstacle = await this.#transport.follow(result, this.#request);
      if (obstacle) return obstacle;
      this.#waiter[Symbol.dispose]();
      this.#waiter = this.#transport.next.wait(this.#request);
      this.#isInNext = true;
    }
    return this.#waiter.acquire();
  }

  pause(attempts: number, failure: AcquireFailure, leftMs: number): Promise<void> {
    return this.#waiter.pause(attempts, failure, leftMs);
  }

  [Symbol.dispose](): void {
    this.#waiter[Symbol.dispose]();
  }
}
