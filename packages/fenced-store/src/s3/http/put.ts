import { createHash, getFips } from 'node:crypto';
import type { Readable } from 'node:stream';
import type { PutObjectCommandOutput, ServerSideEncryption } from '@aws-sdk/client-s3';
import type { VersionIds, WriteEncryption } from '../../core/capabilities.js';
import type { Meaning } from '../../core/classify.js';
import type { FencedStoreError } from '../../core/errors.js';
import { type Stored, toMetadata } from '../../core/stored.js';
import type { Headers } from '../arguments.js';
import { type ObjectInput, type PreservedAttributes, toInput } from './attributes.js';
import { type Stack, setHeader } from './middleware.js';
import type { Reply } from './request-sender.js';

/** A stored body in a file, which can be sent more than once. */
export interface FileContent {
  readonly bytes: number;
  /** See `checksumHeader`. */
  readonly crc32: string;
  read(): Readable;
}

/** The body of one PUT. */
export type Content = Uint8Array | FileContent;

/** One conditional write. */
export interface Put {
  readonly key: string;
  /** The value of `If-Match`; null sends `If-None-Match: *`. */
  readonly ifMatch: string | null;
  readonly stored: Omit<Stored, 'version'>;
  readonly headers: Headers;
  /** Attributes of the object that is replaced. */
  readonly preserved?: PreservedAttributes | undefined;
  /** The encryption under which the server gave different ETags to the same bytes. */
  readonly distinguishing?: WriteEncryption | undefined;
}

/** Distinguishes a tombstone from an empty value, for other programs and for lifecycle rules. */
export const TOMBSTONE: Headers = {
  contentType: 'application/x.fenced-tombstone',
  tags: { 'fenced-tombstone': 'true' },
};

/** The reply to a write. `answered` has the server's words, for reports. */
export type WriteReply =
  | {
      readonly meaning: 'applied';
      /** Undefined if the reply had no ETag. */
      readonly version: string | undefined;
      /** True if the ETag is a digest of the bytes that were sent: see `isDigestOf`. */
      readonly isOfBytes: boolean;
      /** Undefined for a reply that does not show whether the bucket keeps versions. */
      readonly versionIds: VersionIds | undefined;
      readonly encryption: WriteEncryption | undefined;
      readonly answered: string;
    }
  | {
      readonly meaning: Meaning;
      readonly version?: undefined;
      readonly error: FencedStoreError;
      readonly answered: string;
    };

/**
 * The fields that a PUT and a multipart upload share.
 *
 * @param objectKey the whole key in the bucket
 */
export function writeInput(put: Put, objectKey: string): ObjectInput {
  const { stored, headers, preserved } = put;
  return {
    ...toInput(headers),
    ...preserved?.input,
    ...(stored.layout === 'plain' && distinguishingInput(put)),
    ...(stored.layout === 'gzip' && { ContentEncoding: 'gzip' }),
    Metadata: { ...headers.metadata, ...toMetadata(stored, keyDigest(objectKey)) },
  };
}

/**
 * In the layout `plain`, two writes of the same bytes need different ETags. Under AES256, AWS would
 * give them the same, and under a key of KMS different ones. So a KMS encryption that the probe met
 * is asked for by name: the default of the bucket may change at any time.
 */
function distinguishingInput({ preserved, distinguishing }: Put): ObjectInput {
  const { ServerSideEncryption: kept } = preserved?.input ?? {};
  if (kept !== undefined && kept !== 'AES256') return {};
  const { algorithm = '', kmsKeyId } = distinguishing ?? {};
  if (!algorithm.startsWith('aws:kms')) return kept ? { ServerSideEncryption: undefined } : {};
  return {
    ServerSideEncryption: algorithm as ServerSideEncryption,
    SSEKMSKeyId: kmsKeyId,
    BucketKeyEnabled: undefined,
  };
}

/** Sends `Expires` as it was stored. The SDK takes dates only. */
export function preserveExpires(stack: Stack, { preserved }: Put): void {
  if (preserved?.expires !== undefined) setHeader(stack, 'expires', preserved.expires);
}

export function conditionInput(
  ifMatch: string | null,
): Pick<ObjectInput, 'IfMatch' | 'IfNoneMatch'> {
  return ifMatch === null ? { IfNoneMatch: '*' } : { IfMatch: ifMatch };
}

/** @param content the body that was sent, if it has a stamp */
export function asWriteReply(
  reply: Reply<
    Pick<PutObjectCommandOutput, 'ETag' | 'VersionId' | 'ServerSideEncryption' | 'SSEKMSKeyId'>
  >,
  content?: Content,
): WriteReply {
  const { answered } = reply;
  if (!reply.ok) return { meaning: reply.meaning, error: reply.error, answered };
  const { ETag, VersionId, ServerSideEncryption: algorithm, SSEKMSKeyId } = reply.output;
  const versionIds = VersionId === undefined ? 'none' : VersionId === 'null' ? 'null' : 'new';
  const version = bareEtag(ETag);
  return {
    meaning: 'applied',
    version,
    isOfBytes: isDigestOf(version, content),
    versionIds,
    encryption: algorithm && { algorithm, ...(SSEKMSKeyId && { kmsKeyId: SSEKMSKeyId }) },
    answered,
  };
}

/** Hashing a larger body takes longer than the read that decides instead. */
const DIGESTED_BYTES_MAX = 2 ** 20;

/**
 * True if the ETag is the MD5 of the bytes. Most servers make the ETag of a single PUT like that,
 * but not under encryption by KMS, nor for an upload. Bytes with a stamp are unique. So such a
 * reply is about this write, even if a proxy passes on the replies of a connection in disorder.
 */
function isDigestOf(version: string | undefined, content: Content | undefined): boolean {
  if (!(content instanceof Uint8Array) || content.length > DIGESTED_BYTES_MAX) return false;
  // FIPS 140 does not allow MD5.
  return getFips() === 0 && version === createHash('md5').update(content).digest('hex');
}

/** An ETag without its quotes, and without the `W/` that a compressing proxy puts before it. */
export function bareEtag(etag: string | undefined): string | undefined {
  const bare = etag?.replace(/^W\//, '').replaceAll('"', '');
  return bare === '' ? undefined : bare;
}

/** 64 bits of the SHA-256 of the whole key in the bucket. */
export function keyDigest(objectKey: string): string {
  return createHash('sha256').update(objectKey).digest('hex').slice(0, 16);
}

/** A CRC-32 as S3 expects it: four bytes in base64. */
export function checksumHeader(checksum: number): string {
  const digest = Buffer.alloc(4);
  digest.writeUInt32BE(checksum);
  return digest.toString('base64');
}
