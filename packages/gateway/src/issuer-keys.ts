import {
  createLocalJWKSet,
  createRemoteJWKSet,
  errors,
  type JWTVerifyGetKey,
  type RemoteJWKSetOptions,
} from 'jose';
import type { Runtime } from './runtime.js';

/** After this time, the keys are fetched again. Requests meanwhile use those that are known. */
const REFRESH_MS = 600_000;
/** After this time without a successful fetch, the keys are no longer used. */
const KEPT_MS = 86_400_000;
/** The shortest time between two fetches, after one that succeeded and one that failed. */
const COOL_DOWN_MS = 30_000;
const RETRY_MS = 1_000;

/** The keys of the issuer of JSON Web Tokens cannot be fetched now. */
export class CredentialsUnavailableError extends Error {
  readonly retryAfterMs: number;

  constructor(options: { readonly retryAfterMs?: number; readonly cause?: unknown } = {}) {
    super("the issuer's keys cannot be fetched, so the JSON Web Token cannot be checked", options);
    this.name = 'CredentialsUnavailableError';
    this.retryAfterMs = options.retryAfterMs ?? RETRY_MS;
  }
}

/**
 * The public keys at an issuer's URL. A known key stays usable while the issuer does not answer.
 * Without it, an outage of the issuer would end the leases of all callers that have a token. The
 * price: a key that the issuer withdraws is refused only after the next fetch that succeeds, or
 * after 24 hours. `jose` fetches and reads the set. Its own cache throws the keys away after a
 * time, and would then ask a failing issuer for each request.
 *
 * Invariant: at most one fetch runs, and none begins before the pause after the one before is over.
 */
export class IssuerKeys {
  readonly #remote: ReturnType<typeof createRemoteJWKSet>;
  readonly #runtime: Runtime;
  #known: JWTVerifyGetKey | undefined;
  #fetchedMs = Number.NEGATIVE_INFINITY;
  #nextFetchMs = Number.NEGATIVE_INFINITY;
  #running: Promise<JWTVerifyGetKey> | undefined;

  constructor(url: URL, options: RemoteJWKSetOptions, runtime: Runtime) {
    this.#remote = createRemoteJWKSet(url, options);
    this.#runtime = runtime;
  }

  /** @throws {CredentialsUnavailableError} if the key is not known, and may not be fetched now */
  readonly find: JWTVerifyGetKey = async (header, token) => {
    const ageMs = this.#runtime.nowMs() - this.#fetchedMs;
    if (this.#known === undefined || ageMs > KEPT_MS) return (await this.#fetch())(header, token);
    // Its failure changes nothing for this request.
    if (ageMs > REFRESH_MS) this.#fetch().catch(() => undefined);
    try {
      return await this.#known(header, token);
    } catch (error) {
      if (!(error instanceof errors.JWKSNoMatchingKey)) throw error;
      // The issuer may have a new key. Until it can be asked, nobody knows if the token is good.
      return (await this.#fetch())(header, token);
    }
  };

  #fetch(): Promise<JWTVerifyGetKey> {
    if (this.#running) return this.#running;
    const pauseMs = this.#nextFetchMs - this.#runtime.nowMs();
    if (pauseMs > 0)
      return Promise.reject(new CredentialsUnavailableError({ retryAfterMs: pauseMs }));
    this.#running = this.#reload().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  async #reload(): Promise<JWTVerifyGetKey> {
    try {
      await this.#remote.reload();
      this.#known = createLocalJWKSet(this.#remote.jwks() ?? { keys: [] });
      this.#fetchedMs = this.#runtime.nowMs();
      this.#nextFetchMs = this.#fetchedMs + COOL_DOWN_MS;
      return this.#known;
    } catch (cause) {
      this.#nextFetchMs = this.#runtime.nowMs() + RETRY_MS;
      throw new CredentialsUnavailableError({ cause });
    }
  }
}
