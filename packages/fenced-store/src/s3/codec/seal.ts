import { promisify } from 'node:util';
import {
  constants,
  crc32,
  deflateRaw as deflateRawCallback,
  deflateRawSync,
  type ZlibOptions,
} from 'node:zlib';
import { envelopeHeader, envelopeTrailer, HEADER_BYTES } from '../../core/envelope.js';
import { InvalidArgumentError } from '../../core/errors.js';
import type { Layout, Stamp } from '../../core/stored.js';

/**
 * How the caller's bytes become those that are stored: cut into chunks, each of which is deflated by itself up to a byte
 * boundary, so that several can be under way at once and no more than those are in memory.
 */

const deflateRaw = promisify<Uint8Array, ZlibOptions, Uint8Array>(deflateRawCallback);

const CHUNK_BYTES = 2 ** 20;
/** How many chunks are deflated at once: those that a stream is ahead of its reader. */
const CHUNKS_AHEAD = 2;
/** What fits into one network packet as it is gets nowhere sooner for being shorter, and costs the deflating. */
const PACKET_BYTES = 1_400;
/** Three samples of this size say whether a chunk is worth deflating. */
const SAMPLE_BYTES = 4_096;
/** What is smaller is deflated at once: the way to zlib's threads and back would take several times as long. */
const SMALL_BYTES = 4 * SAMPLE_BYTES;
/** What shrinks by less is stored as it is: reading it back costs nothing then. */
const WORTHWHILE = 0.95;
/** After chunks that were not worth deflating, so many are stored without a look at them, at most. */
const UNTRIED_MAX = 7;
const STORED_BLOCK_BYTES_MAX = 65_535;
/** An empty last block: with it the DEFLATE data ends (RFC 1951). */
export const END: Buffer = Buffer.of(0x03, 0x00);
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
 * The stored form of a body with a header's worth of room in front. It is the caller's own, who stamps it.
 *
 * @throws {InvalidArgumentError} where the caller changed the body meanwhile: a checksum of some other bytes would make the
 *   object unreadable.
 */
export async function seal(body: Uint8Array, { layout, gzipLevel }: Form): Promise<Uint8Array> {
  if (layout === 'plain') return new Uint8Array(body);
  const checksum = crc32(body);
  const member = (data: readonly Blocks[]): Uint8Array =>
    Buffer.concat([HEADER_ROOM, ...data.flat(), END, envelopeTrailer(checksum, body.length)]);
  const starts = Array.from({ length: Math.ceil(body.length / CHUNK_BYTES) }, (_, i) => i);
  const chunks = starts.map((i) => body.subarray(i * CHUNK_BYTES, (i + 1) * CHUNK_BYTES));
  const data = chunks.map((chunk) => deflated(chunk, gzipLevel));
  // Nothing was waited for, so nobody can have changed it.
  if (data.every((blocks) => 'length' in blocks)) return member(data);
  const sealed = member(await Promise.all(data));
  if (crc32(body) !== checksum)
    throw new InvalidArgumentError('the body was changed before it was written: pass a copy');
  return sealed;
}

/**
 * As `seal`, piece by piece. `onRead` hears how much of the body has been read. Each piece is to be copied before the next is asked
 * for, which may overwrite it.
 */
export async function* sealed(
  body: AsyncIterable<unknown>,
  { layout, gzipLevel }: Form,
  onRead: (bodyBytes: number) => void,
): AsyncGenerator<Uint8Array> {
  let checksum = 0;
  let length = 0;
  const free: Uint8Array[] = [];
  const chunks = async function* (): AsyncGenerator<Uint8Array> {
    for await (const chunk of regrouped(bytesOf(body), CHUNK_BYTES, free)) {
      checksum = crc32(chunk, checksum);
      length += chunk.length;
      onRead(length);
      yield chunk;
    }
  };
  const deflate = deflating(gzipLevel);
  const stored = async (chunk: Uint8Array): Promise<readonly [Uint8Array, Blocks]> => [
    chunk,
    layout === 'plain' ? [chunk] : await deflate(chunk),
  ];
  if (layout === 'gzip') yield HEADER_ROOM;
  for await (const [chunk, blocks] of inOrder(chunks(), stored)) {
    yield* blocks;
    free.push(chunk);
  }
  if (layout === 'plain') return;
  yield END;
  yield envelopeTrailer(checksum, length);
}

/** Writes the stamp into a stored body, or into its first part. */
export function stamp(sealed: Uint8Array, layout: Layout, stamp: Stamp): void {
  if (layout === 'gzip') sealed.set(envelopeHeader(stamp));
}

/** DEFLATE blocks of one chunk, none of them the last, that end at a whole byte; may be views of the chunk. */
type Blocks = readonly Uint8Array[];

function deflated(chunk: Uint8Array, level: number): Blocks | Promise<Blocks> {
  if (level === 0 || !isWorthwhile(chunk)) return storedBlocks(chunk);
  const options = {
    level,
    finishFlush: constants.Z_SYNC_FLUSH,
    // In one piece: zlib goes to its threads and back for each.
    chunkSize: chunk.length + 64,
  };
  const shorter = (data: Uint8Array): Blocks =>
    data.length < chunk.length ? [data] : storedBlocks(chunk);
  return chunk.length <= SMALL_BYTES
    ? shorter(deflateRawSync(chunk, options))
    : deflateRaw(chunk, options).then(shorter);
}

/** As `deflated`, of chunk after chunk: what did not shrink for a while will hardly begin to. */
function deflating(level: number): (chunk: Uint8Array) => ReturnType<typeof deflated> {
  let untried = 0;
  let left = 0;
  return (chunk) => {
    if (left > 0) {
      left--;
      return storedBlocks(chunk);
    }
    const blocks = deflated(chunk, level);
    untried = 'length' in blocks ? Math.min(2 * untried + 1, UNTRIED_MAX) : 0;
    left = untried;
    return blocks;
  };
}

function isWorthwhile(chunk: Uint8Array): boolean {
  if (chunk.length <= SMALL_BYTES) return chunk.length > PACKET_BYTES;
  const middle = (chunk.length - SAMPLE_BYTES) >> 1;
  const starts = [0, middle, chunk.length - SAMPLE_BYTES];
  const sample = Buffer.concat(starts.map((at) => chunk.subarray(at, at + SAMPLE_BYTES)));
  const shrunk = deflateRawSync(sample, { level: 1, chunkSize: sample.length + 64 });
  return shrunk.length < WORTHWHILE * sample.length;
}

const HEAD_OF_LARGEST: Uint8Array = blockHead(STORED_BLOCK_BYTES_MAX);

/** RFC 1951, 3.2.4: one byte for the kind, the length and its complement, and the bytes as they are. */
function storedBlocks(chunk: Uint8Array): Blocks {
  const blocks: Uint8Array[] = [];
  for (let at = 0; at < chunk.length; at += STORED_BLOCK_BYTES_MAX) {
    const block = chunk.subarray(at, at + STORED_BLOCK_BYTES_MAX);
    const isLargest = block.length === STORED_BLOCK_BYTES_MAX;
    blocks.push(isLargest ? HEAD_OF_LARGEST : blockHead(block.length), block);
  }
  return blocks;
}

function blockHead(bytes: number): Uint8Array {
  const head = Buffer.alloc(5);
  head.writeUInt16LE(bytes, 1);
  head.writeUInt16LE(0xffff - bytes, 3);
  return head;
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

/**
 * The same bytes in pieces of exactly that size, save the last. Each is a copy: what the source does with its own is its business.
 *
 * @param free where the reader puts pieces of that size that nobody needs any more: later ones overwrite them. New memory costs
 *   more than the copy does
 */
export async function* regrouped(
  pieces: AsyncIterable<Uint8Array>,
  bytes: number,
  free: Uint8Array[] = [],
): AsyncGenerator<Uint8Array> {
  let group: Uint8Array = Buffer.allocUnsafe(bytes);
  let filled = 0;
  for await (const piece of pieces) {
    for (let at = 0; at < piece.length; ) {
      const rest = piece.subarray(at, at + bytes - filled);
      group.set(rest, filled);
      filled += rest.length;
      at += rest.length;
      if (filled < bytes) continue;
      yield group;
      group = free.pop() ?? Buffer.allocUnsafe(bytes);
      filled = 0;
    }
  }
  if (filled > 0) yield group.subarray(0, filled);
}

/** The first piece, and the others. */
export async function* prepended(
  first: Uint8Array,
  rest: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  yield first;
  yield* rest;
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
