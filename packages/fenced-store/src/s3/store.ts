import '../node-version.js';
import type { StoreCapabilities } from '../core/capabilities.js';
import { checkExpected, checkFunction, checkWholeNumber } from '../core/check.js';
import { InvalidArgumentError } from '../core/errors.js';
import { bodyBytes, checkHeaders, checkKey, checkPrefix, type S3Body } from './arguments.js';
import { encodingFor } from './codec/encode.js';
import { RequestSender } from './http/request-sender.js';
import { Requests } from './http/requests.js';
import { Uploads } from './http/uploads.js';
import {
  type CallOptions,
  type Current,
  type CurrentStream,
  checkAttempts,
  checkCall,
  checkRead,
  checkTokenOptions,
  type Edit,
  type FencedS3Options,
  type Listed,
  type ListOptions,
  type Progress,
  type PutOptions,
  type ReadOptions,
  type RepairOptions,
  type ReplaceOptions,
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
import { readEach } from './read/each.js';
import { Objects } from './read/objects.js';
import { Reader } from './read/reader.js';
import { type Runtime, systemRuntime } from './runtime.js';
import { BodySource } from './write/body-source.js';
import type { Found, WriteCall, WriteIntent } from './write/intent.js';
import { WriteIntents } from './write/intents.js';
import { UnsettledWrites } from './write/unsettled.js';
import { Writer } from './write/writer.js';

export type {
  EtagForm,
  StoreCapabilities,
  VersionIds,
  WriteEncryption,
} from '../core/capabilities.js';
export type { BodyStream, Headers, ObjectLock, S3Body } from './arguments.js';
export type { S3Calls } from './client.js';
export type * from './options.js';
export type { Runtime } from './runtime.js';

/** The largest body of S3: 5 TiB. */
const BODY_BYTES_MAX = 5 * 2 ** 40;

/**
 * Objects of one bucket that remember their highest fencing token, and refuse lower ones.
 *
 * Each write is one conditional request: it replaces exactly the version whose token was compared,
 * or it changes nothing. The token is part of the bytes, so no two writes have the same ETag. If
 * the server does not enforce such conditions, nothing is written to it.
 *
 * A write ends in one of three ways. It was applied. It was not applied (`StaleTokenError`,
 * `ConflictError`, set-up errors). Or its outcome is unknown (`OutcomeUnknownError`), and `settle`
 * decides as soon as the server answers.
 *
 * An object that existed before counts as written with the token 0n: it can be read, and any token
 * may write upon it. If an object loses the token that this process has seen, each call fails with
 * `RatchetLostError`, until `forget`.
 */
export class FencedS3 {
  readonly #settings: Settings;
  readonly #objects: Objects;
  readonly #reader: Reader;
  readonly #prober: Prober;
  readonly #intents: WriteIntents;
  readonly #unsettled: UnsettledWrites;
  readonly #writer: Writer;

  /** @throws {InvalidArgumentError} if an option is missing or out of its range. */
  constructor(options: FencedS3Options, runtime: Runtime = systemRuntime) {
    const { client, bucket, requestTimeoutMs, ...settings } = withDefaults(options);
    const requests = new Requests(
      new RequestSender(client, bucket, requestTimeoutMs, runtime),
      settings,
    );
    const uploads = new Uploads(requests);
    this.#settings = settings;
    this.#objects = new Objects(requests, runtime);
    this.#reader = new Reader(this.#objects, settings);
    const { probePrefix: prefix, certificateMaxAgeDays } = settings;
    this.#prober = new Prober({ requests, uploads, runtime, prefix }, certificateMaxAgeDays);
    this.#unsettled = new UnsettledWrites(this.#objects);
    const services = {
      objects: this.#objects,
      prober: this.#prober,
      uploads,
      unsettled: this.#unsettled,
      settings,
      runtime,
    };
    this.#intents = new WriteIntents(services);
    this.#writer = new Writer(services);
  }

  /**
   * Writes a value, unless a higher token has been seen.
   *
   * This keeps late writers out. It does not make a read-modify-write safe: two holders may have
   * read the same value before either wrote. Use `update`, or `claimAndGet` instead of reading.
   *
   * A stream is read as fast as it can be sent. `partsInFlight` + 2 parts are in memory. If the
   * write fails, the stream is ended. If the server cannot complete an upload under a condition, a
   * stream above `partBytes` goes through a temporary file, and is sent in one PUT.
   *
   * @throws {StaleTokenError} if a higher token has been seen.
   * @throws {VersionMismatchError} if the stored version is not `expected`.
   * @throws {ConflictError} if other writes were quicker each time, or once in the case of a
   *   stream. Nothing was written.
   * @throws {OutcomeUnknownError} if a reply was lost, and reading back did not decide.
   * @throws {UnsupportedByStoreError} if the stored body would be larger than the server takes.
   * @throws an error of the stream; nothing was written.
   */
  async put(key: string, body: S3Body, options: PutOptions): Promise<Written> {
    const call = this.#call('put', key, options);
    const headers = checkHeaders(options);
    const { onProgress, expected, bodyBytes: declaredBytes } = options;
    checkExpected(expected);
    if (declaredBytes !== undefined)
      checkWholeNumber('bodyBytes', declaredBytes, 0, BODY_BYTES_MAX);
    if (onProgress !== undefined) checkFunction('onProgress', onProgress);
    let progress: Progress = { bodyBytes: 0, storedBytes: 0 };
    const report = (next: Partial<Progress>): void => {
      progress = { ...progress, ...next };
      onProgress?.(progress);
    };
    const encoding = encodingFor(this.#settings, headers.contentType);
    const onRead = (bodyBytes: number): void => report({ bodyBytes });
    const onSent = (storedBytes: number): void => report({ storedBytes });
    await using source = new BodySource(body, encoding, call.signal, onRead, declaredBytes);
    await source.prepare(this.#settings.storedBytesMax);
    // Awaited here: the source is disposed of when this function ends.
    return await this.#write({ ...call, onSent }, this.#intents.put(source, headers, expected));
  }

  /**
   * Reads a value, calls `edit` to compute the next one, and writes that if no other write came
   * between. Otherwise it starts again with the new value, so `edit` may be called several times,
   * and should only compute. An error of `edit` is passed on, and nothing is written.
   *
   * @throws {StaleTokenError} if a higher token has been seen. If it was seen at once, `edit` is
   *   not called.
   * @throws {InvalidArgumentError} if `edit` returns no body, or a field that is no header.
   * @throws {ConflictError} if other writes were quicker each time. Nothing was written.
   * @throws {OutcomeUnknownError} if a reply was lost, and reading back did not decide.
   */
  async update(
    key: string,
    options: UpdateOptions,
    edit: (current: Current | null) => Edit | Promise<Edit>,
  ): Promise<Written> {
    const call = this.#call('update', key, options);
    checkFunction('edit', edit);
    const { attemptsMax = this.#settings.attemptsMax } = options;
    checkAttempts(attemptsMax);
    return this.#write({ ...call, attemptsMax }, this.#intents.update(edit));
  }

  /**
   * Returns the value; null if there is none. For several keys, returns a Map with all of them.
   * Late writers may still change it: `claimAndGet` keeps them out.
   *
   * @throws {CorruptObjectError} if the object was damaged.
   * @throws {UnsupportedByStoreError} if the body is larger than `bodyBytesMax`.
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
    for (const one of keys ?? [key as string]) checkKey(one, this.#settings);
    return keys ? readEach(keys, read) : read(key as string);
  }

  /**
   * Returns the value as a stream; null if there is none.
   *
   * @throws {CorruptObjectError} {@link RatchetLostError} as `get`.
   */
  async getStream(key: string, options: ReadOptions = {}): Promise<CurrentStream | null> {
    checkRead(options, 'claimAndGetStream');
    checkKey(key, this.#settings);
    return this.#reader.stream(key, undefined, options);
  }

  /**
   * Raises the ratchet without changing the value: from now on, lower tokens are refused. "Fence
   * before you read."
   *
   * It rewrites the object. The bytes, headers, metadata, tags, ACL, encryption and Object Lock
   * stay. ETag, version id and time change.
   *
   * @throws {StaleTokenError} if a higher token has been seen.
   * @throws {UnsupportedByStoreError} if something of the object cannot be kept. Nothing was
   *   written.
   * @throws {ConflictError} {@link OutcomeUnknownError} as `put`.
   */
  async claim(key: string, options: TokenOptions): Promise<void> {
    await this.#write(this.#call('claim', key, options), this.#intents.claim());
  }

  /**
   * Claims the key and reads its value in one step; null if there is none. When it returns, lower
   * tokens are refused, so no earlier holder can change the value.
   *
   * @throws {StaleTokenError} a higher token was written. If the reply to the claim was lost, the
   *   claim may have been applied before that.
   * @throws {ConflictError} {@link OutcomeUnknownError} as `claim`.
   * @throws {CorruptObjectError} {@link UnsupportedByStoreError} {@link RatchetLostError} as
   *   `claim` and `get`.
   */
  async claimAndGet(key: string, options: TokenOptions): Promise<Current | null> {
    const call = this.#call('claimAndGet', key, options);
    const { token } = call;
    for (;;) {
      const { written, found } = await this.#writer.write(call, this.#intents.claimAndGet());
      // Another write replaced the claim before its version was known: this value is outdated.
      const { version, writeId } = written;
      if (version === null) continue;
      const current = await currentOf(key, found.object);
      return current && { ...current, token, version, writeId };
    }
  }

  /** Claims and reads as `claimAndGet`, with the value as a stream. */
  async claimAndGetStream(key: string, options: TokenOptions): Promise<CurrentStream | null> {
    const call = this.#call('claim', key, options);
    await this.#write(call, this.#intents.claim());
    const { signal } = options;
    return this.#reader.stream(key, call.token, { ...(signal && { signal }) });
  }

  /**
   * Removes the value and keeps the token: from now on, lower tokens are refused, even if there was
   * no value.
   *
   * @throws {StaleTokenError} if a higher token has been seen.
   * @throws {ConflictError} {@link OutcomeUnknownError} as `put`.
   */
  async delete(key: string, options: ReplaceOptions): Promise<Written> {
    const call = this.#call('delete', key, options);
    checkExpected(options.expected);
    return this.#write(call, this.#intents.remove(options.expected));
  }

  /**
   * Returns everything about a value except its body; null if there is none. One request.
   *
   * @throws {CorruptObjectError} {@link RatchetLostError} as `get`, as far as the headers show it.
   */
  async stat(key: string, options: CallOptions = {}): Promise<Stat | null> {
    checkCall(options);
    checkKey(key, this.#settings);
    return this.#reader.stat(key, options.signal);
  }

  /** Returns the highest token of the key; 0n if there was no write. @throws {RatchetLostError} */
  async highest(key: string, options: CallOptions = {}): Promise<bigint> {
    checkCall(options);
    checkKey(key, this.#settings);
    return (await this.#objects.stamp(key, options.signal))?.token ?? 0n;
  }

  /**
   * Lists the keys that begin with `prefix` and have a value, with token and sizes, in the order of
   * their UTF-8 bytes. Costs one request a page and one a key. Values that are written during the
   * listing may be missing. An object that was copied, damaged or restored is listed with its
   * `damage`, and the listing goes on.
   */
  async *list(prefix = '', options: ListOptions = {}): AsyncGenerator<Listed, void, undefined> {
    checkCall(options);
    const { signal, pageSize = 100 } = options;
    checkWholeNumber('pageSize', pageSize, 1, 1_000);
    checkPrefix(prefix, this.#settings.prefix);
    yield* this.#reader.list(prefix, pageSize, signal);
  }

  /**
   * Decides the outcome of a write whose reply was lost, by the id in {@link OutcomeUnknownError}.
   *
   * A write of this process can be settled if the server answers and takes writes, and at most
   * forty writes have followed. If a copy of it may still be on its way, its own token is claimed,
   * and the copy is refused. A create stays `unknown` if another write is stored instead: this one
   * may have been applied before another program removed the object. For a write of another
   * process, only the object's history decides, which has the last forty writes.
   *
   * @throws {InvalidArgumentError} if the write is of another process, and no key is given.
   */
  async settle(writeId: string, options: SettleOptions = {}): Promise<Settlement> {
    checkCall(options);
    if (options.key !== undefined) checkKey(options.key, this.#settings);
    const key = options.key ?? this.#unsettled.keyOf(writeId);
    if (key === undefined)
      throw new InvalidArgumentError(
        `this process knows no unsettled write of that id: name its key writeId=${String(writeId).slice(0, 40)}`,
      );
    return this.#unsettled.settle(writeId, key, options.signal, async (token) => {
      const call = this.#call('claim', key, { ...options, token });
      return (await this.#write(call, this.#intents.claim(true))).writeId;
    });
  }

  /**
   * For an operator: repairs an object for which calls fail with {@link CorruptObjectError}. Its
   * value, or `body` instead, is written under the token, with its headers.
   *
   * The token should come from a new acquisition of the lock. It is refused if the metadata, the
   * stored bytes or this process show a higher one. If the damage removed all of these, only the
   * caller can know.
   *
   * @throws {StaleTokenError} if a higher token can still be read.
   * @throws {CorruptObjectError} if the body cannot be read and none is given, or if the object was
   *   written under another key.
   * @throws {InvalidArgumentError} if the object is not damaged. Nothing was written.
   * @throws {ConflictError} {@link OutcomeUnknownError} as `put`.
   */
  async repair(key: string, options: RepairOptions): Promise<Written> {
    const call = this.#call('repair', key, options);
    const { body } = options;
    const bytes = body === undefined ? undefined : bodyBytes(body);
    return this.#write(call, this.#intents.repair(bytes));
  }

  /**
   * Forgets what this process saw of a key, to go on from the stored object after a {@link
   * RatchetLostError}.
   */
  forget(key: string): void {
    checkKey(key, this.#settings);
    this.#objects.lastSeen.forget(key);
  }

  /**
   * Returns the capabilities of this server. A probe runs once before the first write, on objects
   * of its own that it then removes. A certificate of another process in the bucket replaces it. If
   * a probe of any process failed, the server counts as unsafe from then on.
   *
   * @param options with `renew`, the server is asked again, whatever is known, and also about
   *   multipart uploads. Only that ends an earlier failure
   * @throws {UnsafeStoreError} if the server does not enforce what the token check needs. Nothing
   *   will be written to it.
   * @throws {StoreSetupError} if bucket, credentials or address are wrong.
   * @throws {StoreUnavailableError} if the server did not answer; the next call tries again.
   */
  async probe(
    options: CallOptions & { readonly renew?: boolean } = {},
  ): Promise<StoreCapabilities> {
    checkCall(options);
    return this.#prober.capabilities(options);
  }

  /** Checks what all calls that write have in common. */
  #call(operation: WriteCall['operation'], key: string, options: TokenOptions): WriteCall {
    const token = checkTokenOptions(options);
    checkKey(key, this.#settings);
    const { signal, onWriteId } = options;
    return { operation, key, token, signal, onWriteId };
  }

  async #write<Read extends Found>(call: WriteCall, intent: WriteIntent<Read>): Promise<Written> {
    const { token, writeId, version } = (await this.#writer.write(call, intent)).written;
    return { token, writeId, version };
  }
}
