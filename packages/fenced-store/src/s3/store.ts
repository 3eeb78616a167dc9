import '../node-version.js';
import type { StoreCapabilities } from '../core/capabilities.js';
import { checkFunction, checkWholeNumber } from '../core/check.js';
import { InvalidArgumentError } from '../core/errors.js';
import { bodyBytes, checkHeaders, checkKey, checkPrefix, type S3Body } from './arguments.js';
import { formFor } from './codec/seal.js';
import { Requests } from './http/requests.js';
import { Sender } from './http/sender.js';
import { Uploads } from './http/uploads.js';
import {
  type CallOptions,
  type Current,
  type CurrentStream,
  checkAttempts,
  checkCall,
  checkExpected,
  checkPageSize,
  checkRead,
  checkTokenOptions,
  type Edit,
  type FencedS3Options,
  type Listed,
  type ListOptions,
  type PutOptions,
  type ReadOptions,
  type RepairOptions,
  type ReplaceOptions,
  type SendOptions,
  type Settings,
  type Settlement,
  type SettleOptions,
  type Stat,
  type TokenOptions,
  type UpdateOptions,
  type Written,
  withDefaults,
} from './options.js';
import { Prober } from './probe/prober.js';
import { currentOf } from './read/current.js';
import { Objects } from './read/objects.js';
import { Reader } from './read/reader.js';
import { readEach } from './read/several.js';
import { type Runtime, systemRuntime } from './runtime.js';
import { WriteIntents } from './write/intents.js';
import { Source } from './write/payload.js';
import { UnsettledWrites } from './write/unsettled.js';
import { Writer } from './write/writer.js';

export type { EtagForm, StoreCapabilities, VersionIds } from '../core/capabilities.js';
export type { BodyStream, Headers, ObjectLock, S3Body } from './arguments.js';
export type { S3Calls } from './client.js';
export type * from './options.js';
export type { Runtime } from './runtime.js';

/** What S3 takes: 5 TiB. */
const BODY_BYTES_MAX = 5 * 2 ** 40;

/**
 * Objects of one bucket that remember the highest fencing token they have seen, and refuse lower ones.
 *
 * Every write is one conditional request: it replaces exactly the version whose token was checked, or it changes nothing.
 * The token is part of the bytes, so that no two writes have the same ETag. Where the server is seen not to enforce such
 * conditions, nothing is written to it.
 *
 * A write ends in one of three ways: it was applied; it was not (`StaleTokenError`, `ConflictError`, set-up errors); or
 * `OutcomeUnknownError`, which `settle` clears up as soon as the server answers.
 *
 * An object that was there before counts as written with the token 0n: it can be read, and any token may write upon it.
 * Where an object loses the token that this process has seen, every call says so by `RatchetLostError`, until `forget`.
 */
export class FencedS3 {
  readonly #settings: Settings;
  readonly #objects: Objects;
  readonly #reader: Reader;
  readonly #prober: Prober;
  readonly #intents: WriteIntents;
  readonly #unsettled: UnsettledWrites;
  readonly #writer: Writer;

  /** @throws {InvalidArgumentError} where an option is missing or out of its range. */
  constructor(options: FencedS3Options, runtime: Runtime = systemRuntime) {
    const { client, bucket, requestTimeoutMs, ...settings } = withDefaults(options);
    const sender = new Sender(client, bucket, requestTimeoutMs, runtime);
    this.#settings = settings;
    const requests = new Requests(sender, settings);
    const uploads = new Uploads(requests);
    const objects = new Objects(requests);
    const prober = new Prober(requests, uploads, runtime, settings);
    const unsettled = new UnsettledWrites(objects);
    this.#objects = objects;
    this.#reader = new Reader(objects, settings);
    this.#prober = prober;
    this.#intents = new WriteIntents(objects, prober, settings, runtime);
    this.#unsettled = unsettled;
    this.#writer = new Writer({ objects, prober, uploads, unsettled, settings, runtime });
  }

  /**
   * Writes a value, whatever is there, unless a higher token has been seen.
   *
   * This keeps a late writer out. It does not make a read-modify-write safe: two holders may have read the same value before
   * either wrote. For that use `update`, or `claimAndGet` instead of reading.
   *
   * A stream is read as fast as it can be sent, and never held in memory as a whole: `partsInFlight` + 2 parts are. It is
   * ended where the write fails. Where the server cannot complete a multipart upload under a condition, a stream above
   * `partBytes` is kept in a temporary file and sent in one PUT.
   *
   * @throws {StaleTokenError} where a higher token has been seen.
   * @throws {VersionMismatchError} where another version is there than `expected`.
   * @throws {ConflictError} where others kept winning the race to write; nothing was written. For a stream once is enough.
   * @throws {OutcomeUnknownError} where a reply was lost and reading back did not settle it.
   * @throws {UnsupportedByStoreError} where the stored body would be larger than the server takes.
   * @throws what the stream throws; nothing was written.
   */
  async put(key: string, body: S3Body, options: PutOptions): Promise<Written> {
    const token = checkTokenOptions(options);
    this.#checkKey(key);
    const headers = checkHeaders(options);
    const { signal, onWriteId, onProgress, expected, bodyBytes: declaredBytes } = options;
    checkExpected(expected);
    if (declaredBytes !== undefined)
      checkWholeNumber('bodyBytes', declaredBytes, 0, BODY_BYTES_MAX);
    if (onProgress !== undefined) checkFunction('onProgress', onProgress);
    const progress = { bodyBytes: 0, storedBytes: 0 };
    const form = formFor(this.#settings, headers.contentType);
    const onRead = (bodyBytes: number): void => {
      progress.bodyBytes = bodyBytes;
      onProgress?.({ ...progress });
    };
    await using source = new Source(body, form, signal, onRead, declaredBytes);
    await source.prepare(this.#settings.storedBytesMax);
    const onSent = (storedBytes: number): void => {
      progress.storedBytes = storedBytes;
      onProgress?.({ ...progress });
    };
    const { written } = await this.#writer.write(
      { operation: 'put', key, token, signal, onWriteId, onSent },
      this.#intents.put(source, headers, expected),
    );
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
    this.#checkKey(key);
    checkFunction('edit', edit);
    const { attemptsMax = this.#settings.attemptsMax, signal, onWriteId } = options;
    checkAttempts(attemptsMax);
    const { written } = await this.#writer.write(
      { operation: 'update', key, token, signal, onWriteId, attemptsMax },
      this.#intents.update(edit),
    );
    return written;
  }

  /**
   * The value; null if there is none. Of several keys, a Map of them all. Late writers may still change it: `claimAndGet` keeps
   * them out.
   *
   * @throws {CorruptObjectError} where the object was damaged.
   * @throws {UnsupportedByStoreError} where the body is larger than `bodyBytesMax`.
   * @throws {RatchetLostError}
   */
  async get(key: string, options?: ReadOptions): Promise<Current | null>;
  async get(keys: readonly string[], options?: ReadOptions): Promise<Map<string, Current | null>>;
  async get(
    key: string | readonly string[],
    options: ReadOptions = {},
  ): Promise<Current | null | Map<string, Current | null>> {
    checkRead(options, 'claimAndGet');
    const read = (one: string): Promise<Current | null> => this.#reader.current(one, options);
    const keys: readonly string[] | null = Array.isArray(key) ? key : null;
    for (const one of keys ?? [key as string]) this.#checkKey(one);
    return keys ? readEach(keys, read) : read(key as string);
  }

  /**
   * The value as a stream; null if there is none.
   *
   * @throws {CorruptObjectError} {@link RatchetLostError} as `get`.
   */
  async getStream(key: string, options: ReadOptions = {}): Promise<CurrentStream | null> {
    checkRead(options, 'claimAndGetStream');
    this.#checkKey(key);
    return this.#reader.stream(key, undefined, options);
  }

  /**
   * Advances the ratchet without changing the value: from now on every lower token is refused. "Fence before you read."
   *
   * It rewrites the object: the bytes, headers, metadata, tags, ACL, encryption and Object Lock stay. ETag, version id and time change.
   *
   * @throws {StaleTokenError} where a higher token has been seen.
   * @throws {UnsupportedByStoreError} if something of the object cannot be kept; nothing was written.
   * @throws {ConflictError} {@link OutcomeUnknownError} as `put`.
   */
  async claim(key: string, options: TokenOptions): Promise<void> {
    const token = checkTokenOptions(options);
    this.#checkKey(key);
    await this.#claim(key, token, options);
  }

  /**
   * Claims the key and reads it in one step; null if there is no value. When it returns, lower tokens are refused, so that nothing older can
   * still change the value.
   *
   * @throws {StaleTokenError} {@link ConflictError} {@link OutcomeUnknownError} as `claim`.
   * @throws {CorruptObjectError} {@link UnsupportedByStoreError} {@link RatchetLostError} as `claim` and `get`.
   */
  async claimAndGet(key: string, options: TokenOptions): Promise<Current | null> {
    const token = checkTokenOptions(options);
    this.#checkKey(key);
    const { signal, onWriteId } = options;
    for (;;) {
      const { written, found } = await this.#writer.write(
        { operation: 'claimAndGet', key, token, signal, onWriteId },
        this.#intents.claimAndGet(),
      );
      // Another write upon the claim came before the version was learnt: this value is outdated.
      const { version, writeId } = written;
      if (version === null) continue;
      const current = await currentOf(key, found.object);
      return current && { ...current, token, version, writeId };
    }
  }

  /** As `claimAndGet`, with the value as a stream. */
  async claimAndGetStream(key: string, options: TokenOptions): Promise<CurrentStream | null> {
    const token = checkTokenOptions(options);
    this.#checkKey(key);
    await this.#claim(key, token, options);
    const { signal } = options;
    return this.#reader.stream(key, token, { ...(signal && { signal }) });
  }

  /**
   * Removes the value and keeps the token: lower tokens are refused from now on, also where there was nothing.
   *
   * @throws {StaleTokenError} where a higher token has been seen.
   * @throws {ConflictError} {@link OutcomeUnknownError} as `put`.
   */
  async delete(key: string, options: ReplaceOptions): Promise<Written> {
    const token = checkTokenOptions(options);
    this.#checkKey(key);
    const { signal, onWriteId, expected } = options;
    checkExpected(expected);
    const { written } = await this.#writer.write(
      { operation: 'delete', key, token, signal, onWriteId },
      this.#intents.remove(expected),
    );
    return written;
  }

  /**
   * All that is known of a value without reading its body; null where there is none. One request.
   *
   * @throws {CorruptObjectError} {@link RatchetLostError} as `get`, as far as the headers tell.
   */
  async stat(key: string, options: CallOptions = {}): Promise<Stat | null> {
    checkCall(options);
    this.#checkKey(key);
    return this.#reader.stat(key, options.signal);
  }

  /** The highest token seen for the key; 0n where nothing was ever written. @throws {RatchetLostError} */
  async highest(key: string, options: CallOptions = {}): Promise<bigint> {
    checkCall(options);
    this.#checkKey(key);
    return (await this.#objects.head(key, options.signal))?.token ?? 0n;
  }

  /**
   * The keys that begin with `prefix` and have a value, with token and sizes of each, in the order of their UTF-8 bytes. Costs one
   * request a page and one a key. What is written meanwhile may or may not be among them.
   */
  async *list(prefix = '', options: ListOptions = {}): AsyncGenerator<Listed, void, undefined> {
    checkCall(options);
    const { signal, pageSize = 100 } = options;
    checkPageSize(pageSize);
    checkPrefix(prefix, this.#settings.prefix);
    yield* this.#reader.list(prefix, pageSize, signal);
  }

  /**
   * What became of a write whose outcome was unknown, by the id that {@link OutcomeUnknownError} names.
   *
   * A write of this process is settled as long as the server answers and takes writes, and no more than forty others have
   * followed: where a copy of it might still be on its way, its own token is claimed, and what arrives later is refused. Of a
   * write of another process only the storage's history tells, which goes back as far.
   *
   * @throws {InvalidArgumentError} where the write is not one of this process, and no key is given.
   */
  async settle(writeId: string, options: SettleOptions = {}): Promise<Settlement> {
    checkCall(options);
    if (options.key !== undefined) this.#checkKey(options.key);
    const known = this.#unsettled.keyOf(writeId);
    const key = options.key ?? known;
    if (key === undefined)
      throw new InvalidArgumentError(
        `this process knows no unsettled write of that id: name its key writeId=${String(writeId).slice(0, 40)}`,
      );
    const { signal } = options;
    return this.#unsettled.settle(writeId, key, signal, (token) =>
      this.#claim(key, token, options, true),
    );
  }

  /**
   * For an operator: makes an object usable again that is damaged, so that calls answer {@link CorruptObjectError}. Its value is
   * written anew under the token, with its headers; or `body` in its place.
   *
   * The token should be of a new acquisition of the lock. One that is lower than any which the metadata, the stored bytes or this
   * process still show is refused; if the damage has wiped out all of these, nobody but the caller can know.
   *
   * @throws {StaleTokenError} where a higher token can still be read.
   * @throws {CorruptObjectError} where the body cannot be read any more and none is given; where the object is of another key.
   * @throws {InvalidArgumentError} where the object is not damaged. Nothing was written.
   * @throws {ConflictError} {@link OutcomeUnknownError} as `put`.
   */
  async repair(key: string, options: RepairOptions): Promise<Written> {
    const token = checkTokenOptions(options);
    this.#checkKey(key);
    const { signal, onWriteId, body } = options;
    const { written } = await this.#writer.write(
      { operation: 'repair', key, token, signal, onWriteId },
      this.#intents.repair(body === undefined ? undefined : bodyBytes(body)),
    );
    return written;
  }

  /** Drops what this process remembers of a key, so that after a {@link RatchetLostError} it goes on from what is there. */
  forget(key: string): void {
    this.#checkKey(key);
    this.#objects.known.forget(key);
  }

  /**
   * What this server was seen to enforce. Runs once, before the first write, on objects of its own that it then removes; or
   * is taken from the certificate that another process left in the bucket.
   *
   * @param options with `renew` the server is asked again, whatever is known
   * @throws {UnsafeStoreError} where the server does not enforce what the token check rests on. Nothing will be written to it.
   * @throws {StoreSetupError} where bucket, credentials or address are wrong.
   * @throws {StoreUnavailableError} where the server did not answer; the next call tries again.
   */
  async probe(
    options: CallOptions & { readonly renew?: boolean } = {},
  ): Promise<StoreCapabilities> {
    checkCall(options);
    return this.#prober.capabilities(options);
  }

  async #claim(
    key: string,
    token: bigint,
    { signal, onWriteId }: SendOptions,
    anew = false,
  ): Promise<void> {
    const call = { operation: 'claim', key, token, signal, onWriteId } as const;
    await this.#writer.write(call, this.#intents.claim(anew));
  }

  #checkKey(key: string): void {
    checkKey(key, this.#settings);
  }
}
