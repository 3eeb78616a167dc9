import { errorJson } from './json.js';
import { shown } from './shown.js';

/**
 * What went wrong, as far as a caller would act differently:
 *
 * - `stale-token`: a later holder has written. The caller must stop: its work is void.
 * - `conflict`: others kept writing between read and write, or held the resource. Nothing was written; the caller may try again with the same token.
 * - `version-mismatch`: what is stored is not the version that the caller expects. Nothing was written; the caller must read again.
 * - `outcome-unknown`: the write may or may not be applied. The caller must read back and compare the write id before it goes on.
 * - `unsafe-store`: the server does not enforce a condition that the token check needs. The caller must use another server.
 * - `unsupported`: this server cannot do that safely (a body too large for it, say). Nothing was written.
 * - `corrupt-object`: what is stored was not written by this library or has been damaged. The caller must look at it.
 * - `ratchet-lost`: somebody went round this library and removed or lowered a token that this process had seen. The caller must look.
 * - `store-setup`: bucket, schema, credentials or address are wrong. Nothing was written; the caller must mend the set-up.
 * - `unavailable`: the store did not answer, and nothing was written. The caller may try again later.
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

/** Every error that the stores throw themselves. `cause` is what the driver said, where it said anything. */
export class FencedStoreError extends Error {
  readonly code: FencedStoreErrorCode;

  constructor(code: FencedStoreErrorCode, message: string, options?: { readonly cause?: unknown }) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
  }

  /** For `JSON.stringify`: name, code, message and all that the error tells besides, tokens as decimal strings, and `cause`. */
  toJSON(_key?: string, depth = 0): object {
    return errorJson(this, { ...this }, depth);
  }
}

/**
 * The token is lower than the highest that the storage has seen for the resource: refused, nothing changed. On Postgres `highest` may be
 * the floor of pruned resources; the message says so then.
 */
export class StaleTokenError extends FencedStoreError {
  readonly resource: string;
  readonly presented: bigint;
  readonly highest: bigint;

  constructor(
    facts: {
      readonly resource: string;
      readonly presented: bigint;
      readonly highest: bigint;
      /** @default 'a later holder has written' */
      readonly reason?: string | undefined;
    },
    options?: { readonly cause?: unknown },
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

/** Others changed the resource each time between our read and our write, or held it for too long. Nothing was written. */
export class ConflictError extends FencedStoreError {
  readonly resource: string;
  readonly attempts: number;

  constructor(
    facts: { readonly resource: string; readonly attempts: number },
    options?: { readonly cause?: unknown },
  ) {
    super(
      'conflict',
      `others were in the way each time, so nothing was written resource=${facts.resource} attempts=${facts.attempts}`,
      options,
    );
    this.resource = facts.resource;
    this.attempts = facts.attempts;
  }
}

/** What is stored is not the version that the caller's write may replace. Nothing was written. */
export class VersionMismatchError extends FencedStoreError {
  readonly resource: string;
  /** Null: nothing was to be there. */
  readonly expected: string | null;
  /** Null where nothing is there. */
  readonly found: string | null;

  constructor(facts: {
    readonly resource: string;
    readonly expected: string | null;
    readonly found: string | null;
  }) {
    super(
      'version-mismatch',
      `another version is stored than the write may replace resource=${facts.resource} expected=${facts.expected ?? 'nothing'} found=${facts.found ?? 'nothing'}`,
    );
    this.resource = facts.resource;
    this.expected = facts.expected;
    this.found = facts.found;
  }
}

/** What a write was sent to. */
export type StoreName = 's3' | 'postgres' | 'gateway';

/** The answer of `settle`. `not-applied`: the write was not applied, and never will be. */
export type Settlement = 'applied' | 'not-applied' | 'unknown';

/** The reply to a write was lost and reading back did not settle it: the write may be applied now, later, or never. */
export class OutcomeUnknownError extends FencedStoreError {
  readonly resource: string;
  readonly writeId: string;
  /** Whose `settle` is to be asked. */
  readonly store: StoreName;
  /**
   * Whether `settle(writeId)` can tell. False on Postgres if the write was given no `writeId`, for a claim of a record, and if
   * a gateway gave no answer: read back what is stored. A claim may be repeated.
   */
  readonly canSettle: boolean;

  constructor(
    facts: Pick<OutcomeUnknownError, 'resource' | 'writeId' | 'store' | 'canSettle'>,
    options?: { readonly cause?: unknown },
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

/** One thing that a probe asked of a server. */
export interface CheckReport {
  readonly check: string;
  readonly sent: string;
  readonly answered: string;
  /** `absent`: a faculty that the server lacks, and that only some calls need. */
  readonly verdict: 'passed' | 'absent' | 'failed';
}

/** The server does not enforce what the token check rests on. Raised before the first write. */
export class UnsafeStoreError extends FencedStoreError {
  /** The name of the first check of the probe that failed. */
  readonly check: string;
  /** What was asked and answered up to there, in order. */
  readonly report: readonly CheckReport[];

  constructor(
    check: string,
    message: string,
    options?: { readonly cause?: unknown; readonly report?: readonly CheckReport[] },
  ) {
    super('unsafe-store', message, options);
    this.check = check;
    this.report = options?.report ?? [];
  }
}

/** The server cannot do this under a condition, so it is not done at all. */
export class UnsupportedByStoreError extends FencedStoreError {
  constructor(message: string, options?: { readonly cause?: unknown }) {
    super('unsupported', message, options);
  }
}

/** What is stored under the key was not written by this library, or was damaged since. */
export class CorruptObjectError extends FencedStoreError {
  readonly resource: string;

  constructor(resource: string, reason: string, options?: { readonly cause?: unknown }) {
    super('corrupt-object', `${reason} resource=${resource}`, options);
    this.resource = resource;
  }
}

/**
 * Somebody overwrote, removed or restored the object without this library, so that the token which it held is gone or lower.
 * What was known to be refused may have been written meanwhile. Nothing is written until the caller has looked.
 */
export class RatchetLostError extends FencedStoreError {
  readonly resource: string;
  /** The token that this process had seen. */
  readonly known: bigint;
  /** The token that is stored now; 0n where there is none. */
  readonly found: bigint;

  constructor(facts: {
    readonly resource: string;
    readonly known: bigint;
    readonly found: bigint;
  }) {
    super(
      'ratchet-lost',
      `the fencing token is gone or lower than it was: somebody overwrote, removed or restored the object without this library resource=${facts.resource} known=${facts.known} found=${facts.found}; look at the object, then forget(key) to go on from what is there`,
    );
    this.resource = facts.resource;
    this.known = facts.known;
    this.found = facts.found;
  }
}

/** Bucket, schema, credentials or address are not what this store needs. Nothing was written. */
export class StoreSetupError extends FencedStoreError {
  constructor(message: string, options?: { readonly cause?: unknown }) {
    super('store-setup', message, options);
  }
}

/** The store did not answer, and nothing was written. */
export class StoreUnavailableError extends FencedStoreError {
  constructor(message: string, options?: { readonly cause?: unknown }) {
    super('unavailable', message, options);
  }
}

/** Not a fencing token: tokens are whole numbers from 1 to 2^63-1, as `bigint`, safe `number` or decimal digits. */
export class InvalidTokenError extends FencedStoreError {
  constructor(value: unknown, options?: { readonly cause?: unknown }) {
    super(
      'invalid-token',
      `not a fencing token (a whole number from 1 to 9223372036854775807) value=${shown(value)}`,
      options,
    );
  }
}

/** An argument or option of the call is wrong; the message names it and says what is expected. */
export class InvalidArgumentError extends FencedStoreError {
  constructor(message: string, options?: { readonly cause?: unknown }) {
    super('invalid-argument', message, options);
  }
}
