import { checkFunction } from '../core/check.js';
import {
  ConflictError,
  StaleTokenError,
  UnsafeStoreError,
  UnsupportedByStoreError,
} from '../core/errors.js';
import { historyUpon, type Stored } from '../core/stored.js';
import { parseToken, type TokenLike } from '../core/token.js';
import { bodyBytes, checkHeaders, checkKey } from './arguments.js';
import { seal, stamped } from './member.js';
import {
  type CallOptions,
  type Current,
  checkAttempts,
  checkCall,
  checkTokenOptions,
  type Edit,
  type FencedS3Options,
  type PutOptions,
  type TokenOptions,
  type UpdateOptions,
  type Written,
  withDefaults,
} from './options.js';
import { currentOf, type Found, type Plan } from './plan.js';
import { etagHeader, probe, type StoreCapabilities } from './probe.js';
import { Requests } from './requests.js';
import { backoffMs, type Runtime, systemRuntime, unlessAborted } from './runtime.js';
import { Versions } from './versions.js';
import { settle } from './write.js';

export type { Headers } from './arguments.js';
export type {
  CallOptions,
  Current,
  Edit,
  FencedS3Options,
  PutOptions,
  TokenOptions,
  UpdateOptions,
  Written,
} from './options.js';
export type { EtagForm, StoreCapabilities } from './probe.js';
export type { S3Calls } from './requests.js';
export type { Runtime } from './runtime.js';

/**
 * Objects of one bucket that remember the highest fencing token they have seen, and refuse lower ones.
 *
 * Every write is one conditional `PUT`: it replaces exactly the version whose token was checked, or it changes nothing.
 * The token is part of the bytes, so that no two writes have the same ETag. Where the server is seen not to enforce such
 * conditions, nothing is written to it.
 *
 * A write ends in one of three ways: it was applied; it was not (`StaleTokenError`, `ConflictError`, set-up errors); or
 * `OutcomeUnknownError`.
 */
export class FencedS3 {
  readonly #requests: Requests;
  readonly #runtime: Runtime;
  readonly #settings: Omit<Required<FencedS3Options>, 'client' | 'bucket' | 'requestTimeoutMs'>;
  readonly #versions = new Versions();
  #capabilities: Promise<StoreCapabilities> | undefined;

  /** @throws {InvalidArgumentError} where an option is missing or out of its range. */
  constructor(options: FencedS3Options, runtime: Runtime = systemRuntime) {
    const { client, bucket, requestTimeoutMs, ...settings } = withDefaults(options);
    this.#requests = new Requests(client, bucket, requestTimeoutMs);
    this.#settings = settings;
    this.#runtime = runtime;
  }

  /**
   * Writes a value, whatever is there, unless a higher token has been seen.
   *
   * This keeps a late writer out. It does not make a read-modify-write safe: two holders may have read the same value before
   * either wrote. For that use `update`, or `claim` (or a `get` with the token) before reading.
   *
   * @throws {StaleTokenError} where a higher token has been seen.
   * @throws {ConflictError} where others kept winning the race to write; nothing was written.
   * @throws {OutcomeUnknownError} where a reply was lost and reading back did not settle it.
   * @throws {UnsupportedByStoreError} where the stored body would be larger than the server takes.
   */
  async put(key: string, body: string | Uint8Array, options: PutOptions): Promise<Written> {
    const token = checkTokenOptions(options);
    checkKey(key);
    const headers = checkHeaders(options);
    const { signal } = options;
    const member = await this.#seal(bodyBytes(body));
    const { written } = await this.#write(key, token, this.#settings.attemptsMax, signal, {
      look: async () => {
        const known = this.#versions.get(key);
        // What is remembered may let a write pass, which the server then checks; it may not refuse one.
        return { base: known && known.token <= token ? known : await this.#head(key, signal) };
      },
      draft: async () => ({ state: 'live', member, headers }),
    });
    return written;
  }

  /**
   * Reads a value, has `edit` compute the next one, and writes that if nobody wrote in between; else starts again with what
   * they wrote. `edit` may so be called several times, and should do nothing but compute. What it throws is passed on, and
   * nothing is written.
   *
   * @throws {StaleTokenError} where a higher token has been seen; where it was seen at once, `edit` is not called.
   * @throws {ConflictError} where others wrote in between each time; nothing was written.
   * @throws {OutcomeUnknownError} where a reply was lost and reading back did not settle it.
   */
  async update(
    key: string,
    options: UpdateOptions,
    edit: (current: Current | null) => Edit | Promise<Edit>,
  ): Promise<Written> {
    const token = checkTokenOptions(options);
    checkKey(key);
    checkFunction('edit', edit);
    const { attemptsMax = this.#settings.attemptsMax, signal } = options;
    checkAttempts(attemptsMax);
    const { written } = await this.#write(key, token, attemptsMax, signal, {
      look: () => this.#find(key, signal),
      draft: async ({ object }) => {
        const current = currentOf(object);
        const edited = await edit(current);
        const { body, ...given } =
          typeof edited === 'string' || edited instanceof Uint8Array
            ? { body: edited }
            : { ...edited };
        const headers = checkHeaders(given);
        return {
          state: 'live',
          member: await this.#seal(bodyBytes(body)),
          headers: current === null ? headers : { ...object?.headers, ...headers },
        };
      },
    });
    return written;
  }

  /**
   * The value; null where there is none.
   *
   * With a token it is a fenced read: when it returns, lower tokens are refused, so that nothing older can still change what
   * was read. Without one it tells nothing about what late writers may yet do.
   *
   * @throws {StaleTokenError} with a token, where a higher one has been seen.
   * @throws {CorruptObjectError} where the object was not written by this library, or was damaged since.
   */
  async get(
    key: string,
    options: CallOptions & { readonly token?: TokenLike } = {},
  ): Promise<Current | null> {
    checkCall(options);
    const token = options.token === undefined ? undefined : parseToken(options.token);
    checkKey(key);
    if (token === undefined) return currentOf((await this.#find(key, options.signal)).object);
    for (;;) {
      const { written, found } = await this.#claim(key, token, options.signal, () =>
        this.#find(key, options.signal),
      );
      // Without a version the claim was built upon before it was settled: the value read is an older one. Read again.
      const { version } = written;
      if (version === null) continue;
      const current = currentOf(found.object);
      return current && { ...current, token, version, writeId: written.writeId };
    }
  }

  /**
   * Advances the ratchet without changing the value: from now on every lower token is refused. "Fence before you read."
   *
   * @throws {StaleTokenError} where a higher token has been seen.
   * @throws {ConflictError} {@link OutcomeUnknownError} as `put`.
   */
  async claim(key: string, options: TokenOptions): Promise<void> {
    const token = checkTokenOptions(options);
    checkKey(key);
    await this.#claim(key, token, options.signal, async () => {
      const base = await this.#head(key, options.signal);
      const keepsBody = base?.state === 'live' && base.token < token;
      return keepsBody ? this.#find(key, options.signal) : { base };
    });
  }

  /** The highest token seen for the key; 0n where nothing was ever written. */
  async highest(key: string, options: CallOptions = {}): Promise<bigint> {
    checkCall(options);
    checkKey(key);
    return (await this.#head(key, options.signal))?.token ?? 0n;
  }

  /**
   * What this server was seen to enforce. Runs once, before the first write, on objects of its own that it then removes.
   *
   * @throws {UnsafeStoreError} where the server does not enforce what the token check rests on. Nothing will be written to it.
   * @throws {StoreSetupError} where bucket, credentials or address are wrong.
   * @throws {StoreUnavailableError} where the server did not answer; the next call tries again.
   */
  async probe(options: CallOptions = {}): Promise<StoreCapabilities> {
    checkCall(options);
    options.signal?.throwIfAborted();
    // All callers share one run, so no caller's signal ends it.
    this.#capabilities ??= probe(this.#requests, this.#settings.probePrefix, this.#runtime).catch(
      (error: unknown) => {
        if (!(error instanceof UnsafeStoreError)) this.#capabilities = undefined;
        throw error;
      },
    );
    return unlessAborted(this.#capabilities, options.signal);
  }

  #claim(
    key: string,
    token: bigint,
    signal: AbortSignal | undefined,
    look: () => Promise<Found>,
  ): Promise<{ readonly written: Written; readonly found: Found }> {
    return this.#write(key, token, this.#settings.attemptsMax, signal, {
      look,
      draft: async ({ base, object }) => {
        if (base?.token === token) return { keep: base };
        if (object) return { ...object, state: object.stored.state };
        // Nothing to keep: a tombstone holds the ratchet.
        return { state: 'deleted', member: await this.#seal(new Uint8Array()), headers: {} };
      },
    });
  }

  /** The way of every write: look, check the token against what is there, write upon exactly that; again where it is lost. */
  async #write(
    key: string,
    token: bigint,
    attemptsMax: number,
    signal: AbortSignal | undefined,
    plan: Plan,
  ): Promise<{ readonly written: Written; readonly found: Found }> {
    const { etagForm } = await this.probe(signal && { signal });
    for (let attempt = 1; ; attempt++) {
      const found = await plan.look();
      const { base } = found;
      refuseStale(key, token, base);
      const draft = await plan.draft(found);
      if ('keep' in draft) return { written: draft.keep, found };
      const stamp = { token, writeId: this.#runtime.writeId() };
      const stored = { ...stamp, state: draft.state, before: historyUpon(base) };
      const write = {
        key,
        base,
        ifMatch: base && etagHeader(base.version, etagForm),
        stored,
        member: stamped(draft.member, stamp),
        headers: draft.headers,
      };
      const result = await settle(this.#requests, write, this.#runtime, signal);
      if (result.applied) {
        const { version } = result;
        this.#versions.set(key, version === null ? null : { ...stored, version });
        return { written: { ...stamp, version }, found };
      }
      this.#versions.set(key, null);
      refuseStale(key, token, result.seen);
      if (attempt >= attemptsMax) throw new ConflictError({ resource: key, attempts: attempt });
      await this.#runtime.sleep(backoffMs(this.#runtime, attempt), signal);
    }
  }

  async #seal(body: Uint8Array): Promise<Uint8Array> {
    const member = await seal(body, this.#settings.gzipLevel);
    if (member.length > this.#settings.storedBytesMax)
      throw new UnsupportedByStoreError(
        `the stored body is larger than one PUT may be bytes=${member.length} storedBytesMax=${this.#settings.storedBytesMax}`,
      );
    return member;
  }

  async #head(key: string, signal: AbortSignal | undefined): Promise<Stored | null> {
    const base = await this.#requests.head(key, signal);
    this.#versions.set(key, base);
    return base;
  }

  async #find(key: string, signal: AbortSignal | undefined): Promise<Found> {
    const object = await this.#requests.get(key, signal);
    const base = object?.stored ?? null;
    this.#versions.set(key, base);
    return { base, object };
  }
}

/**
 * Invariant: what is written upon `base` presents a token that is not lower than that of `base`; and as the condition names
 * the version of `base`, which no other write shares, the token checked here is the one that is replaced.
 */
function refuseStale(resource: string, presented: bigint, base: Stored | null): void {
  if (base !== null && base.token > presented)
    throw new StaleTokenError({ resource, presented, highest: base.token });
}
