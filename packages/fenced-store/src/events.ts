import { channel, hasSubscribers } from 'node:diagnostics_channel';
import type { StoreCapabilities } from './core/capabilities.js';
import { FencedStoreError, OutcomeUnknownError, type StoreName } from './core/errors.js';
import { withJson } from './core/json.js';

/** The place that an event is about. */
export interface StoreEvent {
  readonly store: Exclude<StoreName, 'gateway'>;
  /** Only on S3. */
  readonly bucket?: string;
  /** Only for records on Postgres. */
  readonly collection?: string;
  /** The names of resources, the key of an object, or the id of a record. */
  readonly resources: readonly string[];
}

/** A call that presented a token. `JSON.stringify` writes the token as a decimal string. */
export interface WriteEvent extends StoreEvent {
  /** The method that was called. A claim that a stream or `settle` needs is a `claim`. */
  readonly operation:
    | 'put'
    | 'update'
    | 'delete'
    | 'claim'
    | 'claimAndGet'
    | 'repair'
    | 'query'
    | 'transaction';
  readonly token: bigint;
  /**
   * From the call to its outcome, in milliseconds; with all attempts, and with the caller's own
   * function.
   */
  readonly tookMs: number;
}

/** The events, by their `node:diagnostics_channel`. Without a subscriber they cost nothing. */
export interface StoreEvents {
  /** A write or a claim was applied. From now on, lower tokens are refused. */
  'fenced:store:applied': WriteEvent & { readonly writeId?: string };
  /** A write or a claim was not applied: `error.code` is `stale-token`, `conflict` … */
  'fenced:store:refused': WriteEvent & { readonly error: FencedStoreError };
  /** A write or a claim whose reply was lost: it may or may not be applied. */
  'fenced:store:unknown': WriteEvent & { readonly error: OutcomeUnknownError };
  /** A write, or a request of S3, is tried again. */
  'fenced:store:retried': StoreEvent & {
    /** Number of attempts so far. */
    readonly attempt: number;
    /** `conflict`: another write was quicker. `unavailable`: no reply, or the server throttles. */
    readonly reason: 'conflict' | 'unavailable';
    /** The error of the server or the driver, if there was one. */
    readonly error?: unknown;
  };
  /** The verdict on an S3 server. `unknown`: the probe got no replies, and nothing was written. */
  'fenced:store:probed': {
    readonly store: 's3';
    readonly bucket: string;
    readonly verdict: 'safe' | 'unsafe' | 'unknown';
    /**
     * With the verdict `safe`. An earlier probe left a `certificate` in the bucket at
     * `checkedAtMs`.
     */
    readonly source?: 'probe' | 'certificate';
    readonly capabilities?: StoreCapabilities;
    /** With the verdicts `unsafe` and `unknown`. */
    readonly error?: unknown;
  };
}

const APPLIED = 'fenced:store:applied';
const REFUSED = 'fenced:store:refused';
const UNKNOWN = 'fenced:store:unknown';
const OUTCOMES = [APPLIED, REFUSED, UNKNOWN] as const;

/** Publishes to the subscribers. Without any, `make` is not called. */
export function publish<Name extends keyof StoreEvents>(
  name: Name,
  make: () => StoreEvents[Name],
): void {
  // An error of a subscriber becomes an uncaught exception of the process, and not of the call.
  if (hasSubscribers(name)) channel(name).publish(withJson(make()));
}

/**
 * Runs a write and publishes its outcome. Does not publish calls that are wrong in themselves, or
 * that the caller's own function, statement or signal ended.
 *
 * @param facts called once the write is over
 * @param writeIdOf the id of the write that was applied, if it has one
 */
export function publishOutcome<Result>(
  run: () => Promise<Result>,
  facts: () => Omit<WriteEvent, 'tookMs'>,
  writeIdOf: (result: Result) => string | undefined,
  nowMs: () => number,
): Promise<Result> {
  if (!OUTCOMES.some((name) => hasSubscribers(name))) return run();
  const startedMs = nowMs();
  const event = (): WriteEvent => ({ ...facts(), tookMs: nowMs() - startedMs });
  return run().then(
    (result) => {
      const writeId = writeIdOf(result);
      publish(APPLIED, () => ({ ...event(), ...(writeId && { writeId }) }));
      return result;
    },
    (error: unknown) => {
      publishFailure(error, event);
      throw error;
    },
  );
}

function publishFailure(error: unknown, event: () => WriteEvent): void {
  if (!(error instanceof FencedStoreError) || error.code.startsWith('invalid-')) return;
  if (error instanceof OutcomeUnknownError && isOf(error, event()))
    publish(UNKNOWN, () => ({ ...event(), error }));
  else publish(REFUSED, () => ({ ...event(), error }));
}

/**
 * True if the error is that of this write. The caller's function may also have thrown the unknown
 * outcome of another write: then this write was undone.
 */
function isOf({ store, resource }: OutcomeUnknownError, event: WriteEvent): boolean {
  return store === event.store && resource === event.resources.join(', ');
}
