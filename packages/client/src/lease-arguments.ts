import { InvalidArgumentError } from '@fenced/store';
import { checkOptions, shown } from '@fenced/store/internal';
import { pathOf } from './http.js';

export interface TryAcquireOptions {
  /** Milliseconds that the lease lasts, at most the gateway's `redis.maxTtlMs`. */
  readonly ttlMs: number;
  /** An abort ends the call. If the lease is granted nevertheless, it is released. */
  readonly signal?: AbortSignal;
}

export interface AcquireOptions extends TryAcquireOptions {
  /**
   * Milliseconds to wait while another client holds the lock, or no gateway can be reached. At most
   * the gateway's `limits.waitMsMax`. An abort of the wait closes its connection. A lease that was
   * granted in that moment is not released, but expires.
   *
   * @default 0
   */
  readonly waitMs?: number;
}

export interface UsingOptions extends AcquireOptions {
  /**
   * Milliseconds for which the lease may be held in all, at least `ttlMs`. After this time, the
   * lease ends even if the routine still runs. Without this option, the lease is extended for as
   * long as the routine runs.
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

/** A lease whose routine still ran when the time of `close` was over. */
export interface AbandonedLease {
  /** Sorted. */
  readonly resources: readonly string[];
  readonly token: bigint;
}

export interface CloseResult {
  /** The leases of the routines that still ran at the end. They were not released. */
  readonly abandoned: readonly AbandonedLease[];
}

/** Identifies a lease, also in other processes. */
export interface LeaseReference {
  readonly resource: string | readonly string[];
  /** The lease's `owner`. It contains the lease's token. */
  readonly owner: string;
  /** Not needed here. Other lock services need it for `extend`. */
  readonly token?: bigint;
}

export const TRY_FIELDS: readonly string[] = ['ttlMs', 'signal'];
export const ACQUIRE_FIELDS: readonly string[] = [...TRY_FIELDS, 'waitMs'];
export const USING_FIELDS: readonly string[] = [...ACQUIRE_FIELDS, 'maxHoldMs'];

const DRAIN_MS = 10_000;
const DRAIN_MAX_MS = 86_400_000;

/** An example of the options, for error messages. */
export const TIMES = '{ ttlMs: 10_000 }';

export type Resources = string | readonly string[];

/** The names, sorted so that all clients name a set alike. @throws {InvalidArgumentError} */
export function resourcesOf(resource: Resources): readonly string[] {
  const resources: readonly string[] = typeof resource === 'string' ? [resource] : resource;
  if (!Array.isArray(resources) || resources.length === 0)
    throw new InvalidArgumentError(
      `resource must be a name, or an array of names value=${shown(resource)}`,
    );
  for (const name of resources) pathOf(name);
  if (new Set(resources).size < resources.length)
    throw new InvalidArgumentError(`resource is named twice value=${shown(resources)}`);
  return resources.toSorted();
}

/** @throws {InvalidArgumentError} */
export function checkHeld(held: LeaseReference): {
  readonly resources: readonly string[];
  readonly owner: string;
} {
  checkOptions(
    held,
    ['resource', 'owner', 'token'],
    '{ resource: lease.resources, owner: lease.owner }',
  );
  const { resource, owner } = held;
  if (typeof owner !== 'string' || !/^[\w.-]+$/.test(owner))
    throw new InvalidArgumentError(`owner must be the owner of a lease value=${shown(owner)}`);
  return { resources: resourcesOf(resource), owner };
}

/** The limit of `using`; infinity without one. @throws {InvalidArgumentError} */
export function maxHoldMsOf({ ttlMs, maxHoldMs }: UsingOptions): number {
  if (maxHoldMs === undefined) return Number.POSITIVE_INFINITY;
  if (Number.isSafeInteger(maxHoldMs) && maxHoldMs >= ttlMs) return maxHoldMs;
  throw new InvalidArgumentError(
    `maxHoldMs must be a whole number of milliseconds from ${ttlMs} (ttlMs=${ttlMs}) maxHoldMs=${shown(maxHoldMs)}`,
  );
}

/** The time that `close` may wait for routines. @throws {InvalidArgumentError} */
export function drainMsOf(options: CloseOptions): number {
  checkOptions(options, ['drainMs'], '{ drainMs: 10_000 }');
  const { drainMs = DRAIN_MS } = options;
  if (Number.isSafeInteger(drainMs) && drainMs >= 0 && drainMs <= DRAIN_MAX_MS) return drainMs;
  throw new InvalidArgumentError(
    `drainMs must be a whole number of milliseconds from 0 to ${DRAIN_MAX_MS} drainMs=${shown(drainMs)}`,
  );
}
