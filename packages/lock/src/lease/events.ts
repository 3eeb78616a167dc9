import { channel, hasSubscribers as isWatched } from 'node:diagnostics_channel';
import type { NodeAnswer } from '../core/answers.js';
import type { LeaseLostError } from '../core/errors.js';
import { withJson } from '../core/json.js';

/**
 * The common part of all events of a lease. `JSON.stringify` writes the token as a decimal string.
 */
export interface LeaseEvent {
  /** Sorted. */
  readonly resources: readonly string[];
  readonly token: bigint;
}

/**
 * The events, by the names of their `node:diagnostics_channel`s. A channel without a subscriber
 * costs nothing.
 */
export interface LockEvents {
  /** A lease was won. `tookMs` counts from the first request of the acquisition that won. */
  'fenced:lock:acquire': LeaseEvent & { readonly ttlMs: number; readonly tookMs: number };
  /** An acquisition failed because somebody else holds the lock. */
  'fenced:lock:contended': {
    readonly resources: readonly string[];
    readonly nodes: readonly NodeAnswer[];
    /** Milliseconds after which another acquisition could win, according to the nodes. */
    readonly retryAfterMs: number;
  };
  'fenced:lock:extended': LeaseEvent & { readonly remainingMs: number };
  /**
   * A lease could not be extended, and goes on for `remainingMs`. An early warning: the next
   * extension may succeed.
   */
  'fenced:lock:extension-failed': LeaseEvent & {
    readonly remainingMs: number;
    readonly error: Error;
  };
  /**
   * A lease ended before it was released. If nobody had subscribed when the lease was acquired, the
   * event is up to 1 s late.
   */
  'fenced:lock:lost': LeaseEvent & { readonly reason: LeaseLostError };
  'fenced:lock:released': LeaseEvent & { readonly outcome: 'released' | 'expired' | 'unknown' };
  /**
   * A node did not vote in an acquisition that failed. A node on which the lock is held has voted.
   */
  'fenced:lock:node-refused': { readonly resources: readonly string[]; readonly node: NodeAnswer };
  /**
   * A `PostgresLock` of this process forgot names in the background, or failed to; then `error`
   * says why.
   */
  'fenced:lock:forgot': { readonly names: number; readonly error?: Error };
  /** This process has readmitted a node, which votes again. */
  'fenced:lock:readmitted': { readonly node: string; readonly generation: number };
}

/** Publishes an event. `make` is called only if there is a subscriber. */
export function publish<Name extends keyof LockEvents>(
  name: Name,
  make: () => LockEvents[Name],
): void {
  if (hasSubscribers(name)) channel(name).publish(withJson(make()));
}

export function hasSubscribers(name: keyof LockEvents): boolean {
  return isWatched(name);
}
