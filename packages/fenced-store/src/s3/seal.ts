import { promisify } from 'node:util';
import { constants, crc32, deflateRaw as deflateRawCallback, type ZlibOptions } from 'node:zlib';
import { envelopeHeader, envelopeTrailer, HEADER_BYTES } from '../core/envelope.js';
import { InvalidArgumentError } from '../core/errors.js';
import type { Layout, Stamp } from '../core/stored.js';

/**
 * How the caller's bytes become those that are stored: cut into chunks, each of which is deflated by itself up to a byte
 * boundary, so that several can be under way at once and no more than those are in memory.
 */

const deflateRaw = promisify<Uint8Array, ZlibOptions, Uint8Array>(deflateRawCallback);

const CHUNK_BYTES = 2 ** 20;
/** How many chunks are deflated at once: those that a stream is ahead of its reader. */
const CHUNKS_AHEAD = 2;
/** Three samples of this size say whether a chunk is worth deflating. */
const SAMPLE_BYTES = 4_096;
/** What shrinks by less is stored as it is: reading it back costs nothing then. */
const WORTHWHILE = 0.95;
const STORED_BLOCK_BYTES_MAX = 65_535;
/** An empty last block: with it the DEFLATE data ends (RFC 1951). */
const END: Uint8Array = Uint8Array.of(0x03, 0x00);
/** Where the header will be, once the write has its stamp. */
const HEADER_ROOM: Uint8Array = new Uint8Array(HEADER_BYTES);

/** How bodies are stored. */
export interface Form {
  readonly layout: Layout;
  /** From 0, stored, to 9. */
  readonly gzipLevel: number;
}

/** Content that is compressed already, by its type. What lies about its type is found by its bytes. */
const COMPRESSED_TYPE =
  /^(image\/(?!svg|bmp|x-ms-bmp|tiff)|video\/|audio\/(?!wav|x-wav|basic)|font\/woff|application\/(zip|gzip|x-gzip|zstd|x-7z-compressed|x-xz|x-bzip2|vnd\.rar|java-archive|vnd\.openxmlformats-))/i;

/** The form for a body of that content type. */
export function formFor(form: Form, contentType: string | undefined): Form {
  return contentType !== undefined && COMPRESSED_TYPE.test(contentType)
    ? { ...form, gzipLevel: 0 }
    : form;
}

/**
 * The stored form of a body with a header's worth of room in front, to be stamped anew for every write.
 *
 * @throws {InvalidArgumentError} where the caller changed the body meanwhile: a checksum of some other bytes would make the
 *   object unreadable.
 */
export async function seal(body: Uint8Array, { layout, gzipLevel }: Form): Promise<Uint8Array> {
  if (layout === 'plain') return Uint8Array.from(body);
  const checksum = crc32(body);
  const starts = Array.from({ length: Math.ceil(body.length / CHUNK_BYTES) }, (_, i) => i);
  const chunks = starts.map((i) => body.subarray(i * CHUNK_BYTES, (i + 1) * CHUNK_BYTES));
  const data = await Promise.all(chunks.map((chunk) => deflated(chunk, gzipLevel)));
  const sealed = Buffer.concat([HEADER_ROOM, ...data, END, envelopeTrailer(checksum, body.length)]);
  if (crc32(body) !== checksum)
    throw new InvalidArgumentError('the body was changed before it was written: pass a copy');
  return sealed;
}

/** As `seal`, piece by piece. `onRead` hears how much of the body has been read. */
export async function* sealed(
  body: AsyncIterable<unknown>,
  { layout, gzipLevel }: Form,
  onRead: (bodyBytes: number) => void,
): AsyncGenerator<Uint8Array> {
  let checksum = 0;
  let length = 0;
  const chunks = async function* (): AsyncGenerator<Uint8Array> {
    for await (const chunk of regrouped(bytesOf(body), CHUNK_BYTES)) {
      checksum = crc32(chunk, checksum);
      length += chunk.length;
      onRead(length);
      yield chunk;
    }
  };
  if (layout === 'plain') return yield* chunks();
  yield HEADER_ROOM;
  yield* inOrder(chunks(), (chunk) => deflated(chunk, gzipLevel));
  yield END;
  yield envelopeTrailer(checksum, length);
}

/** A copy of a stored body, or of its first part, with another stamp. The caller's bytes are not compressed again. */
export function stamped(sealed: Uint8Array, layout: Layout, stamp: Stamp): Uint8Array {
  if (layout === 'plain') return sealed;
  const copy = Uint8Array.from(sealed);
  copy.set(envelopeHeader(stamp));
  return copy;
}

/** DEFLATE blocks of one chunk, none of them the last, that end at a whole byte. */
async function deflated(chunk: Uint8Array, level: number): Promise<Uint8Array> {
  if (level === 0 || !(await isWorthwhile(chunk))) return storedBlocks(chunk);
  const data = await deflateRaw(chunk, {
    level,
    finishFlush: constants.Z_SYNC_FLUSH,
    // In one piece: zlib goes to its threads and back for each.
    chunkSize: chunk.length + 64,
  });
  return data.length < chunk.length ? data : storedBlocks(chunk);
}

async function isWorthwhile(chunk: Uint8Array): Promise<boolean> {
  if (chunk.length <= 4 * SAMPLE_BYTES) return true;
  const middle = (chunk.length - SAMPLE_BYTES) >> 1;
  const starts = [0, middle, chunk.length - SAMPLE_BYTES];
  const sample = Buffer.concat(starts.map((at) => chunk.subarray(at, at + SAMPLE_BYTES)));
  return (await deflateRaw(sample, { level: 1 })).length < WORTHWHILE * sample.length;
}

/** RFC 1951, 3.2.4: one byte for the kind, the length and its complement, and the bytes as they are. */
function storedBlocks(chunk: Uint8Array): Uint8Array {
  const blocks = Math.ceil(chunk.length / STORED_BLOCK_BYTES_MAX);
  const data = Buffer.allocUnsafe(chunk.length + 5 * blocks);
  let to = 0;
  for (let at = 0; at < chunk.length; at += STORED_BLOCK_BYTES_MAX) {
    const block = chunk.subarray(at, at + STORED_BLOCK_BYTES_MAX);
    to = data.writeUInt8(0, to);
    to = data.writeUInt16LE(block.length, to);
    to = data.writeUInt16LE(0xffff - block.length, to);
    data.set(block, to);
    to += block.length;
  }
  return data;
}

async function* bytesOf(body: AsyncIterable<unknown>): AsyncGenerator<Uint8Array> {
  for await (const chunk of body) {
    if (chunk instanceof Uint8Array) yield chunk;
    else if (typeof chunk === 'string') yield Buffer.from(chunk);
    else
      throw new InvalidArgumentError(
        `a stream that is written must give strings or Uint8Arrays type=${chunk === null ? 'null' : typeof chunk}`,
      );
  }
}

/** The same bytes in pieces of exactly that size, save the last. Each is a copy: what the source does with its own is its business. */
export async function* regrouped(
  pieces: AsyncIterable<Uint8Array>,
  bytes: number,
): AsyncGenerator<Uint8Array> {
  let group = Buffer.allocUnsafe(bytes);
  let filled = 0;
  for await (const piece of pieces) {
    for (let at = 0; at < piece.length; ) {
      const rest = piece.subarray(at, at + bytes - filled);
      group.set(rest, filled);
      filled += rest.length;
      at += rest.length;
      if (filled < bytes) continue;
      yield group;
      group = Buffer.allocUnsafe(bytes);
      filled = 0;
    }
  }
  if (filled > 0) yield group.subarray(0, filled);
}

/** Maps a few ahead of the reader, and hands over in order. */
async function* inOrder<In, Out>(
  items: AsyncIterable<In>,
  map: (item: In) => Promise<Out>,
): AsyncGenerator<Out> {
  const ahead: Promise<Out>[] = [];
  for await (const item of items) {
    const mapped = map(item);
    // It is awaited when its turn comes; until then its failure is nobody's.
    mapped.catch(() => undefined);
    ahead.push(mapped);
    if (ahead.length <= CHUNKS_AHEAD) continue;
    const next = ahead.shift();
    if (next !== undefined) yield await next;
  }
  for (const mapped of ahead) yield await mapped;
}
