import type { Readable } from 'node:stream';
import {
  checkFunction,
  checkNoToken,
  checkObject,
  checkOptions,
  checkSignal,
  checkWholeNumber,
} from '../core/check.js';
import {
  type CorruptObjectError,
  InvalidArgumentError,
  type RatchetLostError,
} from '../core/errors.js';
import { shown } from '../core/shown.js';
import type { Layout } from '../core/stored.js';
import { parseToken, type TokenLike } from '../core/token.js';
import { type ByteRange, checkKeyText, checkRange, type Headers } from './arguments.js';
import type { S3Calls } from './client.js';

export type { Settlement } from '../core/errors.js';
export type { ByteRange } from './arguments.js';
export type { Edit } from './edit.js';

/** The largest PUT of S3: 5 GiB. */
const STORED_BYTES_MAX = 5 * 2 ** 30;
/** The smallest part that S3 takes, except for the last. */
const PART_BYTES_MIN = 5 * 2 ** 20;
const PARTS_IN_FLIGHT_MAX = 64;
/** The largest length that a gzip trailer can hold. */
const BODY_BYTES_MAX = 2 ** 32 - 1;
const ATTEMPTS_MAX = 1_000;
const CERTIFICATE_DAYS_MAX = 365;

export interface FencedS3Options {
  /** An `S3Client` of `@aws-sdk/client-s3`. It is neither changed nor closed. */
  readonly client: S3Calls;
  readonly bucket: string;
  /** The beginning of all keys of this store. Callers leave it out. @default '' */
  readonly prefix?: string;
  /**
   * Idle limit of a request in milliseconds, from 1 to 600 000, plus 1 s for each MiB of its body.
   * A request fails if no piece of its body is taken and no reply comes in that time.
   * @default 10_000
   */
  readonly requestTimeoutMs?: number;
  /** Number of attempts of a write that loses races, from 1 to 1000. @default 20 */
  readonly attemptsMax?: number;
  /**
   * Compression level from 0 (none) to 9. Not compressed at any level: data that does not shrink,
   * bodies of up to 1,400 bytes (a network packet), and content types of compressed data.
   * @default 1
   */
  readonly gzipLevel?: number;
  /**
   * `plain` stores the caller's bytes as they are, with the token in the metadata only. It needs a
   * server that gives two writes of the same bytes different ETags. Of the known ones, only AWS
   * does so, with encryption by KMS and in directory buckets. @default 'gzip'
   */
  readonly layout?: Layout;
  /**
   * Size of the parts of an upload in bytes, from 5 MiB to 5 GiB. A stored stream up to this size
   * is sent in one PUT from memory. An upload has at most 10 000 parts. @default 8 MiB
   */
  readonly partBytes?: number;
  /** Number of parts that are sent at once, from 1 to 64. Two more are in memory. @default 4 */
  readonly partsInFlight?: number;
  /** The largest stored (compressed) body in one PUT, in bytes. @default 5 GiB, as S3 */
  readonly storedBytesMax?: number;
  /**
   * The largest body in bytes that `get` and `update` read into memory, from 1 to 4 GiB - 1.
   * `getStream` reads larger ones. @default 268_435_456 (256 MiB)
   */
  readonly bodyBytesMax?: number;
  /**
   * Encryption of every object that this store writes, also by a claim. Without it, the bucket
   * decides, and a claim keeps the object's encryption. There is no option for keys of the customer
   * (SSE-C).
   */
  readonly encryption?: Encryption;
  /** Account number of the bucket's owner. AWS refuses requests to a bucket of another owner. */
  readonly expectedBucketOwner?: string;
  /** Agrees to pay for the requests to somebody else's bucket. @default false */
  readonly requesterPays?: boolean;
  /** The beginning of the keys of the probe, behind the prefix. @default '.fenced-probe/' */
  readonly probePrefix?: string;
  /** Age in days up to which a certificate in the bucket is believed, from 0 to 365. @default 7 */
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

/** The options of a store, complete. */
export type Settings = Omit<Complete, 'client' | 'bucket' | 'requestTimeoutMs'>;

/** For every call. The signal ends waiting and sending; a write that was sent is still resolved. */
export interface CallOptions {
  readonly signal?: AbortSignal;
}

/** For every call that may write. */
export interface SendOptions extends CallOptions {
  /**
   * Called with the write id right before each time that the write is sent. If the caller gives up
   * after that, `settle` reports the outcome. Without a call, nothing was sent. It must not throw.
   */
  readonly onWriteId?: (writeId: string) => void;
}

export interface ReadOptions extends CallOptions {
  /**
   * Reads a part of the body. A stored body is read from its beginning, and the bytes before the
   * range are dropped. A range behind the end has no bytes, which is no error. A range with an
   * `end` is not checked against the checksum of the body.
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
  /** The version that the write may replace; null if there may be no value. @default any */
  readonly expected?: string | null;
}

export interface PutOptions extends ReplaceOptions, Headers {
  /**
   * Size of a stream in bytes, which readers then know before they read it. A stream of another
   * size is refused.
   */
  readonly bodyBytes?: number;

  /**
   * Called as a body is read and sent. If it throws, the call fails, unless the write was applied.
   */
  readonly onProgress?: (progress: Progress) => void;
}

/** The progress of a body. */
export interface Progress {
  /** Number of the caller's bytes that were read. */
  readonly bodyBytes: number;
  /** Number of stored (compressed) bytes that the server has. */
  readonly storedBytes: number;
}

export interface RepairOptions extends TokenOptions {
  /** The new value. Needed only if the stored body is damaged, too. @default the stored body */
  readonly body?: string | Uint8Array;
}

export interface UpdateOptions extends TokenOptions {
  /** Overrides the store's `attemptsMax` for this call. */
  readonly attemptsMax?: number;
}

/** A write that was applied. */
export interface Written {
  readonly token: bigint;
  /** Opaque and unique. Null if other writes replaced this one before its version was known. */
  readonly version: string | null;
  /** Identifies this write for ever: 32 hexadecimal digits. */
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

/** The write that stored an object. */
export interface Origin {
  /** 0n for an object that this library did not write. */
  readonly token: bigint;
  readonly version: string;
  readonly writeId: string;
}

/** A value with the token it was written with. */
export interface Current extends Origin, StoredHeaders {
  readonly body: Uint8Array;
}

/** A value whose bytes are still to come. */
export interface CurrentStream extends Origin, StoredHeaders {
  /** Size of the whole body; undefined if it is known only after reading. */
  readonly bodyBytes: number | undefined;
  /**
   * The bytes. They are known to be complete and undamaged only when the stream has ended without
   * an error; act upon none of them before. Errors: {@link CorruptObjectError},
   * {@link StoreUnavailableError}, the signal's reason.
   */
  readonly body: Readable;
}

/** Size and age of a value. */
export interface Sizes {
  /** Size of the body; undefined if it is known only after reading. */
  readonly bodyBytes: number | undefined;
  /** Number of bytes that are stored and paid for. */
  readonly storedBytes: number | undefined;
  /** In milliseconds since 1970, by the clock of the server. A claim counts as a write. */
  readonly lastModifiedMs: number | undefined;
}

/** A value without its body. */
export interface Stat extends Origin, StoredHeaders, Sizes {}

/** An object of a listing: the facts of its value, or why they cannot be trusted. */
export type Listed = { readonly key: string } & (
  | (Origin & Sizes & { readonly damage?: undefined })
  | ({ readonly damage: CorruptObjectError | RatchetLostError } & {
      readonly [Fact in keyof (Origin & Sizes)]?: undefined;
    })
);

export interface ListOptions extends CallOptions {
  /** Number of keys in one request, from 1 to 1000. @default 100 */
  readonly pageSize?: number;
}

export interface SettleOptions extends CallOptions {
  /** The key that was written. Only a write of another process needs it. */
  readonly key?: string;
}

const DEFAULTS: Omit<Complete, 'client' | 'bucket'> = {
  prefix: '',
  requestTimeoutMs: 10_000,
  attemptsMax: 20,
  gzipLevel: 1,
  layout: 'gzip',
  partBytes: 8 * 2 ** 20,
  partsInFlight: 4,
  storedBytesMax: STORED_BYTES_MAX,
  bodyBytesMax: 256 * 2 ** 20,
  requesterPays: false,
  probePrefix: '.fenced-probe/',
  certificateMaxAgeDays: 7,
};

const FIELDS = [
  ...Object.keys(DEFAULTS),
  ...['client', 'bucket', 'encryption', 'expectedBucketOwner'],
];

const RANGES = {
  requestTimeoutMs: [1, 600_000],
  attemptsMax: [1, ATTEMPTS_MAX],
  gzipLevel: [0, 9],
  partBytes: [PART_BYTES_MIN, STORED_BYTES_MAX],
  partsInFlight: [1, PARTS_IN_FLIGHT_MAX],
  storedBytesMax: [1, STORED_BYTES_MAX],
  bodyBytesMax: [1, BODY_BYTES_MAX],
  certificateMaxAgeDays: [0, CERTIFICATE_DAYS_MAX],
} as const;

/** @throws {InvalidArgumentError} if an option is missing or out of its range. */
export function withDefaults(options: FencedS3Options): Complete {
  checkOptions(options, FIELDS, '{ client: new S3Client({}), bucket: … }');
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  const complete = { ...DEFAULTS, ...(Object.fromEntries(given) as typeof options) };
  const { client, bucket, layout, prefix, probePrefix, encryption } = complete;
  const { expectedBucketOwner, requesterPays } = complete;
  const fail = (message: string): never => {
    throw new InvalidArgumentError(message);
  };
  if (typeof client?.send !== 'function') fail('client must be an S3Client of @aws-sdk/client-s3');
  if (typeof bucket !== 'string' || bucket === '')
    fail("bucket must be the bucket's name, a non-empty string");
  // The suffix is reserved: no bucket has such a name.
  if (bucket.endsWith('.mrap'))
    fail(
      `bucket must be one bucket: a Multi-Region Access Point leads to several, and each checks conditions for itself bucket=${bucket}`,
    );
  if (layout !== 'gzip' && layout !== 'plain')
    fail(`layout must be 'gzip' or 'plain' value=${shown(layout)}`);
  if (prefix !== '') checkKeyText(prefix, '');
  checkKeyText(probePrefix, prefix);
  for (const [name, [min, max]] of Object.entries(RANGES))
    checkWholeNumber(name, complete[name as keyof typeof RANGES], min, max);
  if (encryption !== undefined) checkEncryption(encryption);
  if (expectedBucketOwner !== undefined && !isPrintable(expectedBucketOwner))
    fail('expectedBucketOwner must be the number of an account, as a string');
  if (typeof requesterPays !== 'boolean')
    fail(`requesterPays must be true or false value=${shown(requesterPays)}`);
  return { ...complete, ...(encryption && { encryption: { ...encryption } }) };
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
  checkOptions(options);
  checkSignal('signal', options.signal);
}

/** @param claiming the call that takes a token */
export function checkRead(options: ReadOptions, claiming: string): void {
  checkCall(options);
  checkNoToken(options, claiming);
  checkRange(options.range);
}

/**
 * Returns the token that a call presents.
 *
 * @throws {InvalidArgumentError} {@link InvalidTokenError}
 */
export function checkTokenOptions(options: TokenOptions): bigint {
  checkCall(options);
  if (options.onWriteId !== undefined) checkFunction('onWriteId', options.onWriteId);
  return parseToken(options.token);
}

export function checkAttempts(attemptsMax: number): void {
  checkWholeNumber('attemptsMax', attemptsMax, 1, ATTEMPTS_MAX);
}
