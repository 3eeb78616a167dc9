import '../node-version.js';
import { LockArgumentError } from '../core/errors.js';
import { checkFields, milliseconds, resolveOptions } from '../core/options.js';
import { LockService } from '../lease/lock-service.js';
import { checkRuntime, type Runtime, systemRuntime } from '../runtime/runtime.js';
import { type LockObjects, Records } from './records.js';
import { S3Transport } from './s3-transport.js';

export type { LockObjects } from './records.js';

export interface S3LockConfig {
  /** A `FencedS3` of `@fenced/store/s3`. It tests the bucket before the first write. */
  readonly objects: LockObjects;
  /**
   * Prefix of the keys. Another prefix is another lock service: the two do not share locks.
   * @default 'locks/'
   */
  readonly keyPrefix?: string;
  /** Longest lease in milliseconds, 10 to 86,400,000 (a day). @default 60_000 */
  readonly maxTtlMs?: number;
  /** Milliseconds between the reads of a waiter, 10 to 60,000. @default 1_000 */
  readonly pollMs?: number;
  /** The first token of new resources, for demonstrations. @default the clock in microseconds */
  readonly firstToken?: bigint;
}

/**
 * Leases with fencing tokens in one bucket, by the methods of `Redlock`: for programs that have
 * nothing else. An object for each resource holds the lease and the last token.
 *
 * Promised: tokens grow while the objects stay. If an object is removed, that also rests on the
 * clocks of the clients. A client takes over only after it has seen the same version for the
 * whole TTL, by its own clock.
 *
 * Not promised: an order among waiters. The objects of a set are taken one after the other.
 */
export class S3Lock extends LockService {
  /** @throws {LockArgumentError} an option is out of range */
  constructor(config: S3LockConfig, runtime: Runtime = systemRuntime) {
    const fields = ['objects', 'keyPrefix', 'maxTtlMs', 'pollMs', 'firstToken'];
    checkFields('the first argument of S3Lock', config, fields);
    checkRuntime(runtime);
    const { objects, keyPrefix = 'locks/', pollMs = 1_000 } = config;
    const calls = [objects?.get, objects?.put, objects?.forget];
    if (calls.some((call) => typeof call !== 'function')) {
      throw new LockArgumentError('objects must be a FencedS3 of @fenced/store/s3');
    }
    const { maxTtlMs, firstToken } = resolveOptions({ ...config, keyPrefix });
    const records = new Records(objects, keyPrefix);
    const options = { pollMs: milliseconds('pollMs', pollMs, 10, 60_000), firstToken };
    super('S3Lock', maxTtlMs, new S3Transport(records, options, runtime), runtime);
  }
}
