import { pipeline } from 'node:stream';
import { promisify } from 'node:util';
import {
  crc32,
  createInflateRaw,
  inflateRaw as inflateRawCallback,
  inflateRawSync,
  type Zlib,
  type ZlibOptions,
} from 'node:zlib';
import { HEADER_BYTES, parseHeader, parseTrailer, TRAILER_BYTES } from '../../core/envelope.js';
import { CorruptObjectError } from '../../core/errors.js';
import type { Stamp, Stored } from '../../core/stored.js';
import { tooLarge } from '../http/explain.js';
import { prepended } from './pieces.js';

/**
 * Turns stored bytes into the caller's bytes, and checks them.
 *
 * A damaged padding bit of DEFLATE data may stay unnoticed, because nothing reads it. Any damage
 * that changes the body, the token or the write id is found.
 */

/** Size of zlib's output pieces. Each piece costs a round trip to zlib's threads. */
export const CHUNK_BYTES: number = 2 ** 16;
/** The most bytes that one byte of DEFLATE data can hold. */
const DEFLATE_RATIO_MAX = 1032;
const PIECE_BYTES_MAX = 2 ** 24;
/** Up to this size, a round trip to zlib's threads takes longer than inflating. */
const SMALL_BYTES = 2 ** 14;
/** Kind, length and complement of the length of a stored block (RFC 1951, 3.2.4). */
const BLOCK_HEAD_BYTES = 5;
/** Distance over which a block of DEFLATE data may refer to earlier bytes. */
const WINDOW_BYTES = 2 ** 15;

// With `info`, zlib also reports how much input it used. The types of Node do not know that.
type Inflated = { readonly buffer: Uint8Array; readonly engine: Zlib };
type Inflate<Result> = (data: Uint8Array, options: ZlibOptions) => Result;
const inflateRaw = promisify(inflateRawCallback) as unknown as Inflate<Promise<Inflated>>;
const inflateRawAtOnce = inflateRawSync as unknown as Inflate<Inflated>;

/**
 * Returns the caller's bytes, and the stamp that they were stored with.
 *
 * @throws {CorruptObjectError} if the format, the CRC or the length is wrong.
 * @throws {UnsupportedByStoreError} if the body is larger than `bodyBytesMax`.
 */
export async function decode(
  resource: string,
  member: Uint8Array,
  bodyBytesMax: number,
): Promise<{ readonly stamp: Stamp; readonly body: Uint8Array }> {
  const stamp = parseHeader(resource, member);
  const trailerAt = Math.max(HEADER_BYTES, member.length - TRAILER_BYTES);
  const trailer = parseTrailer(resource, member.subarray(trailerAt));
  const bytes = trailer.lengthMod2e32;
  const data = member.subarray(HEADER_BYTES, trailerAt);
  if (bytes > DEFLATE_RATIO_MAX * data.length) throw damaged(resource);
  if (bytes > bodyBytesMax) throw tooLarge(resource, bodyBytesMax);
  const options = {
    info: true,
    // One piece, with room to notice the end: each piece costs a round trip to zlib's threads.
    chunkSize: Math.min(bytes + 64, PIECE_BYTES_MAX),
    maxOutputLength: Math.max(bytes, 1),
  };
  const isSmall = Math.max(bytes, data.length) <= SMALL_BYTES;
  const inflate = isSmall ? async () => inflateRawAtOnce(data, options) : inflateRaw;
  const { buffer: body, engine } = await inflate(data, options).catch((cause: unknown) => {
    throw damaged(resource, cause);
  });
  // All input must be used: zlib ignores bytes behind the end of the data.
  const isWhole = engine.bytesWritten === data.length && body.length === bytes;
  if (!isWhole || crc32(body) !== trailer.crc32) throw damaged(resource);
  return { stamp, body };
}

/**
 * Decodes piece by piece. The bytes are known to be undamaged only when the stream has ended
 * without an error. Overwrites the pieces of the source.
 *
 * @param stored stamp and length according to the metadata
 * @throws {CorruptObjectError} as `decode`, and if the body does not have that length.
 */
export async function* decodeStream(
  resource: string,
  { bodyBytes, ...stamp }: Stamp & Pick<Stored, 'bodyBytes'>,
  member: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  const data = new MemberData(resource, stamp, member);
  const blocks = new StoredBlocks();
  let length = 0;
  let checksum = 0;
  const counted = (chunk: Uint8Array): Uint8Array => {
    checksum = crc32(chunk, checksum);
    length += chunk.length;
    if (length > (bodyBytes ?? length)) throw wrongLength(resource);
    return chunk;
  };
  try {
    while (!blocks.areOver) {
      const piece = await data.next();
      if (piece === null) break;
      const chunk = joined([...blocks.in(piece)]);
      if (chunk.length > 0) yield counted(chunk);
    }
    for await (const chunk of blocks.inflateRest(data)) yield counted(chunk);
  } catch (error) {
    throw isOfZlib(error) ? damaged(resource, error) : error;
  } finally {
    data.cancel();
  }
  const isUsedUp = data.trailer !== null && blocks.usedBytes === data.bytes;
  const trailer = parseTrailer(resource, data.trailer ?? new Uint8Array());
  const isWhole = isUsedUp && length % 2 ** 32 === trailer.lengthMod2e32;
  if (!isWhole || checksum !== trailer.crc32) throw damaged(resource);
  if (length !== (bodyBytes ?? length)) throw wrongLength(resource);
}

/** Joins neighbouring chunks of one buffer in place, because each piece costs its readers time. */
function joined([first = new Uint8Array(), ...others]: readonly Uint8Array[]): Uint8Array {
  const bytes = others.reduce((sum, { length }) => sum + length, first.length);
  const all = new Uint8Array(first.buffer, first.byteOffset, bytes);
  let at = first.length;
  for (const chunk of others) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return all;
}

/**
 * Reader of stored blocks in DEFLATE data that arrives in pieces. They need no zlib, which takes
 * several times as long for them. From the first other block on, zlib inflates the rest; it is
 * given the latest bytes, because its blocks may refer to them.
 */
class StoredBlocks {
  usedBytes = 0;
  /** True if a block of another kind has come. */
  areOver = false;
  /** The beginning of a block head that is incomplete. If `areOver`, the input for zlib so far. */
  #rest: Uint8Array = new Uint8Array();
  /** A copy of the latest bytes, at its end: readers may overwrite the bytes that they get. */
  readonly #window = Buffer.allocUnsafe(WINDOW_BYTES);
  #windowBytes = 0;
  /** Bytes of the current block that are still to come. */
  #leftBytes = 0;

  *in(piece: Uint8Array): Generator<Uint8Array> {
    let rest = this.#rest.length > 0 ? Buffer.concat([this.#rest, piece]) : piece;
    for (;;) {
      const bytes = rest.subarray(0, this.#leftBytes);
      rest = rest.subarray(bytes.length);
      this.#leftBytes -= bytes.length;
      this.usedBytes += bytes.length;
      this.#remember(bytes);
      if (bytes.length > 0) yield bytes;
      const blockBytes = rest.length < BLOCK_HEAD_BYTES ? null : storedBlockBytes(rest);
      if (blockBytes === null) break;
      rest = rest.subarray(BLOCK_HEAD_BYTES);
      this.#leftBytes = blockBytes;
      this.usedBytes += BLOCK_HEAD_BYTES;
    }
    this.#rest = rest;
    this.areOver = rest.length >= BLOCK_HEAD_BYTES;
  }

  /** The bytes of all blocks that follow. */
  async *inflateRest(data: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    const dictionary = this.#window.subarray(WINDOW_BYTES - this.#windowBytes);
    const options = { chunkSize: CHUNK_BYTES, ...(dictionary.length > 0 && { dictionary }) };
    const inflate = createInflateRaw(options);
    pipeline(prepended(this.#rest, data), inflate, () => undefined);
    yield* inflate as AsyncIterable<Uint8Array>;
    this.usedBytes += inflate.bytesWritten;
  }

  #remember(bytes: Uint8Array): void {
    const latest = bytes.subarray(-WINDOW_BYTES);
    this.#window.copyWithin(0, latest.length);
    this.#window.set(latest, WINDOW_BYTES - latest.length);
    this.#windowBytes = Math.min(WINDOW_BYTES, this.#windowBytes + latest.length);
  }
}

/** The length of the block that begins here; null if it is another kind of block, or the last. */
function storedBlockBytes(data: Uint8Array): number | null {
  const bytes = (data[1] ?? 0) + 256 * (data[2] ?? 0);
  const complement = (data[3] ?? 0) + 256 * (data[4] ?? 0);
  return data[0] === 0 && complement === 0xffff - bytes ? bytes : null;
}

/** The data of a member that arrives in pieces: checks the header, and holds back the trailer. */
class MemberData {
  /** Null until the source has ended. */
  trailer: Uint8Array | null = null;
  bytes = 0;
  readonly #pieces: AsyncIterator<Uint8Array>;
  readonly #begin: () => Promise<Uint8Array>;
  /** The latest piece, which may contain the trailer; null before the first. */
  #held: Uint8Array | null = null;

  constructor(resource: string, stamp: Stamp, member: AsyncIterable<Uint8Array>) {
    this.#pieces = member[Symbol.asyncIterator]();
    this.#begin = () => withHeader(resource, stamp, this.#pieces);
  }

  /** The next bytes, perhaps none; null at the end. */
  async next(): Promise<Uint8Array | null> {
    if (this.trailer !== null) return null;
    const held = this.#held ?? (await this.#begin()).subarray(HEADER_BYTES);
    const { done, value: next } = await this.#pieces.next();
    const trailerMax = done || next.length < TRAILER_BYTES ? TRAILER_BYTES : 0;
    const end = Math.max(0, held.length - trailerMax);
    const rest = held.subarray(end);
    if (done) this.trailer = rest;
    else this.#held = rest.length > 0 ? Buffer.concat([rest, next]) : next;
    this.bytes += end;
    return held.subarray(0, end);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    for (let data = await this.next(); data !== null; data = await this.next()) yield data;
  }

  /** Ends the source. Does not wait for its end, because zlib may still wait for a piece. */
  cancel(): void {
    this.#pieces.return?.().catch(() => undefined);
  }
}

/** Reads pieces until the whole header is there, and checks it. */
async function withHeader(
  resource: string,
  stamp: Stamp,
  pieces: AsyncIterator<Uint8Array>,
): Promise<Uint8Array> {
  let begun: Uint8Array = new Uint8Array();
  while (begun.length < HEADER_BYTES) {
    const { done, value } = await pieces.next();
    if (done) break;
    begun = Buffer.concat([begun, value]);
  }
  checkStamp(resource, parseHeader(resource, begun), stamp);
  return begun;
}

/** Passes on a member in pieces. The first has the whole header, which is checked. */
export async function* withCheckedHeader(
  resource: string,
  stamp: Stamp,
  member: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  const pieces = member[Symbol.asyncIterator]();
  try {
    yield await withHeader(resource, stamp, pieces);
    yield* { [Symbol.asyncIterator]: () => pieces };
  } finally {
    await pieces.return?.();
  }
}

/** @throws {CorruptObjectError} if bytes and metadata were written by different writes. */
export function checkStamp(resource: string, found: Stamp, expected: Stamp): void {
  if (found.token !== expected.token || found.writeId !== expected.writeId)
    throw new CorruptObjectError(
      resource,
      'the stored body and its metadata are of different writes',
    );
}

function damaged(resource: string, cause?: unknown): CorruptObjectError {
  const reason = 'the stored body is damaged: its checksum is wrong';
  return new CorruptObjectError(resource, reason, { cause });
}

/** The error for a body whose length differs from that in its metadata. */
export function wrongLength(resource: string): CorruptObjectError {
  return new CorruptObjectError(
    resource,
    'the stored body does not have the length that its metadata says',
  );
}

export function isOfZlib(error: unknown): boolean {
  return String((error as { readonly code?: unknown } | null)?.code).startsWith('Z_');
}
