import type { NodeAnswer } from '../core/answers.js';
import type { AcquireFailure } from '../core/failure.js';

/**
 * A caller's request, checked. `signal` aborts with the caller's, and when the service is closed.
 */
export interface AcquireRequest {
  /** Sorted. */
  readonly resources: readonly string[];
  readonly ttlMs: number;
  readonly signal: AbortSignal;
  /** 0 for a caller that does not wait. */
  readonly waitMs: number;
  /** The end of `waitMs`, on the runtime's monotonic clock. */
  readonly endMs: number;
}

/**
 * - `released`: the lock is free for others.
 * - `expired`: others may have held the lock before the release.
 * - `unknown`: too few nodes answered. The lock that they still hold ends with its TTL.
 */
export type ReleaseOutcome = 'released' | 'expired' | 'unknown';

/** A lock that the servers have granted. The lock service makes a `Lease` of it. */
export interface LockHandle {
  /** Sorted. */
  readonly resources: readonly string[];
  readonly token: bigint;
  /** On the runtime's monotonic clock. */
  readonly deadlineMs: number;
  /** The random id of one acquisition, never used again. The servers hold the lock under it. */
  readonly owner: string;
  /**
   * Returns the owner id for other processes. If the lock was handed over to a waiter of this
   * process, returns an id that holds nothing.
   */
  share?(): string;
  /**
   * @returns the new deadline on the runtime's monotonic clock
   * @throws {LockError} the servers did not extend it
   */
  extend(ttlMs: number): Promise<number>;
  /** Never rejects. */
  release(): Promise<ReleaseOutcome>;
}

/** The end of one acquisition. `answers` makes the answer of every node on demand. */
export type AcquisitionResult =
  | {
      readonly ok: true;
      readonly handle: LockHandle;
      readonly answers: () => readonly NodeAnswer[];
    }
  | AcquireFailure;

/** The acquisitions of one caller that waits, and the pauses between them. */
export interface Waiter extends Disposable {
  /** Never rejects. */
  acquire(): Promise<AcquisitionResult>;
  /**
   * Resolves when another acquisition may win.
   *
   * @param attempts the number of acquisitions so far
   * @param failure the result of the last acquisition
   * @param leftMs the time for which the caller is still ready to wait
   * @throws the signal's reason as soon as it aborts
   */
  pause(attempts: number, failure: AcquireFailure, leftMs: number): Promise<void>;
}

/**
 * Port to the servers of a lock service: Redis nodes, or a database, or a cluster. A transport
 * never calls its lock service.
 */
export interface LockTransport {
  /** @throws {LockArgumentError} if the servers cannot store such names, or so many */
  checkResources?(resources: readonly string[]): void;
  /** Makes one acquisition for a caller that does not wait yet. Never rejects. */
  acquire(request: AcquireRequest): Promise<AcquisitionResult>;
  wait(request: AcquireRequest): Waiter;
  /**
   * If other callers in this process wait for the same resources, returns a waiter behind them:
   * an acquisition would be refused. Otherwise returns null.
   */
  waitBehindOthers?(request: AcquireRequest): Waiter | null;
  /**
   * As `extend` of a handle, for a lease that any process acquired.
   *
   * @param token of the lease
   */
  extend(
    resources: readonly string[],
    owner: string,
    ttlMs: number,
    token: bigint,
  ): Promise<number>;
  /** As `release` of a handle, for a lease that any process acquired. */
  release(resources: readonly string[], owner: string): Promise<ReleaseOutcome>;
  /** Ends all background work. Called after the waiters were aborted. */
  close(): Promise<void>;
}
