import { createHash } from 'node:crypto';
import type { Readable } from 'node:stream';
import type { VersionIds } from '../../core/capabilities.js';
import type { Meaning } from '../../core/classify.js';
import type { FencedStoreError } from '../../core/errors.js';
import { type Stored, toMetadata } from '../../core/stored.js';
import type { Headers } from '../arguments.js';
import { toInput } from './headers.js';
import type { Kept } from './kept.js';
import { type Stack, setHeader } from './observe.js';
import type { Reply } from './sender.js';

/** A stored body that waits in a file, ready to be sent, and to be sent again. */
export interface Spool {
  readonly bytes: number;
  /** See `checksumHeader`. */
  readonly crc32: string;
  read(): Readable;
}

/** A CRC-32 as S3 wants it: its four bytes in base64. */
export function checksumHeader(checksum: number): string {
  const digest = Buffer.alloc(4);
  digest.writeUInt32BE(checksum);
  return digest.toString('base64');
}

/** What is sent as a body: bytes, or a file with its checksum. */
export type Content = Uint8Array | Spool;

/** One conditional write. */
export interface Put {
  readonly key: string;
  /** The value of `If-Match`; null sends `If-None-Match: *`. */
  readonly ifMatch: string | null;
  readonly stored: Omit<Stored, 'version'>;
  readonly headers: Headers;
  /** Of the object that is replaced. */
  readonly kept?: Kept | undefined;
}

/** What tells a tombstone from an empty value, for programs without this library and for lifecycle rules. */
export const TOMBSTONE: Headers = {
  contentType: 'application/x.fenced-tombstone',
  tags: { 'fenced-tombstone': 'true' },
};

/** What a write was answered. A success without an ETag has the version `undefined`. */
export type WriteReply =
  | {
      readonly meaning: 'applied';
      readonly version: string | undefined;
      /** Undefined where such an answer says nothing of it. */
      readonly versionIds: VersionIds | undefined;
      readonly answered: string;
    }
  | { readonly meaning: Meaning; readonly error: FencedStoreError; readonly answered: string };

/**
 * Says what every kind of write says of the object.
 *
 * @param objectKey the whole key in the bucket
 */
export function writeInput({ stored, headers, kept }: Put, objectKey: string): Kept['input'] {
  return {
    ...toInput(headers),
    ...kept?.input,
    // In this layout two writes of the same bytes must differ in their ETags, and by AWS's own key they would not.
    ...(stored.layout === 'plain' &&
      kept?.input.ServerSideEncryption === 'AES256' && { ServerSideEncryption: undefined }),
    ...(stored.layout === 'gzip' && { ContentEncoding: 'gzip' }),
    Metadata: { ...headers.metadata, ...toMetadata(stored, keyDigest(objectKey)) },
  };
}

/** The SDK knows dates only. */
export function keepExpires(stack: Stack, { kept }: Put): void {
  if (kept?.expires !== undefined) setHeader(stack, 'expires', kept.expires);
}

/** 64 bits of the SHA-256 of the whole key in the bucket. */
export function keyDigest(objectKey: string): string {
  return createHash('sha256').update(objectKey).digest('hex').slice(0, 16);
}

export function conditionInput(ifMatch: string | null): {
  readonly IfMatch?: string;
  readonly IfNoneMatch?: string;
} {
  return ifMatch === null ? { IfNoneMatch: '*' } : { IfMatch: ifMatch };
}

export function asWriteReply(
  reply: Reply<{ readonly ETag?: string | undefined; readonly VersionId?: string | undefined }>,
): WriteReply {
  const { answered } = reply;
  if (!reply.ok) return { meaning: reply.meaning, error: reply.error, answered };
  const { ETag, VersionId } = reply.output;
  const versionIds = VersionId === undefined ? 'none' : VersionId === 'null' ? 'null' : 'new';
  return { meaning: 'applied', version: bareEtag(ETag), versionIds, answered };
}

/** An ETag without quotes, and without the `W/` that a compressing proxy may have put before it. */
export function bareEtag(etag: string | undefined): string | undefined {
  const bare = etag?.replace(/^W\//, '').replaceAll('"', '');
  return bare === '' ? undefined : bare;
}
