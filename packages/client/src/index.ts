/**
 * The gateway, from programs in TypeScript: the methods, options and errors of the stores, over HTTP, so that a program goes from
 * one to the other by one line. It needs nothing but `fetch`.
 *
 * A write whose answer was lost between here and the gateway is `OutcomeUnknownError` with an empty `writeId`: the gateway
 * may or may not have had it. Write again with the same token, or read and see.
 */
import './node-version.js';
import { InvalidArgumentError } from '@fenced/store';
import { checkAttempts } from '@fenced/store/internal';
import { GatewayHttp } from './http.js';
import { type AcquireOptions, type GatewayLease, Leases } from './leases.js';
import { GatewayObjects } from './objects.js';
import { GatewayRecords } from './records.js';
import { type Runtime, systemRuntime } from './runtime.js';
import { SignedTokens } from './signed-tokens.js';

export type { AcquireOptions, GatewayLease } from './leases.js';
export type { GatewayObjects, Objects } from './objects.js';
export { LeaseError } from './problems.js';
export type { GatewayRecords, Records } from './records.js';
export type { Runtime } from './runtime.js';

export interface FencedGatewayOptions {
  /** Of the gateway, or of the load balancer before several: `https://gateway.example:8080`. */
  readonly url: string | URL;
  /** The API key, or a JSON Web Token. */
  readonly key?: string;
  /** How often an update that lost a race to others is tried, from 1 to 1000. @default 20 */
  readonly attemptsMax?: number;
  /** For proxies, certificates and limits of one's own. @default globalThis.fetch */
  readonly fetch?: typeof fetch;
}

export class FencedGateway {
  /** As a `FencedS3`. */
  readonly objects: GatewayObjects;
  readonly #http: GatewayHttp;
  readonly #tokens = new SignedTokens();
  readonly #leases: Leases;
  readonly #runtime: Runtime;

  /** @throws {InvalidArgumentError} */
  constructor(options: FencedGatewayOptions, runtime: Runtime = systemRuntime) {
    const { url, key, attemptsMax = 20, fetch: fetcher = globalThis.fetch } = options;
    checkAttempts(attemptsMax);
    if (key !== undefined && !/^[\w.~+/=-]+$/.test(key))
      throw new InvalidArgumentError('key must be an API key or a JSON Web Token');
    this.#http = new GatewayHttp(url, key, fetcher);
    this.#runtime = runtime;
    this.#leases = new Leases(this.#http, this.#tokens, runtime);
    this.objects = new GatewayObjects(this.#http, this.#tokens, attemptsMax, runtime);
  }

  /** As `records` of a `FencedPostgres`. @throws {InvalidArgumentError} */
  records(collection: string): GatewayRecords {
    return new GatewayRecords(collection, this.#http, this.#tokens, this.#runtime);
  }

  /**
   * Acquires a lease, or waits for it.
   *
   * @throws {LeaseError} `held` where somebody else has it until the end of the wait; `no-quorum` and others
   * @throws {StoreUnavailableError} where no answer came: if there was a lease, it ends by itself
   */
  acquire(resource: string, options: AcquireOptions): Promise<GatewayLease> {
    return this.#leases.acquire(resource, options);
  }

  /**
   * Takes up a token that another process was given for a resource, as it came from the gateway: `34.k1.…`.
   *
   * @returns its number, by which this client presents it from now on
   * @throws {InvalidTokenError}
   */
  adopt(resource: string, signed: string): bigint {
    return this.#tokens.keep(signed, resource);
  }
}
