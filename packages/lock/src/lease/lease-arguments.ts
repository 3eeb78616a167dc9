import { LockArgumentError } from '../core/errors.js';
import { checkFields, checkResources, milliseconds } from '../core/options.js';
import type { AbandonedLease } from './routines.js';

export interface TryAcquireOptions {
  /** Milliseconds for which the lock is taken, 10 to `maxTtlMs`. */
  readonly ttlMs: number;
  /** An abort gives up, and releases everything that may have been taken. */
  readonly signal?: AbortSignal;
}

export interface AcquireOptions extends TryAcquireOptions {
  /**
   * Milliseconds to go on trying while somebody else holds the lock or too few nodes answer. The
   * call settles within `waitMs` plus 250 ms, which are for the answers to its last acquisition. A
   * holder in this process may hand its lock over to a waiter. Up to a tenth of the waiter's
   * `ttlMs` has then passed already.
   *
   * 0: one acquisition, as by `tryAcquire`.
   * @default 0
   */
  readonly waitMs?: number;
}

export interface UsingOptions extends AcquireOptions {
  /**
   * Milliseconds for which the lease may be held in all, at least `ttlMs`. It ends then even if the
   * routine still runs, so a routine that hangs does not hold the lock for ever. Without it, the
   * lease is extended for as long as the routine runs.
   */
  readonly maxHoldMs?: number;
}

export interface CloseOptions {
  /**
   * Milliseconds for which `close` waits for the routines of `using`, 0 to 86,400,000 (a day).
   * Their leases are extended meanwhile, so it may be longer than a TTL.
   * @default 10_000
   */
  readonly drainMs?: number;
}

export interface CloseResult {
  /** The leases of the routines that still ran at the end. They were not released. */
  readonly abandoned: readonly AbandonedLease[];
}

/** A reference to a lease that any process acquired, by resource and owner. */
export interface LeaseReference {
  readonly resource: string | readonly string[];
  /** The lease's `owner`. */
  readonly owner: string;
}

/** A reference to a lease that shall be extended. */
export interface HeldLeaseReference extends LeaseReference {
  /** The lease's `token`. By it, Redis nodes tell the lease from a later one. */
  readonly token: bigint;
}

export const TRY_FIELDS: readonly string[] = ['ttlMs', 'signal'];
export const ACQUIRE_FIELDS: readonly string[] = [...TRY_FIELDS, 'waitMs'];
export const USING_FIELDS: readonly string[] = [...ACQUIRE_FIELDS, 'maxHoldMs'];

const DRAIN_MS = 10_000;
const DRAIN_MAX_MS = 86_400_000;

/** Returns the time that `close` may wait for routines, checked. */
export function checkDrainMs(options: CloseOptions): number {
  checkFields('the options of close', options, ['drainMs']);
  return milliseconds('drainMs', options.drainMs ?? DRAIN_MS, 0, DRAIN_MAX_MS);
}

/** Returns a reference to a lease, checked. */
export function checkReference(reference: LeaseReference): {
  readonly resources: readonly string[];
  readonly owner: string;
} {
  checkFields('a lease of another process', reference, ['resource', 'owner', 'token']);
  const { resource, owner } = reference;
  if (typeof owner !== 'string' || owner === '' || !owner.isWellFormed()) {
    throw new LockArgumentError(`owner must be the owner of a lease owner=${String(owner)}`);
  }
  return { resources: checkResources(resource), owner };
}

/** Returns the token of a lease, checked. */
export function checkToken(token: bigint): bigint {
  if (typeof token === 'bigint' && token > 0n) return token;
  const given = typeof token === 'bigint' ? `${token}` : JSON.stringify(token);
  throw new LockArgumentError(`token must be the token of a lease, a bigint token=${given}`);
}
