import { pipeline } from 'node:stream';
import { promisify } from 'node:util';
import { createGunzip, gunzip as gunzipCallback, type ZlibOptions } from 'node:zlib';
import { isEnvelope, parseHeader } from '../../core/envelope.js';
import { CorruptObjectError, UnsupportedByStoreError } from '../../core/errors.js';
import type { Stored } from '../../core/stored.js';
import {
  CHUNK_BYTES,
  checkStamp,
  headed,
  isCutShort,
  isOfZlib,
  open,
  opened,
} from '../codec/open.js';
import { tooLarge } from '../http/failures.js';
import { encodingsOf } from '../http/headers.js';
import type { ObjectFacts, OpenObject, SalvagedObject, WholeObject } from '../http/requests.js';

/**
 * What an object holds, for the caller and for a write that keeps it. Objects that were there before this library count as
 * written with the token 0n.
 */

const gunzip = promisify<Uint8Array, ZlibOptions, Uint8Array>(gunzipCallback);

/**
 * The caller's bytes.
 *
 * @throws {CorruptObjectError} {@link UnsupportedByStoreError}
 */
export async function contentOf(resource: string, object: WholeObject): Promise<Uint8Array> {
  const { stored, bytes, bodyBytesMax } = object;
  if (stored.layout === 'gzip') {
    const { stamp, body } = await open(resource, bytes, bodyBytesMax);
    checkStamp(resource, stamp, stored);
    if (stored.state === 'deleted' && body.length > 0)
      throw new CorruptObjectError(resource, 'the object is marked as deleted but has a body');
    return body;
  }
  if (isOrphan(stored, bytes)) throw withoutMetadata(resource);
  if (!isGzip(resource, object)) {
    if (bytes.length > bodyBytesMax) throw tooLarge(resource, bodyBytesMax);
    return bytes;
  }
  return gunzip(bytes, { maxOutputLength: bodyBytesMax }).catch((cause: unknown) => {
    throw isCutShort(cause) ? tooLarge(resource, bodyBytesMax) : asNoGzip(resource, cause);
  });
}

/**
 * What can still be told of a damaged object; null if it is not damaged. `token` is the highest that it shows anywhere, `body` null
 * if it cannot be known.
 */
export async function salvaged(
  resource: string,
  object: SalvagedObject,
): Promise<{ readonly token: bigint; readonly body: Uint8Array | null } | null> {
  const { stored, bytes, isDamaged, bodyBytesMax } = object;
  if (!isDamaged && (await unlessCorrupt(contentOf(resource, object))) !== null) return null;
  const { token } = stored;
  // What is said to be plain has no header that could contradict.
  if (!isEnvelope(bytes))
    return { token, body: isDamaged && stored.layout === 'plain' ? bytes : null };
  const opened = await unlessCorrupt(open(resource, bytes, bodyBytesMax));
  const stamp = await unlessCorrupt((async () => parseHeader(resource, bytes))());
  const highest = stamp !== null && stamp.token > token ? stamp.token : token;
  return { token: highest, body: opened?.body ?? null };
}

async function unlessCorrupt<T>(promise: Promise<T>): Promise<T | null> {
  return promise.catch((error: unknown) => {
    if (error instanceof CorruptObjectError) return null;
    throw error;
  });
}

/** How many bytes of the caller's an object has, where what is at hand without reading it tells. */
export function bodyBytesOf(object: ObjectFacts): number | undefined {
  const { stored, storedBytes, contentEncoding } = object;
  if (stored.bodyBytes !== undefined) return stored.bodyBytes;
  const isAsItIs = stored.layout === 'plain' && contentEncoding === undefined;
  return isAsItIs ? storedBytes : undefined;
}

/** As `contentOf`, piece by piece. */
export function contentStream(resource: string, object: OpenObject): AsyncIterable<Uint8Array> {
  const { stored, arriving } = object;
  const isOurs = stored.layout === 'gzip';
  const content = isOurs ? opened(resource, stored, arriving) : plainContent(resource, object);
  return stored.bodyBytes === undefined ? content : exactly(stored.bodyBytes, resource, content);
}

/** Readers may have been told how many bytes there are, and take one too many for the beginning of something else. */
async function* exactly(
  bodyBytes: number,
  resource: string,
  content: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  let left = bodyBytes;
  for await (const piece of content) {
    left -= piece.length;
    if (left < 0) break;
    yield piece;
  }
  if (left !== 0)
    throw new CorruptObjectError(
      resource,
      'the stored body has not the length that its metadata says',
    );
}

/** The stored bytes, for a write that keeps them. */
export function storedStream(
  resource: string,
  { stored, arriving }: OpenObject,
): AsyncIterable<Uint8Array> {
  return stored.layout === 'gzip'
    ? headed(resource, stored, arriving)
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

async function* plainContent(resource: string, object: OpenObject): AsyncGenerator<Uint8Array> {
  const bytes = plainBytes(resource, object.stored, object.arriving);
  if (!isGzip(resource, object)) return yield* bytes;
  const unzip = createGunzip({ chunkSize: CHUNK_BYTES });
  pipeline(bytes, unzip, () => undefined);
  try {
    yield* unzip as AsyncIterable<Uint8Array>;
  } catch (error) {
    throw asNoGzip(resource, error);
  }
}

/** Whether bytes of ours have lost their metadata. */
function isOrphan(stored: Stored, bytes: Uint8Array): boolean {
  return stored.token === 0n && isEnvelope(bytes);
}

/** Whether what something else stored is gzip: browsers undo that, and so do we. */
function isGzip(
  resource: string,
  { contentEncoding = '' }: Pick<OpenObject, 'contentEncoding'>,
): boolean {
  const [encoding = '', ...more] = encodingsOf(contentEncoding).map((name) => name.toLowerCase());
  if (more.length === 0 && encoding === 'gzip') return true;
  if (more.length === 0 && (encoding === '' || encoding === 'identity')) return false;
  throw new UnsupportedByStoreError(
    `the object was stored by something else, with a Content-Encoding that cannot be undone here: overwrite it by put resource=${resource} encoding=${contentEncoding}`,
  );
}

function withoutMetadata(resource: string): CorruptObjectError {
  return new CorruptObjectError(
    resource,
    'the object was written by this library, but its metadata is gone: copy it again with them',
  );
}

function asNoGzip(resource: string, cause: unknown): unknown {
  return isOfZlib(cause)
    ? new CorruptObjectError(resource, 'the object is said to be gzip and is not', { cause })
    : cause;
}
