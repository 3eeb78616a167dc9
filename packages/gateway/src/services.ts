import type { FencedPostgres, FencedRecords } from '@fenced/store/postgres';
import type { FencedS3 } from '@fenced/store/s3';
import type { LeaseOf } from './bindings.js';
import type { ConcurrencyLimit } from './concurrency-limit.js';
import type { Drain } from './drain.js';
import type { FairQueue } from './fair-queue.js';
import type { AllLimits } from './limits.js';
import type { Runtime } from './runtime.js';
import type { TokenSigner } from './token-signer.js';

/** The gateway's limits on concurrent work. */
export interface ConcurrencyLimits {
  /** Requests that run, without those that wait for a lease. */
  readonly requests: ConcurrencyLimit;
  /** Requests that wait for a lease. */
  readonly waits: ConcurrencyLimit;
  /** Objects that are being written. */
  readonly uploads: ConcurrencyLimit;
  /** Work on records: a document is parsed, and the database is asked. Further work waits. */
  readonly database: FairQueue;
}

/** The services and settings that every route may use. */
export interface Services {
  readonly lock: LockService;
  /** The longest lease that the lock grants, if it is known. */
  readonly maxTtlMs?: number;
  readonly objects?: ObjectStore;
  readonly records?: RecordStore;
  readonly signer: TokenSigner;
  readonly leaseOf: LeaseOf;
  /** Milliseconds for which a signature is valid. */
  readonly signatureTtlMs: number;
  readonly limits: AllLimits;
  readonly concurrency: ConcurrencyLimits;
  readonly runtime: Runtime;
  readonly drain: Drain;
}

/**
 * The methods of a lock of `@fenced/lock`, such as `Redlock`, that the gateway calls. Its errors
 * have a `code`.
 */
export interface LockService {
  acquire(
    resource: string | readonly string[],
    options: { readonly ttlMs: number; readonly waitMs: number; readonly signal: AbortSignal },
  ): Promise<GrantedLease>;
  extend(lease: HeldLeaseReference, ttlMs: number): Promise<number>;
  release(lease: LeaseReference): Promise<'released' | 'expired' | 'unknown'>;
  /**
   * The state of the lock's nodes, for readiness. A lock without nodes does not have this method.
   */
  status?(): Promise<readonly NodeVote[]>;
  /** Readmits nodes that may vote now, as every request for a lease does. */
  readmit?(): Promise<unknown>;
}

/** A `Lease` of `@fenced/lock`. */
export interface GrantedLease {
  readonly token: bigint;
  /** Id of the lease. Any gateway that has this id can extend and release the lease. */
  readonly owner: string;
  remainingMs(): number;
  release(): Promise<unknown>;
}

/** `LeaseReference` of `@fenced/lock`. */
interface LeaseReference {
  readonly resource: string | readonly string[];
  readonly owner: string;
}

/** `HeldLeaseReference` of `@fenced/lock`. */
interface HeldLeaseReference extends LeaseReference {
  readonly token: bigint;
}

export interface NodeVote {
  readonly name: string;
  readonly reachable: boolean;
  /** Null if the node's vote counts. */
  readonly noVote?: string | null;
  /** The memory that the node's server uses, and its `maxmemory`, null without a limit. */
  readonly usedMemoryBytes?: number;
  readonly maxMemoryBytes?: number | null;
}

/** The methods of a `FencedS3` that the gateway calls. */
export type ObjectStore = Pick<
  FencedS3,
  'put' | 'delete' | 'claim' | 'getStream' | 'claimAndGetStream' | 'highest' | 'settle' | 'probe'
>;

/** The methods of a `FencedPostgres` that the gateway calls. */
export interface RecordStore extends Pick<FencedPostgres, 'highest'> {
  records(
    collection: string,
  ): Pick<FencedRecords, 'put' | 'delete' | 'claim' | 'get' | 'claimAndGet' | 'highest' | 'settle'>;
}
