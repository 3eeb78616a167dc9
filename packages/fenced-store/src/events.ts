import { type Channel, channel } from 'node:diagnostics_channel';
import type { StoreCapabilities } from './core/capabilities.js';
import { FencedStoreError, OutcomeUnknownError, type StoreName } from './core/errors.js';
import { withJson } from './core/json.js';

/** The place that an event is about. */
export interface StoreEvent {
  readonly store: Exclude<StoreName, 'gateway'>;
  /** On S3. */
  readonly bucket?: string;
  /** Of records on Postgres. */
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
  /** From the call to its outcome, in milliseconds; with all attempts, and with the caller's own function. */
  readonly tookMs: number;
}

/** What happens, by the names of the `node:diagnostics_channel`s that publish it. Without a subscriber it costs nothing. */
export interface StoreEvents {
  /** A write or a claim was applied: lower tokens are refused from now on. */
  'fenced:store:applied': WriteEvent & { readonly writeId?: string };
  /** It was not applied, for the reason of the error: `error.code` is `stale-token`, `conflict`, `unavailable` … */
  'fenced:store:refused': WriteEvent & { readonly error: FencedStoreError };
  /** It may or may not be applied. */
  'fenced:store:unknown': WriteEvent & { readonly error: OutcomeUnknownError };
  /** A write, or a request of S3, is tried again. */
  'fenced:store:retried': StoreEvent & {
    /** How many attempts were made so far. */
    readonly attempt: number;
    /** `conflict`: others were quicker. `unavailable`: there was no answer, or the server throttles. */
    readonly reason: 'conflict' | 'unavailable';
    /** What the server or the driver said, if anything. */
    readonly error?: unknown;
  };
  /** The verdict on an S3 server. `unknown`: the probe got no answers; nothing was written then. */
  'fenced:store:probed': {
    readonly store: 's3';
    readonly bucket: string;
    readonly verdict: 'safe' | 'unsafe' | 'unknown';
    /** With the verdict `safe`. A `certificate` was left in the bucket by an earlier probe, at `checkedAtMs`. */
    readonly source?: 'probe' | 'certificate';
    readonly capabilities?: StoreCapabilities;
    /** With the other verdicts. */
    readonly error?: unknown;
  };
}

const APPLIED = 'fenced:store:applied';
const REFUSED = 'fenced:store:refused';
const UNKNOWN = 'fenced:store:unknown';
const OUTCOMES = [APPLIED, REFUSED, UNKNOWN] as const;

const channels: { readonly [Name in keyof StoreEvents]: Channel } = {
  [APPLIED]: channel(APPLIED),
  [REFUSED]: channel(REFUSED),
  [UNKNOWN]: channel(UNKNOWN),
  'fenced:store:retried': channel('fenced:store:retried'),
  'fenced:store:probed': channel('fenced:store:probed'),
};

/** Publishes to the subscribers, if there are any; `make` is called only for them. */
export function publish<Name extends keyof StoreEvents>(
  name: Name,
  make: () => StoreEvents[Name],
): void {
  // What a subscriber throws becomes an uncaught exception of the process, not of the call: Node sees to that.
  if (isHeard(name)) channels[name].publish(withJson(make()));
}

function isHeard(name: keyof StoreEvents): boolean {
  return channels[name].hasSubscribers;
}

/**
 * Runs a write and publishes its outcome. Unpublished are calls that are wrong in themselves, and what the caller's own function,
 * statement or signal ended.
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
  if (!OUTCOMES.some(isHeard)) return run();
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

/** The caller's function may write elsewhere, and pass on that this has an unknown outcome: then the write around it was undone. */
function isOf({ store, resource }: OutcomeUnknownError, event: WriteEvent): boolean {
  return store === event.store && resource === event.resources.join(', ');
}
