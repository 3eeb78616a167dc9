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
import { inOrder, regrouped } from './pieces.js';

/**
 * Turns the caller's bytes into stored bytes. Each chunk is deflated alone, up to a byte boundary:
 * so several can be deflated at once, and no more than these are in memory.
 */

const deflateRaw = promisify<Uint8Array, ZlibOptions, Uint8Array>(deflateRawCallback);

const CHUNK_BYTES = 2 ** 20;
/** Number of chunks that a stream deflates ahead of its reader. */
const CHUNKS_AHEAD = 2;
/** A body that fits into one network packet would not arrive sooner if it were smaller. */
const PACKET_BYTES = 1_400;
/** Three samples of this size decide whether a chunk is worth deflating. */
const SAMPLE_BYTES = 4_096;
/** Up to this size, a round trip to zlib's threads takes longer than deflating. */
const SMALL_BYTES = 4 * SAMPLE_BYTES;
/** A sample that shrinks less than to this share is stored as it is, which makes reading cheap. */
const WORTHWHILE = 0.95;
const STORED_BLOCK_BYTES_MAX = 65_535;
/** An empty last block, which ends the DEFLATE data (RFC 1951). */
const END: Buffer = Buffer.of(0x03, 0x00);
/** Space for the header, until the write has its stamp. */
const HEADER_ROOM: Uint8Array = new Uint8Array(HEADER_BYTES);

/** The stored form of bodies. */
export interface Encoding {
  readonly layout: Layout;
  /** From 0, not compressed, to 9. */
  readonly gzipLevel: number;
}

/** Content types of compressed data. Under other types, samples show if data are compressed. */
const COMPRESSED_TYPE =
  /^(image\/(?!svg|bmp|x-ms-bmp|tiff)|video\/|audio\/(?!wav|x-wav|basic)|font\/woff|application\/(zip|gzip|x-gzip|zstd|x-7z-compressed|x-xz|x-bzip2|vnd\.rar|java-archive|vnd\.openxmlformats-))/i;

/** Does not compress a body of a type that is compressed already. */
export function encodingFor(encoding: Encoding, contentType = ''): Encoding {
  return COMPRESSED_TYPE.test(contentType) ? { ...encoding, gzipLevel: 0 } : encoding;
}

/**
 * Returns a stored form of the body, with space for the stamp. It belongs to the caller alone.
 *
 * @throws {InvalidArgumentError} if the caller changed the body during that: its checksum would be
 *   wrong, and the object unreadable.
 */
export async function encode(
  body: Uint8Array,
  { layout, gzipLevel }: Encoding,
): Promise<Uint8Array> {
  if (layout === 'plain') return new Uint8Array(body);
  const checksum = crc32(body);
  const member = (data: readonly Blocks[]): Uint8Array =>
    Buffer.concat([HEADER_ROOM, ...data.flat(), END, envelopeTrailer(checksum, body.length)]);
  const starts = Array.from({ length: Math.ceil(body.length / CHUNK_BYTES) }, (_, i) => i);
  const chunks = starts.map((i) => body.subarray(i * CHUNK_BYTES, (i + 1) * CHUNK_BYTES));
  const data = chunks.map((chunk) => deflated(chunk, gzipLevel));
  // Nothing was awaited, so the body cannot have changed.
  if (data.every((blocks) => 'length' in blocks)) return member(data);
  const encoded = member(await Promise.all(data));
  if (crc32(body) !== checksum)
    throw new InvalidArgumentError('the body was changed before it was written: pass a copy');
  return encoded;
}

/**
 * Encodes piece by piece. Reading a piece may overwrite the one before, so copy each at once.
 *
 * @param onRead called with the number of bytes that were read so far
 */
export async function* encodeStream(
  body: AsyncIterable<Uint8Array>,
  { layout, gzipLevel }: Encoding,
  onRead: (bodyBytes: number) => void,
): AsyncGenerator<Uint8Array> {
  let checksum = 0;
  let length = 0;
  const free: Uint8Array[] = [];
  const chunks = async function* (): AsyncGenerator<Uint8Array> {
    for await (const chunk of regrouped(body, CHUNK_BYTES, free)) {
      checksum = crc32(chunk, checksum);
      length += chunk.length;
      onRead(length);
      yield chunk;
    }
  };
  const stored = async (chunk: Uint8Array): Promise<readonly [Uint8Array, Blocks]> => [
    chunk,
    layout === 'plain' ? [chunk] : await deflated(chunk, gzipLevel),
  ];
  if (layout === 'gzip') yield HEADER_ROOM;
  for await (const [chunk, blocks] of inOrder(chunks(), CHUNKS_AHEAD, stored)) {
    yield* blocks;
    free.push(chunk);
  }
  if (layout === 'plain') return;
  yield END;
  yield envelopeTrailer(checksum, length);
}

/** Writes the stamp into a stored body, or into its first part. */
export function writeStamp(encoded: Uint8Array, stamp: Stamp & { readonly layout: Layout }): void {
  if (stamp.layout === 'gzip') encoded.set(envelopeHeader(stamp));
}

/**
 * DEFLATE blocks of one chunk, without a last block. They end at a byte boundary. Some are views of
 * the chunk.
 */
type Blocks = readonly Uint8Array[];

function deflated(chunk: Uint8Array, level: number): Blocks | Promise<Blocks> {
  if (level === 0 || !isWorthwhile(chunk)) return storedBlocks(chunk);
  const options = {
    level,
    finishFlush: constants.Z_SYNC_FLUSH,
    // One piece: each costs a round trip to zlib's threads.
    chunkSize: chunk.length + 64,
  };
  const shorter = (data: Uint8Array): Blocks =>
    data.length < chunk.length ? [data] : storedBlocks(chunk);
  return chunk.length <= SMALL_BYTES
    ? shorter(deflateRawSync(chunk, options))
    : deflateRaw(chunk, options).then(shorter);
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

/** Stored blocks (RFC 1951, 3.2.4): kind, length and complement of the length, then the bytes. */
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
