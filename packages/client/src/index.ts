/**
 * The TypeScript client of a gateway. It has the methods, options and errors of the stores, over
 * HTTP. So a program changes one line to use a gateway in place of a store. The client needs
 * nothing but `fetch`.
 *
 * If the answer to a write is lost on its way from the gateway, the call fails with
 * `OutcomeUnknownError` and an empty `writeId`. Write again with the same token, or read the value.
 */
import './node-version.js';
import { InvalidArgumentError } from '@fenced/store';
import { checkAttempts, checkOptions } from '@fenced/store/internal';
import { GatewayHttp } from './http.js';
import type { GatewayLease, ReleaseOutcome } from './lease.js';
import type {
  AcquireOptions,
  CloseOptions,
  CloseResult,
  LeaseReference,
  TryAcquireOptions,
  UsingOptions,
} from './lease-arguments.js';
import { type AcquireResult, Leases } from './leases.js';
import { GatewayObjects } from './objects.js';
import { GatewayRecords } from './records.js';
import { type Runtime, systemRuntime } from './runtime.js';
import { SignedTokens } from './signed-tokens.js';

export type { GatewayLease, ReleaseOutcome } from './lease.js';
export type {
  AbandonedLease,
  AcquireOptions,
  CloseOptions,
  CloseResult,
  LeaseReference,
  TryAcquireOptions,
  UsingOptions,
} from './lease-arguments.js';
export type { AcquireResult } from './leases.js';
export type { GatewayObjects, Objects } from './objects.js';
export { LeaseError, type LeaseErrorCode } from './problems.js';
export type { GatewayRecords, Records } from './records.js';
export type { Runtime } from './runtime.js';

export interface FencedGatewayOptions {
  /**
   * The address of the gateway, or of the load balancer before several:
   * `https://gateway.example:8080`.
   */
  readonly url: string | URL;
  /** The API key, or a JSON Web Token. */
  readonly key?: string;
  /** The number of tries of an update that loses races, from 1 to 1000. @default 20 */
  readonly attemptsMax?: number;
  /** For proxies, certificates and limits of your own. @default globalThis.fetch */
  readonly fetch?: typeof fetch;
}

const FIELDS = ['url', 'key', 'attemptsMax', 'fetch'];

/** Has the methods of a `Lock` of `@fenced/lock`. */
export class FencedGateway implements AsyncDisposable {
  /** Has the methods of `FencedS3`. */
  readonly objects: GatewayObjects;
  readonly #http: GatewayHttp;
  readonly #tokens = new SignedTokens();
  readonly #leases: Leases;
  readonly #runtime: Runtime;

  /** @throws {InvalidArgumentError} */
  constructor(options: FencedGatewayOptions, runtime: Runtime = systemRuntime) {
    checkOptions(options, FIELDS, "{ url: 'https://gateway.example' }");
    const { url, key, attemptsMax = 20, fetch: fetcher = globalThis.fetch } = options;
    checkAttempts(attemptsMax);
    if (key !== undefined && !/^[\w.~+/=-]+$/.test(key))
      throw new InvalidArgumentError(
        'key must be an API key or a JSON Web Token, without Bearer before it',
      );
    this.#http = new GatewayHttp(url, key, fetcher);
    this.#runtime = runtime;
    this.#leases = new Leases(this.#http, this.#tokens, runtime);
    this.objects = new GatewayObjects(this.#http, this.#tokens, attemptsMax, runtime);
  }

  /** As `records` of `FencedPostgres`. @throws {InvalidArgumentError} */
  records(collection: string): GatewayRecords {
    return new GatewayRecords(collection, this.#http, this.#tokens, this.#runtime);
  }

  /**
   * Acquires one lease, of one resource or of several: of all, or of none. Waits for up to
   * `waitMs`.
   *
   * @throws {LeaseError} `held` if another client holds the lock, or `timeout` if one still did at
   *   the end of the wait; `invalid-argument`; `no-quorum` …
   * @throws {StoreUnavailableError} if no answer came; if a lease was granted, it expires
   * @throws the signal's reason, if it aborted
   */
  acquire(resource: string | readonly string[], options: AcquireOptions): Promise<GatewayLease> {
    return this.#leases.acquire(resource, options);
  }

  /**
   * Makes one acquisition. Contention, an unavailable gateway or lock, and an abort during the call
   * are results here, not exceptions.
   *
   * @throws {LeaseError} if the call is wrong or not allowed
   * @throws the signal's reason, if it had aborted before the call; or an error of code `closed`
   */
  tryAcquire(
    resource: string | readonly string[],
    options: TryAcquireOptions,
  ): Promise<AcquireResult> {
    return this.#leases.tryAcquire(resource, options);
  }

  /**
   * Runs `routine` under a lease, which is extended while the routine runs, and releases it. If the
   * routine throws, `using` throws that error, even if the lease was lost too.
   *
   * @throws {LeaseError} `lease-lost` if the lease ended before the routine did; and the errors of
   *   `acquire`
   */
  using<Result>(
    resource: string | readonly string[],
    options: UsingOptions,
    routine: (lease: GatewayLease) => Promise<Result> | Result,
  ): Promise<Result> {
    return this.#leases.using(resource, options, routine);
  }

  /**
   * Lets a lease that any process acquired last at least `ttlMs` from now on, with the same token.
   *
   * @returns milliseconds for which the lease is valid from now on; 0 if the answer came too late
   * @throws {LeaseError} `lease-lost`, `no-quorum` …
   * @throws {StoreUnavailableError} if no answer came
   */
  extend(held: LeaseReference, ttlMs: number): Promise<number> {
    return this.#leases.extend(held, ttlMs);
  }

  /**
   * Gives up a lease that any process acquired.
   *
   * @returns the outcome, as `release` of a lease does
   * @throws {LeaseError} if the call is wrong or not allowed
   */
  release(held: LeaseReference): Promise<ReleaseOutcome> {
    return this.#leases.release(held);
  }

  /**
   * Ends waits, and aborts the signals of leases, with an error of code `closed`. Then waits for
   * the routines of `using`, whose leases are extended meanwhile, for `drainMs` at most. At last it
   * releases all leases but those of routines that still run. A further call returns the promise of
   * the first. Objects and records can still be used.
   *
   * @throws {InvalidArgumentError} at once
   */
  close(options: CloseOptions = {}): Promise<CloseResult> {
    return this.#leases.close(options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /**
   * Adopts a signed token, such as `34.k1.…`, that the gateway issued to another process for a
   * resource.
   *
   * @returns its number: for a call with this number, the client now sends the signed token
   * @throws {InvalidTokenError}
   */
  adopt(resource: string, signed: string): bigint {
    return this.#tokens.keep(signed, resource);
  }
}
