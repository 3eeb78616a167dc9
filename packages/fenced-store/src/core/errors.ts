import { errorJson } from './json.js';
import { shown } from './shown.js';

/**
 * The kind of an error. Kinds differ if callers should act differently:
 *
 * - `stale-token`: a later holder has written. The caller must stop: its work is void.
 * - `conflict`: other writes were quicker each time, or held the resource. Nothing was written. The
 *   caller may try again with the same token.
 * - `version-mismatch`: the stored version is not the expected one. Nothing was written. The caller
 *   must read again.
 * - `outcome-unknown`: the write may be applied or not. The caller must read back and compare the
 *   write id.
 * - `unsafe-store`: the server does not enforce a condition that the token check needs. The caller
 *   must use another server.
 * - `unsupported`: the server cannot do that safely, such as a body that is too large. Nothing was
 *   written.
 * - `corrupt-object`: this library did not write the object, or it was damaged. The caller must
 *   look at it.
 * - `ratchet-lost`: a writer went around this library and removed or lowered a token that this
 *   process had seen. The caller must look at the object.
 * - `store-setup`: bucket, schema, credentials or address are wrong. Nothing was written. The
 *   caller must mend the set-up.
 * - `unavailable`: the store did not answer, and nothing was written. The caller may try again.
 * - `invalid-token`, `invalid-argument`: the call itself is wrong. Nothing was sent.
 */
export type FencedStoreErrorCode =
  | 'stale-token'
  | 'conflict'
  | 'version-mismatch'
  | 'outcome-unknown'
  | 'unsafe-store'
  | 'unsupported'
  | 'corrupt-object'
  | 'ratchet-lost'
  | 'store-setup'
  | 'unavailable'
  | 'invalid-token'
  | 'invalid-argument';

/** The base of all errors of the stores. `cause` is the driver's error, if there was one. */
export class FencedStoreError extends Error {
  readonly code: FencedStoreErrorCode;

  constructor(code: FencedStoreErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
  }

  /** For `JSON.stringify`: all fields, with tokens as decimal strings, and `cause`. */
  toJSON(_key?: string, depth = 0): object {
    return errorJson(this, { ...this }, depth);
  }
}

/**
 * The token is lower than the highest that the storage has seen for the resource. Nothing changed.
 * On Postgres, `highest` may be the floor of pruned resources; the message then says so.
 */
export class StaleTokenError extends FencedStoreError {
  readonly resource: string;
  readonly presented: bigint;
  readonly highest: bigint;

  /** @param facts `reason` is "a later holder has written" by default */
  constructor(
    facts: Pick<StaleTokenError, 'resource' | 'presented' | 'highest'> & {
      readonly reason?: string | undefined;
    },
    options?: ErrorOptions,
  ) {
    const { resource, presented, highest, reason = 'a later holder has written' } = facts;
    super(
      'stale-token',
      `stale fencing token: ${reason} resource=${resource} presented=${presented} highest=${highest}`,
      options,
    );
    this.resource = resource;
    this.presented = presented;
    this.highest = highest;
  }
}

/** Other writes were quicker each time, or held the resource for too long. Nothing was written. */
export class ConflictError extends FencedStoreError {
  readonly resource: string;
  readonly attempts: number;

  constructor(facts: Pick<ConflictError, 'resource' | 'attempts'>, options?: ErrorOptions) {
    const { resource, attempts } = facts;
    super(
      'conflict',
      `gave up, because other writes were quicker each time or held the resource; nothing was written resource=${resource} attempts=${attempts}`,
      options,
    );
    this.resource = resource;
    this.attempts = attempts;
  }
}

/** The stored version is not the one that the write may replace. Nothing was written. */
export class VersionMismatchError extends FencedStoreError {
  readonly resource: string;
  /** Null if there may be no value. */
  readonly expected: string | null;
  /** Null if there is no value. */
  readonly found: string | null;

  constructor(facts: Pick<VersionMismatchError, 'resource' | 'expected' | 'found'>) {
    const { resource, expected, found } = facts;
    super(
      'version-mismatch',
      `the stored version is not the one that the write may replace resource=${resource} expected=${expected ?? 'nothing'} found=${found ?? 'nothing'}`,
    );
    this.resource = resource;
    this.expected = expected;
    this.found = found;
  }
}

/** The store that a write was sent to. */
export type StoreName = 's3' | 'postgres' | 'gateway';

/** The answer of `settle`. `not-applied`: the write was not applied, and never will be. */
export type Settlement = 'applied' | 'not-applied' | 'unknown';

/**
 * The reply to a write was lost, and reading back did not decide. The write may be applied now,
 * later, or never.
 */
export class OutcomeUnknownError extends FencedStoreError {
  readonly resource: string;
  readonly writeId: string;
  /** The store whose `settle` can be asked. */
  readonly store: StoreName;
  /**
   * True if `settle(writeId)` can tell. False on Postgres for a write without `writeId` and for a
   * claim of a record, and if a gateway did not answer. Then read back what is stored. A claim may
   * be repeated.
   */
  readonly canSettle: boolean;

  constructor(
    facts: Pick<OutcomeUnknownError, 'resource' | 'writeId' | 'store' | 'canSettle'>,
    options?: ErrorOptions,
  ) {
    const { resource, writeId, store, canSettle } = facts;
    const limit = canSettle ? '' : '; settle() cannot tell, because the store keeps no id of it';
    super(
      'outcome-unknown',
      `the outcome of the write is unknown resource=${resource} writeId=${writeId} store=${store}${limit}`,
      options,
    );
    this.resource = resource;
    this.writeId = writeId;
    this.store = store;
    this.canSettle = canSettle;
  }
}

/** One question of a probe to a server. */
export interface CheckReport {
  readonly check: string;
  readonly sent: string;
  readonly answered: string;
  /** `absent`: a capability that the server lacks, and that only some calls need. */
  readonly verdict: 'passed' | 'absent' | 'failed';
}

/** The server does not enforce what the token check needs. Thrown before the first write. */
export class UnsafeStoreError extends FencedStoreError {
  /** The name of the first check of the probe that failed. */
  readonly check: string;
  /** The questions and answers up to that check, in order. */
  readonly report: readonly CheckReport[];

  constructor(
    check: string,
    message: string,
    options?: ErrorOptions & { readonly report?: readonly CheckReport[] },
  ) {
    super('unsafe-store', message, options);
    this.check = check;
    this.report = options?.report ?? [];
  }
}

/** The server cannot do this under a condition. Nothing was written. */
export class UnsupportedByStoreError extends FencedStoreError {
  constructor(message: string, options?: ErrorOptions) {
    super('unsupported', message, options);
  }
}

/** This library did not write the stored object, or it was damaged since. */
export class CorruptObjectError extends FencedStoreError {
  readonly resource: string;

  constructor(resource: string, reason: string, options?: ErrorOptions) {
    super('corrupt-object', `${reason} resource=${resource}`, options);
    this.resource = resource;
  }
}

/**
 * A writer overwrote, removed or restored the object without this library, so its token is gone or
 * lower. A stale write may have been applied since. Nothing is written until the caller has called
 * `forget` for the key.
 */
export class RatchetLostError extends FencedStoreError {
  readonly resource: string;
  /** The token that this process had seen. */
  readonly known: bigint;
  /** The token that is stored now; 0n if there is none. */
  readonly found: bigint;

  constructor(facts: Pick<RatchetLostError, 'resource' | 'known' | 'found'>) {
    const { resource, known, found } = facts;
    super(
      'ratchet-lost',
      `the fencing token is gone or lower than it was: somebody overwrote, removed or restored the object without this library resource=${resource} known=${known} found=${found}; look at the object, then forget(key) to go on from what is there`,
    );
    this.resource = resource;
    this.known = known;
    this.found = found;
  }
}

/** Bucket, schema, credentials or address are wrong. Nothing was written. */
export class StoreSetupError extends FencedStoreError {
  constructor(message: string, options?: ErrorOptions) {
    super('store-setup', message, options);
  }
}

/** The store did not answer, and nothing was written. */
export class StoreUnavailableError extends FencedStoreError {
  constructor(message: string, options?: ErrorOptions) {
    super('unavailable', message, options);
  }
}

/**
 * The value is no fencing token: a whole number from 1 to 2^63-1, as `bigint`, safe `number` or
 * decimal digits.
 */
export class InvalidTokenError extends FencedStoreError {
  constructor(value: unknown, options?: ErrorOptions) {
    super(
      'invalid-token',
      `not a fencing token: lease.token is a whole number from 1 to 9223372036854775807${value === undefined ? ', and await acquire() has the lease' : ''} value=${shown(value)}`,
      options,
    );
  }
}

/** An argument or option is wrong. The message names it and says what is expected. */
export class InvalidArgumentError extends FencedStoreError {
  constructor(message: string, options?: ErrorOptions) {
    super('invalid-argument', message, options);
  }
}
