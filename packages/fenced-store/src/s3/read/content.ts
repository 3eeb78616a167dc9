import { pipeline, Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { isEnvelope, parseHeader } from '../../core/envelope.js';
import { CorruptObjectError, UnsupportedByStoreError } from '../../core/errors.js';
import type { Stored } from '../../core/stored.js';
import {
  CHUNK_BYTES,
  checkStamp,
  decode,
  decodeStream,
  isOfZlib,
  withCheckedHeader,
  wrongLength,
} from '../codec/decode.js';
import { collected, exactly } from '../codec/pieces.js';
import { encodingsOf } from '../http/attributes.js';
import { tooLarge } from '../http/explain.js';
import type { ObjectHead, OpenObject, SalvagedObject, WholeObject } from '../http/requests.js';

/**
 * The content of an object: for the caller, and for a write that keeps it. An object that existed
 * before this library counts as written with the token 0n.
 */

/**
 * Returns the caller's bytes.
 *
 * @throws {CorruptObjectError} {@link UnsupportedByStoreError}
 */
export async function contentOf(resource: string, object: WholeObject): Promise<Uint8Array> {
  const { stored, bytes, bodyBytesMax } = object;
  if (stored.layout === 'gzip') {
    const { stamp, body } = await decode(resource, bytes, bodyBytesMax);
    checkStamp(resource, stamp, stored);
    if (stored.state === 'deleted' && body.length > 0)
      throw new CorruptObjectError(resource, 'the object is marked as deleted but has a body');
    return body;
  }
  const content = contentStream(resource, { ...object, arriving: Readable.from([bytes]) });
  const body = await collected(content, bodyBytesMax);
  if (body === null) throw tooLarge(resource, bodyBytesMax);
  return body;
}

/**
 * Returns what a damaged object still shows; null if it is not damaged. `token` is the highest
 * anywhere in the object. `body` is null if it cannot be read.
 */
export async function salvaged(
  resource: string,
  object: SalvagedObject,
): Promise<{ readonly token: bigint; readonly body: Uint8Array | null } | null> {
  const { stored, bytes, isDamaged, bodyBytesMax } = object;
  if (!isDamaged && (await unlessCorrupt(() => contentOf(resource, object))) !== null) return null;
  const { token } = stored;
  // An object in the layout `plain` has no header that could contradict its metadata.
  if (!isEnvelope(bytes))
    return { token, body: isDamaged && stored.layout === 'plain' ? bytes : null };
  const decoded = await unlessCorrupt(() => decode(resource, bytes, bodyBytesMax));
  const stamp = await unlessCorrupt(async () => parseHeader(resource, bytes));
  const highest = stamp !== null && stamp.token > token ? stamp.token : token;
  return { token: highest, body: decoded?.body ?? null };
}

async function unlessCorrupt<T>(read: () => Promise<T>): Promise<T | null> {
  return read().catch((error: unknown) => {
    if (error instanceof CorruptObjectError) return null;
    throw error;
  });
}

/** Size of the caller's body, if it is known without reading it. */
export function bodyBytesOf({ stored, reply }: ObjectHead): number | undefined {
  if (stored.bodyBytes !== undefined) return stored.bodyBytes;
  const isAsItIs = stored.layout === 'plain' && reply.ContentEncoding === undefined;
  return isAsItIs ? reply.ContentLength : undefined;
}

/** Returns the caller's bytes, piece by piece. */
export function contentStream(
  resource: string,
  object: Omit<OpenObject, 'cancel'>,
): AsyncIterable<Uint8Array> {
  const { stored, arriving } = object;
  if (stored.layout === 'gzip') return decodeStream(resource, stored, arriving);
  return exactly(stored.bodyBytes, plainContent(resource, object), () => wrongLength(resource));
}

/** Returns the stored bytes, for a write that keeps them. */
export function storedStream(
  resource: string,
  { stored, arriving }: OpenObject,
): AsyncIterable<Uint8Array> {
  return stored.layout === 'gzip'
    ? withCheckedHeader(resource, stored, arriving)
    : plainBytes(resource, stored, arriving);
}

async function* plainBytes(
  resource: string,
  stored: Stored,
  arriving: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  let isFirst = true;
  for await (const piece of arriving) {
    if (isFirst && isOrphan(stored, piece)) throw withoutMetadata(resource);
    isFirst = false;
    yield piece;
  }
}

async function* plainContent(
  resource: string,
  object: Omit<OpenObject, 'cancel'>,
): AsyncGenerator<Uint8Array> {
  const bytes = plainBytes(resource, object.stored, object.arriving);
  if (!isGzip(resource, object)) return yield* bytes;
  const unzip = createGunzip({ chunkSize: CHUNK_BYTES });
  pipeline(bytes, unzip, () => undefined);
  try {
    yield* unzip as AsyncIterable<Uint8Array>;
  } catch (error) {
    throw notGzip(resource, error);
  }
}

/** True if bytes of this library have lost their metadata. */
function isOrphan(stored: Stored, bytes: Uint8Array): boolean {
  return stored.token === 0n && isEnvelope(bytes);
}

/** True if another program stored gzip. Browsers decompress that, and so do we. */
function isGzip(resource: string, { reply }: ObjectHead): boolean {
  const [encoding = '', ...more] = encodingsOf(reply).map((name) => name.toLowerCase());
  if (more.length === 0 && encoding === 'gzip') return true;
  if (more.length === 0 && (encoding === '' || encoding === 'identity')) return false;
  throw new UnsupportedByStoreError(
    `the object was stored by another program, with a Content-Encoding that cannot be undone here: overwrite it by put resource=${resource} encoding=${reply.ContentEncoding}`,
  );
}

function withoutMetadata(resource: string): CorruptObjectError {
  return new CorruptObjectError(
    resource,
    'the object was written by this library, but its metadata is gone: copy it again with its metadata',
  );
}

function notGzip(resource: string, cause: unknown): unknown {
  const reason = 'the object is marked as gzip and is not';
  return isOfZlib(cause) ? new CorruptObjectError(resource, reason, { cause }) : cause;
}
