import type { Readable } from 'node:stream';
import {
  checkFunction,
  checkNoToken,
  checkObject,
  checkSignal,
  checkWholeNumber,
} from '../core/check.js';
import { InvalidArgumentError } from '../core/errors.js';
import { shown } from '../core/shown.js';
import type { Layout } from '../core/stored.js';
import { parseToken, type TokenLike } from '../core/token.js';
import { type ByteRange, checkKeyText, checkRange, type Headers } from './arguments.js';
import type { S3Calls } from './client.js';

export type { Settlement } from '../core/errors.js';
export type { ByteRange } from './arguments.js';

/** What S3 takes in one PUT: 5 GiB. */
const STORED_BYTES_MAX = 5 * 2 ** 30;
/** The least that S3 takes for a part that is not the last. */
const PART_BYTES_MIN = 5 * 2 ** 20;
const PARTS_IN_FLIGHT_MAX = 64;
/** A gzip trailer counts no further. */
const BODY_BYTES_MAX = 2 ** 32 - 1;
const ATTEMPTS_MAX = 1_000;
const CERTIFICATE_DAYS_MAX = 365;

export interface FencedS3Options {
  /** An `S3Client` of `@aws-sdk/client-s3`. It stays the caller's: nothing of it is changed, and it is not closed. */
  readonly client: S3Calls;
  readonly bucket: string;
  /** What the keys of all objects of this store begin with; callers leave it out. @default '' */
  readonly prefix?: string;
  /**
   * Milliseconds after which a request fails if nothing of it moves, from 1 to 600 000: no piece of its body is taken, and no
   * answer comes; 1 s more for each MiB of the body. @default 10_000
   */
  readonly requestTimeoutMs?: number;
  /** How often a write that lost a race to others is tried, from 1 to 1000. @default 20 */
  readonly attemptsMax?: number;
  /**
   * From 0, stored without compression, to 9. What does not shrink is stored as it is whatever the level, and so is what fits
   * into a network packet (1,400 bytes), or is compressed already by its content type. @default 1
   */
  readonly gzipLevel?: number;
  /**
   * `plain` stores the caller's bytes as they are, with the token in the metadata only. That is refused where two writes of the
   * same bytes get the same ETag, as with nearly all servers; encryption by KMS and directory buckets of AWS are the exceptions.
   * @default 'gzip'
   */
  readonly layout?: Layout;
  /**
   * A stream that is stored as no more than this is sent in one PUT from memory; a larger one in parts of this size, at most
   * 10 000 of them. From 5 MiB to 5 GiB. @default 8 MiB
   */
  readonly partBytes?: number;
  /** How many parts of a stream are sent at once, from 1 to 64. So many, and two more, are in memory. @default 4 */
  readonly partsInFlight?: number;
  /** The largest stored (compressed) body that is sent in one PUT. @default 5 GiB, what S3 takes */
  readonly storedBytesMax?: number;
  /**
   * The largest body in bytes that `get` and `update` read into memory, from 1 to 4 GiB - 1; `getStream` reads larger ones.
   * @default 268_435_456 (256 MiB)
   */
  readonly bodyBytesMax?: number;
  /**
   * How the server encrypts every object that this store writes, also on a claim. Without it, as the bucket says, and a claim keeps
   * what the object has. There is no option for keys of the customer (SSE-C).
   */
  readonly encryption?: Encryption;
  /** The account number of the bucket's owner: a server that knows such numbers refuses all requests to a bucket of another. */
  readonly expectedBucketOwner?: string;
  /** Agrees to pay for the requests to somebody else's bucket. @default false */
  readonly requesterPays?: boolean;
  /** What the keys of the probe's own objects begin with, behind the prefix. @default '.fenced-probe/' */
  readonly probePrefix?: string;
  /** How long the verdict of a probe is believed that another process left in the bucket, from 0 to 365. @default 7 */
  readonly certificateMaxAgeDays?: number;
}

/** Encryption by the server, with its own keys (SSE-S3) or those of a key service (SSE-KMS). */
export type Encryption =
  | { readonly algorithm: 'AES256' }
  | {
      readonly algorithm: 'aws:kms' | 'aws:kms:dsse';
      /** @default the service's key for S3 */
      readonly kmsKeyId?: string;
    };

type WithoutDefault = 'encryption' | 'expectedBucketOwner';
type Complete = Required<Omit<FencedS3Options, WithoutDefault>> &
  Pick<FencedS3Options, WithoutDefault>;

/** What a store goes by. */
export type Settings = Omit<Complete, 'client' | 'bucket' | 'requestTimeoutMs'>;

/** For every call: ends waiting and sending. What was already sent is still settled. */
export interface CallOptions {
  readonly signal?: AbortSignal;
}

/** For every call that may write. */
export interface SendOptions extends CallOptions {
  /**
   * Called with the id of the write right before it is sent, each time that it is. If the call is given up after that, `settle` tells
   * what became of the write; without a call nothing was sent. It must not throw.
   */
  readonly onWriteId?: (writeId: string) => void;
}

export interface ReadOptions extends CallOptions {
  /**
   * Reads a part of the body. What is stored compressed is read and decompressed from its beginning, and what comes before the
   * range is dropped piece by piece. Behind the end of a body there are no bytes, which is no error. A range with an `end` is not
   * checked against the checksum of the body.
   */
  readonly range?: ByteRange;
  /** A read writes nothing: `claimAndGet` and `claimAndGetStream` take a token. */
  readonly token?: never;
}

export interface TokenOptions extends SendOptions {
  /** The fencing token of the lock that the caller holds. */
  readonly token: TokenLike;
}

export interface ReplaceOptions extends TokenOptions {
  /** The version that the write may replace; null: there may be no value. Without it, whatever is there is replaced. */
  readonly expected?: string | null;
}

export interface PutOptions extends ReplaceOptions, Headers {
  /**
   * How many bytes a stream has, where that is known: readers then know it before they have read them. A stream that has
   * another number is refused.
   */
  readonly bodyBytes?: number;

  /** Called as a body is read and sent. An error that it throws ends the call, unless the write was applied by then. */
  readonly onProgress?: (progress: Progress) => void;
}

/** How far a body has come. */
export interface Progress {
  /** How many of the caller's bytes have been read. */
  readonly bodyBytes: number;
  /** How many stored (compressed) bytes the server has. */
  readonly storedBytes: number;
}

export interface RepairOptions extends TokenOptions {
  /** In place of the body that is stored, if that is damaged, too. */
  readonly body?: string | Uint8Array;
}

export interface UpdateOptions extends TokenOptions {
  /** Overrides the store's `attemptsMax` for this call. */
  readonly attemptsMax?: number;
}

/** A write that was applied. */
export interface Written {
  readonly token: bigint;
  /** Opaque; another one for every write. Null where others had replaced the write before its version could be learnt. */
  readonly version: string | null;
  /** Names this write for ever: 32 hexadecimal digits. */
  readonly writeId: string;
}

/** The headers that an object was written with. */
export interface StoredHeaders {
  readonly metadata: Readonly<Record<string, string>>;
  readonly contentType: string | undefined;
  readonly cacheControl: string | undefined;
  readonly contentDisposition: string | undefined;
  readonly contentLanguage: string | undefined;
  readonly storageClass: string | undefined;
}

/** What an object was written by. */
export interface Origin {
  /** 0n for an object that was there before this library, or that something else wrote. */
  readonly token: bigint;
  readonly version: string;
  readonly writeId: string;
}

/** A value with the token it was written with. */
export interface Current extends Origin, StoredHeaders {
  readonly body: Uint8Array;
}

/** A value as it comes. */
export interface CurrentStream extends Origin, StoredHeaders {
  /** How many bytes the whole body has; undefined where that is known only when they have been read. */
  readonly bodyBytes: number | undefined;
  /**
   * The bytes. They are known to be whole and undamaged when the stream has ended without an error; until then none of them
   * should be acted upon. Errors: {@link CorruptObjectError}, {@link StoreUnavailableError}, the signal's reason.
   */
  readonly body: Readable;
}

/** How large a value is, and since when it is there. */
export interface Sizes {
  /** How many bytes the body has; undefined where that is known only when it has been read. */
  readonly bodyBytes: number | undefined;
  /** How many bytes are stored and paid for. */
  readonly storedBytes: number | undefined;
  /** In milliseconds since 1970, by the clock of the server; a claim counts as a write. */
  readonly lastModifiedMs: number | undefined;
}

/** A value without its body. */
export interface Stat extends Origin, StoredHeaders, Sizes {}

/** An object of a listing. */
export interface Listed extends Origin, Sizes {
  readonly key: string;
}

export interface ListOptions extends CallOptions {
  /** How many objects are asked about at once, from 1 to 1000. @default 100 */
  readonly pageSize?: number;
}

export interface SettleOptions extends CallOptions {
  /** The key that was written; needed only for a write of another process. */
  readonly key?: string;
}

/** What `update` is to write: a body, or a body with headers. Headers that are not given stay as they were. */
export type Edit = string | Uint8Array | ({ readonly body: string | Uint8Array } & Headers);

/** @throws {InvalidArgumentError} where an option is missing or out of its range. */
export function withDefaults(options: FencedS3Options): Complete {
  checkObject('options', options);
  const { client, bucket, prefix = '', requestTimeoutMs = 10_000, attemptsMax = 20 } = options;
  const { gzipLevel = 1, layout = 'gzip', storedBytesMax = STORED_BYTES_MAX } = options;
  const { partBytes = 8 * 2 ** 20, partsInFlight = 4, bodyBytesMax = 256 * 2 ** 20 } = options;
  const { probePrefix = '.fenced-probe/', certificateMaxAgeDays = 7 } = options;
  const { encryption, expectedBucketOwner, requesterPays = false } = options;
  if (typeof client?.send !== 'function')
    throw new InvalidArgumentError('client must be an S3Client of @aws-sdk/client-s3');
  if (typeof bucket !== 'string' || bucket === '')
    throw new InvalidArgumentError("bucket must be the bucket's name, a non-empty string");
  if (layout !== 'gzip' && layout !== 'plain')
    throw new InvalidArgumentError(`layout must be 'gzip' or 'plain' value=${shown(layout)}`);
  if (prefix !== '') checkKeyText(prefix, '');
  checkKeyText(probePrefix, prefix);
  checkWholeNumber('requestTimeoutMs', requestTimeoutMs, 1, 600_000);
  checkAttempts(attemptsMax);
  checkWholeNumber('gzipLevel', gzipLevel, 0, 9);
  checkWholeNumber('partBytes', partBytes, PART_BYTES_MIN, STORED_BYTES_MAX);
  checkWholeNumber('partsInFlight', partsInFlight, 1, PARTS_IN_FLIGHT_MAX);
  checkWholeNumber('storedBytesMax', storedBytesMax, 1, STORED_BYTES_MAX);
  checkWholeNumber('bodyBytesMax', bodyBytesMax, 1, BODY_BYTES_MAX);
  checkWholeNumber('certificateMaxAgeDays', certificateMaxAgeDays, 0, CERTIFICATE_DAYS_MAX);
  if (encryption !== undefined) checkEncryption(encryption);
  if (expectedBucketOwner !== undefined && !isPrintable(expectedBucketOwner))
    throw new InvalidArgumentError(
      'expectedBucketOwner must be the number of an account, as a string',
    );
  if (typeof requesterPays !== 'boolean')
    throw new InvalidArgumentError(
      `requesterPays must be true or false value=${shown(requesterPays)}`,
    );
  return {
    ...(encryption && { encryption: { ...encryption } }),
    ...(expectedBucketOwner !== undefined && { expectedBucketOwner }),
    ...{ requesterPays },
    ...{ client, bucket, prefix, requestTimeoutMs, attemptsMax, gzipLevel, layout, partBytes },
    ...{ partsInFlight, storedBytesMax, bodyBytesMax, probePrefix, certificateMaxAgeDays },
  };
}

function isPrintable(value: unknown): boolean {
  return typeof value === 'string' && /^[!-~]+$/.test(value);
}

function checkEncryption(encryption: Encryption): void {
  checkObject('encryption', encryption);
  const { algorithm, kmsKeyId }: { algorithm: unknown; kmsKeyId?: unknown } = encryption;
  if (algorithm !== 'AES256' && algorithm !== 'aws:kms' && algorithm !== 'aws:kms:dsse')
    throw new InvalidArgumentError(
      `encryption.algorithm must be 'AES256', 'aws:kms' or 'aws:kms:dsse' value=${shown(algorithm)}`,
    );
  if (kmsKeyId === undefined) return;
  if (algorithm === 'AES256' || !isPrintable(kmsKeyId))
    throw new InvalidArgumentError(
      `encryption.kmsKeyId must be the id of a key, with aws:kms or aws:kms:dsse algorithm=${algorithm}`,
    );
}

/** @throws {InvalidArgumentError} */
export function checkCall(options: CallOptions): void {
  checkObject('options', options);
  checkSignal('signal', options.signal);
}

/** @param claiming the call that takes a token @throws {InvalidArgumentError} */
export function checkRead(options: ReadOptions, claiming: string): void {
  checkCall(options);
  checkNoToken(options, claiming);
  checkRange(options.range);
}

/** @throws {InvalidArgumentError} */
export function checkSend(options: SendOptions): void {
  checkCall(options);
  if (options.onWriteId !== undefined) checkFunction('onWriteId', options.onWriteId);
}

/** @throws {InvalidArgumentError} */
export function checkExpected(expected: string | null | undefined): void {
  if (expected !== undefined && expected !== null && typeof expected !== 'string')
    throw new InvalidArgumentError(`expected must be a version or null value=${shown(expected)}`);
}

/** The token that a call presents. @throws {InvalidArgumentError} @throws {InvalidTokenError} */
export function checkTokenOptions(options: TokenOptions): bigint {
  checkSend(options);
  return parseToken(options.token);
}

export function checkAttempts(attemptsMax: number): void {
  checkWholeNumber('attemptsMax', attemptsMax, 1, ATTEMPTS_MAX);
}

export function checkPageSize(pageSize: number): void {
  checkWholeNumber('pageSize', pageSize, 1, 1_000);
}
