import { type Channel, channel } from 'node:diagnostics_channel';
import type { NodeAnswer } from '../core/answers.js';
import type { LeaseLostError } from '../core/errors.js';
import { withJson } from '../core/json.js';

/** What is told of a lease. `JSON.stringify` writes the token as a decimal string. */
export interface LeaseEvent {
  /** Sorted. */
  readonly resources: readonly string[];
  readonly token: bigint;
}

/**
 * What happens, by the names of the `node:diagnostics_channel`s that tell it. Nothing is told, and nothing costs anything,
 * while nobody has subscribed.
 */
export interface LockEvents {
  /** A lease was won. `tookMs`: from the first request of the attempt that won. */
  'fenced:lock:acquire': LeaseEvent & { readonly ttlMs: number; readonly tookMs: number };
  /** An attempt was lost because somebody else holds the lock. */
  'fenced:lock:contended': {
    readonly resources: readonly string[];
    readonly nodes: readonly NodeAnswer[];
    /** Milliseconds after which another attempt could win, as far as the nodes can tell. */
    readonly retryAfterMs: number;
  };
  'fenced:lock:extended': LeaseEvent & { readonly remainingMs: number };
  /** A lease ended before it was released. The event is up to 1 s late if its subscriber came after the lease. */
  'fenced:lock:lost': LeaseEvent & { readonly reason: LeaseLostError };
  'fenced:lock:released': LeaseEvent & { readonly outcome: 'released' | 'expired' | 'unknown' };
  /** A node did not vote in an attempt that was lost, other than because the lock is held. */
  'fenced:lock:node-refused': { readonly resources: readonly string[]; readonly node: NodeAnswer };
  /** A `PostgresLock` of this process forgot names in the background, or could not; then `error` says why. */
  'fenced:lock:forgot': { readonly names: number; readonly error?: Error };
  /** A node that had no vote has one again, by this process's doing. */
  'fenced:lock:admitted': { readonly node: string; readonly generation: number };
}

const channels: { readonly [Name in keyof LockEvents]: Channel } = {
  'fenced:lock:acquire': channel('fenced:lock:acquire'),
  'fenced:lock:contended': channel('fenced:lock:contended'),
  'fenced:lock:extended': channel('fenced:lock:extended'),
  'fenced:lock:lost': channel('fenced:lock:lost'),
  'fenced:lock:released': channel('fenced:lock:released'),
  'fenced:lock:node-refused': channel('fenced:lock:node-refused'),
  'fenced:lock:forgot': channel('fenced:lock:forgot'),
  'fenced:lock:admitted': channel('fenced:lock:admitted'),
};

/** Tells whoever has subscribed; `make` is called only for them. */
export function tell<Name extends keyof LockEvents>(
  name: Name,
  make: () => LockEvents[Name],
): void {
  if (isHeard(name)) channels[name].publish(withJson(make()));
}

/** Whether anybody has subscribed. */
export function isHeard(name: keyof LockEvents): boolean {
  return channels[name].hasSubscribers;
}
