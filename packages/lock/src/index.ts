/**
 * Leases with fencing tokens over independent Redis nodes.
 *
 * A lease is a lock that ends by itself. Its holder may be paused past that end and then go on as
 * if nothing had happened. No lock service can prevent that. So every lease carries a *token*. The
 * rule: **present the token with every write, to storage that refuses a token lower than the
 * highest it has seen** (`@fenced/store`, or your own).
 *
 * Promised: if one acquisition returned its token before another of the same resource began, its
 * token is lower. No two acquisitions ever return the same token. This needs no assumption about
 * pauses or delays. Only if no majority of the nodes remembers the last tokens, a clock must be
 * right: docs/tokens.md says by how much.
 *
 * Not promised: that two clients never believe at the same time that they hold the lock. That rests
 * on clocks, as in every lease, and is why the token exists.
 */
import './node-version.js';

export type { NodeAnswer } from './core/answers.js';
export * from './core/errors.js';
export type { AcquireFailure } from './core/failure.js';
export { STORAGE_VERSION } from './core/mismatch.js';
export type { RedlockOptions } from './core/options.js';
export type { NodeStatus, NoVoteReason } from './core/status.js';
export type { LeaseEvent, LockEvents } from './lease/events.js';
export type { Lease } from './lease/lease.js';
export type {
  AcquireOptions,
  CloseOptions,
  CloseResult,
  HeldLeaseReference,
  LeaseReference,
  TryAcquireOptions,
  UsingOptions,
} from './lease/lease-arguments.js';
export type { AcquireResult, Lock } from './lease/lock-service.js';
export type { AbandonedLease } from './lease/routines.js';
export type { ReleaseOutcome } from './lease/transport.js';
export type { RedisClient } from './redis/clients/detect.js';
export type { ValkeyGlideClient } from './redis/clients/glide.js';
export type { IoredisClient, IoredisSubscriber } from './redis/clients/ioredis.js';
export type { NodeRedisClient } from './redis/clients/node-redis.js';
export type { MoveOptions } from './redlock/movable-service.js';
export type { MoveStatus } from './redlock/move.js';
export type { NodeConfig } from './redlock/node-names.js';
export type { ReadmitResult } from './redlock/readmission.js';
export {
  type NextSet,
  type ReadmitOptions,
  Redlock,
  type RedlockConfig,
} from './redlock/redlock.js';
export type { Runtime } from './runtime/runtime.js';
