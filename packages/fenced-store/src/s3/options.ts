import { checkObject, checkSignal, checkWholeNumber } from '../core/check.js';
import { InvalidArgumentError } from '../core/errors.js';
import { parseToken, type TokenLike } from '../core/token.js';
import { checkKey, type Headers } from './arguments.js';
import type { S3Calls } from './requests.js';

/** What S3 takes in one PUT: 5 GiB. */
const STORED_BYTES_MAX = 5 * 2 ** 30;
const ATTEMPTS_MAX = 1_000;

export interface FencedS3Options {
  /** An `S3Client` of `@aws-sdk/client-s3`. It stays the caller's: nothing of it is changed, and it is not closed. */
  readonly client: S3Calls;
  readonly bucket: string;
  /** How long one request may take, from 1 to 600 000. @default 10_000 */
  readonly requestTimeoutMs?: number;
  /** How often a write that lost a race to others is tried, from 1 to 1000. @default 20 */
  readonly attemptsMax?: number;
  /** From 0, stored without compression, to 9. @default 6 */
  readonly gzipLevel?: number;
  /** The largest stored (compressed) body. @default 5 GiB, what S3 takes in one PUT */
  readonly storedBytesMax?: number;
  /** What the keys of the probe's own objects begin with. @default '.fenced-probe/' */
  readonly probePrefix?: string;
}

/** For every call: ends waiting and sending. What was already sent is still settled. */
export interface CallOptions {
  readonly signal?: AbortSignal;
}

export interface TokenOptions extends CallOptions {
  /** The fencing token of the lock that the caller holds. */
  readonly token: TokenLike;
}

export interface PutOptions extends TokenOptions, Headers {}

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

/** A value with the token it was written with. */
export interface Current {
  readonly body: Uint8Array;
  readonly token: bigint;
  readonly version: string;
  readonly writeId: string;
  readonly metadata: Readonly<Record<string, string>>;
  readonly contentType: string | undefined;
  readonly cacheControl: string | undefined;
}

/** What `update` is to write: a body, or a body with headers. Headers that are not given stay as they were. */
export type Edit = string | Uint8Array | ({ readonly body: string | Uint8Array } & Headers);

/** @throws {InvalidArgumentError} where an option is missing or out of its range. */
export function withDefaults(options: FencedS3Options): Required<FencedS3Options> {
  checkObject('options', options);
  const { client, bucket, requestTimeoutMs = 10_000, attemptsMax = 20, gzipLevel = 6 } = options;
  const { storedBytesMax = STORED_BYTES_MAX, probePrefix = '.fenced-probe/' } = options;
  if (typeof client?.send !== 'function')
    throw new InvalidArgumentError('client must be an S3Client of @aws-sdk/client-s3');
  if (typeof bucket !== 'string' || bucket === '')
    throw new InvalidArgumentError("bucket must be the bucket's name, a non-empty string");
  checkWholeNumber('requestTimeoutMs', requestTimeoutMs, 1, 600_000);
  checkAttempts(attemptsMax);
  checkWholeNumber('gzipLevel', gzipLevel, 0, 9);
  checkWholeNumber('storedBytesMax', storedBytesMax, 1, STORED_BYTES_MAX);
  checkKey(probePrefix);
  return { client, bucket, requestTimeoutMs, attemptsMax, gzipLevel, storedBytesMax, probePrefix };
}

/** @throws {InvalidArgumentError} */
export function checkCall(options: CallOptions): void {
  checkObject('options', options);
  checkSignal('signal', options.signal);
}

/** The token that a call presents. @throws {InvalidArgumentError} @throws {InvalidTokenError} */
export function checkTokenOptions(options: TokenOptions): bigint {
  checkCall(options);
  return parseToken(options.token);
}

export function checkAttempts(attemptsMax: number): void {
  checkWholeNumber('attemptsMax', attemptsMax, 1, ATTEMPTS_MAX);
}
