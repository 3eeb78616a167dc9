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
import {
  HEADER_BYTES,
  parseHeader,
  parseTrailer,
  TRAILER_BYTES,
  type Trailer,
} from '../../core/envelope.js';
import { CorruptObjectError } from '../../core/errors.js';
import type { Stamp } from '../../core/stored.js';
import { tooLarge } from '../http/failures.js';
import { END, prepended } from './seal.js';

/**
 * How stored bytes become the caller's again.
 *
 * Of a damaged member, some padding bits of the DEFLATE data may go unnoticed (nothing reads them); whatever would change
 * the bytes, the token or the write id is found.
 */

/** What a stream makes at once: each piece costs a way to zlib's threads and back. */
export const CHUNK_BYTES: number = 2 ** 16;
/** No DEFLATE data holds more than this many bytes for one of its own. */
const DEFLATE_RATIO_MAX = 1032;
const PIECE_BYTES_MAX = 2 ** 24;
/** Bodies up to this size are inflated at once: the way to zlib's threads and back would take several times as long. */
const SMALL_BYTES = 2 ** 14;
/** Before the bytes of a stored block: its kind, its length and the complement of that. */
const BLOCK_HEAD_BYTES = 5;
/** How far back a block of DEFLATE data may refer. */
const WINDOW_BYTES = 2 ** 15;
/** `seal` writes 17 blocks for each MiB. Of far smaller ones, which somebody made up, each would cost more memory than it holds. */
const BLOCK_BYTES_USUAL = 2 ** 15;
const BLOCKS_MORE = 16;

// With `info`, zlib also tells how much of its input it has used; the types do not know that.
interface Inflated {
  readonly buffer: Uint8Array;
  readonly engine: Zlib;
}
const inflateRaw = promisify(inflateRawCallback) as unknown as (
  data: Uint8Array,
  options: ZlibOptions,
) => Promise<Inflated>;
const inflateRawAtOnce = inflateRawSync as unknown as (
  data: Uint8Array,
  options: ZlibOptions,
) => Inflated;

/**
 * The caller's bytes and the stamp they were stored with.
 *
 * @throws {CorruptObjectError} where the CRC, the length or the format does not hold.
 * @throws {UnsupportedByStoreError} where there are more of them than `bodyBytesMax`.
 */
export async function open(
  resource: string,
  member: Uint8Array,
  bodyBytesMax: number,
): Promise<{ readonly stamp: Stamp; readonly body: Uint8Array }> {
  const stamp = parseHeader(resource, member);
  const trailerAt = Math.max(HEADER_BYTES, member.length - TRAILER_BYTES);
  const trailer = parseTrailer(resource, member.subarray(trailerAt));
  const data = member.subarray(HEADER_BYTES, trailerAt);
  if (trailer.lengthMod2e32 > DEFLATE_RATIO_MAX * data.length) throw damaged(resource);
  if (trailer.lengthMod2e32 > bodyBytesMax) throw tooLarge(resource, bodyBytesMax);
  const asItWas = unstored(data);
  const { body, usedBytes } = asItWas
    ? { body: asItWas, usedBytes: data.length }
    : await inflated(data, trailer.lengthMod2e32).catch((cause: unknown) => {
        throw damaged(resource, cause);
      });
  check(resource, trailer, {
    isUsedUp: usedBytes === data.length,
    length: body.length,
    crc32: crc32(body),
  });
  return { stamp, body };
}

/**
 * The bytes of DEFLATE data that `seal` found not worth deflating: copying them takes a fraction of the time that zlib does.
 * Null where there is anything else than stored blocks and the end, to the last bit, as `seal` writes them; zlib decides then.
 */
export function unstored(data: Uint8Array): Uint8Array | null {
  const { buffer, byteOffset, byteLength } = data;
  const view = new DataView(buffer, byteOffset, byteLength);
  const blocks: Uint8Array[] = [];
  let at = 0;
  while (at + BLOCK_HEAD_BYTES <= data.length) {
    if (blocks.length > BLOCKS_MORE + data.length / BLOCK_BYTES_USUAL) return null;
    const bytes = view.getUint16(at + 1, true);
    if (data[at] !== 0 || view.getUint16(at + 3, true) !== 0xffff - bytes) return null;
    at += BLOCK_HEAD_BYTES;
    blocks.push(data.subarray(at, at + bytes));
    at += bytes;
  }
  return END.equals(data.subarray(at)) ? Buffer.concat(blocks) : null;
}

/** @param bytes how many there will be, as the trailer says: zlib makes no more; whether that is true is for the caller to find out */
async function inflated(
  data: Uint8Array,
  bytes: number,
): Promise<{ readonly body: Uint8Array; readonly usedBytes: number }> {
  // In one piece, where the length is what it says, with room to see that it ends: zlib goes to its threads and back for each.
  const options = {
    info: true,
    chunkSize: Math.min(bytes + 64, PIECE_BYTES_MAX),
    maxOutputLength: Math.max(bytes, 1),
  };
  const { buffer, engine } =
    Math.max(bytes, data.length) > SMALL_BYTES
      ? await inflateRaw(data, options)
      : inflateRawAtOnce(data, options);
  return { body: buffer, usedBytes: engine.bytesWritten };
}

/**
 * As `open`, piece by piece: the bytes are known to be the caller's when the last has come without an error.
 *
 * @param stamp what the metadata say
 */
export async function* opened(
  resource: string,
  stamp: Stamp,
  member: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  const data = new Data(resource, stamp, member);
  const blocks = new StoredBlocks();
  let length = 0;
  let checksum = 0;
  const counted = (chunk: Uint8Array): Uint8Array => {
    checksum = crc32(chunk, checksum);
    length += chunk.length;
    return chunk;
  };
  try {
    // A generator that awaits costs several microseconds for each piece, so the stored blocks are taken apart by a plain one.
    for (let next = await data.next(); !next.done; next = await data.next()) {
      for (const chunk of blocks.in(next.value)) yield counted(chunk);
      if (blocks.areOver) break;
    }
    for await (const chunk of blocks.byZlib(data)) yield counted(chunk);
  } catch (error) {
    throw isOfZlib(error) ? damaged(resource, error) : error;
  } finally {
    // Not awaited: zlib may still be waiting for a piece.
    data.return().catch(() => undefined);
  }
  check(resource, parseTrailer(resource, data.trailer), {
    isUsedUp: data.ended && blocks.usedBytes === data.bytes,
    length,
    crc32: checksum,
  });
}

/**
 * The bytes of DEFLATE data that arrives in pieces. Stored blocks need no zlib, which takes several times as long for them: their
 * bytes are handed on as they came. From the first other block on, zlib reads all, and is given the bytes before: zlib itself begins
 * a chunk with stored blocks at times, to which later blocks refer.
 */
class StoredBlocks {
  /** How much of the data was needed. */
  usedBytes = 0;
  /** Whether another block has come. */
  areOver = false;
  /** The latest bytes, in a copy: those that were handed on are the reader's. */
  readonly #latest = Buffer.allocUnsafe(2 * WINDOW_BYTES);
  #latestBytes = 0;
  /** What has come of a block's head, or from the first other block on. */
  #rest: Uint8Array = new Uint8Array();
  /** How much of a block is still to come. */
  #left = 0;

  *in(piece: Uint8Array): Generator<Uint8Array> {
    let rest = this.#rest.length > 0 ? Buffer.concat([this.#rest, piece]) : piece;
    this.#rest = new Uint8Array();
    while (rest.length > 0) {
      const bytes = rest.subarray(0, this.#left);
      this.#keep(bytes);
      if (bytes.length > 0) yield bytes;
      this.usedBytes += bytes.length;
      this.#left -= bytes.length;
      rest = rest.subarray(bytes.length);
      const blockBytes = rest.length < BLOCK_HEAD_BYTES ? null : storedBlockBytes(rest);
      if (blockBytes === null) {
        this.areOver = rest.length >= BLOCK_HEAD_BYTES;
        this.#rest = rest;
        return;
      }
      this.#left = blockBytes;
      this.usedBytes += BLOCK_HEAD_BYTES;
      rest = rest.subarray(BLOCK_HEAD_BYTES);
    }
  }

  #keep(bytes: Uint8Array): void {
    const last = bytes.subarray(-WINDOW_BYTES);
    if (this.#latestBytes + last.length > this.#latest.length) {
      this.#latest.copyWithin(0, this.#latestBytes - WINDOW_BYTES, this.#latestBytes);
      this.#latestBytes = WINDOW_BYTES;
    }
    this.#latest.set(last, this.#latestBytes);
    this.#latestBytes += last.length;
  }

  /** What comes after the stored blocks. */
  async *byZlib(data: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    const start = Math.max(0, this.#latestBytes - WINDOW_BYTES);
    const dictionary = this.#latest.subarray(start, this.#latestBytes);
    const options = { chunkSize: CHUNK_BYTES, ...(dictionary.length > 0 && { dictionary }) };
    const inflate = createInflateRaw(options);
    pipeline(prepended(this.#rest, data), inflate, () => undefined);
    yield* inflate as AsyncIterable<Uint8Array>;
    this.usedBytes += inflate.bytesWritten;
  }
}

/** How many bytes the block holds that begins here; null if it is no stored one, or the last one. */
function storedBlockBytes(data: Uint8Array): number | null {
  const bytes = (data[1] ?? 0) + 256 * (data[2] ?? 0);
  const complement = (data[3] ?? 0) + 256 * (data[4] ?? 0);
  return data[0] === 0 && complement === 0xffff - bytes ? bytes : null;
}

/**
 * The data of a member that arrives in pieces. The header is checked, and the trailer is held back.
 *
 * Not a generator: each `yield` of one that awaits costs several microseconds.
 */
class Data implements AsyncIterableIterator<Uint8Array> {
  trailer: Uint8Array = new Uint8Array();
  bytes = 0;
  ended = false;
  readonly #head: Head;
  readonly #pieces: AsyncIterator<Uint8Array>;
  #headerBytes = HEADER_BYTES;
  /** The last piece, which may be or begin the trailer. */
  #held: Uint8Array = new Uint8Array();

  constructor(resource: string, stamp: Stamp, member: AsyncIterable<Uint8Array>) {
    this.#head = new Head(resource, stamp);
    this.#pieces = member[Symbol.asyncIterator]();
  }

  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    while (!this.ended) {
      const { done, value } = await this.#pieces.next();
      const data = done ? this.#last() : this.#take(value);
      this.bytes += data.length;
      if (data.length > 0) return { done: false, value: data };
    }
    return { done: true, value: undefined };
  }

  async return(): Promise<IteratorReturnResult<undefined>> {
    await this.#pieces.return?.();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #take(piece: Uint8Array): Uint8Array {
    const begun = this.#head.take(piece);
    if (begun === null) return new Uint8Array();
    const next = begun.subarray(this.#headerBytes);
    this.#headerBytes = 0;
    const held = this.#held;
    const kept = next.length < TRAILER_BYTES ? TRAILER_BYTES : 0;
    const end = Math.max(0, held.length - kept);
    this.#held = end < held.length ? Buffer.concat([held.subarray(end), next]) : next;
    return held.subarray(0, end);
  }

  #last(): Uint8Array {
    this.#head.end();
    const end = Math.max(0, this.#held.length - TRAILER_BYTES);
    this.trailer = this.#held.subarray(end);
    this.ended = true;
    return this.#held.subarray(0, end);
  }
}

/** The beginning of a member that arrives in pieces. Its header is checked as soon as all of it is there. */
class Head {
  readonly #resource: string;
  readonly #stamp: Stamp;
  #begun: Uint8Array | null = new Uint8Array();

  constructor(resource: string, stamp: Stamp) {
    this.#resource = resource;
    this.#stamp = stamp;
  }

  /** @returns the piece, the first one with the whole header; null while that has not come */
  take(piece: Uint8Array): Uint8Array | null {
    if (this.#begun === null) return piece;
    const begun = Buffer.concat([this.#begun, piece]);
    this.#begun = begun;
    if (begun.length < HEADER_BYTES) return null;
    checkStamp(this.#resource, parseHeader(this.#resource, begun), this.#stamp);
    this.#begun = null;
    return begun;
  }

  /** @throws {CorruptObjectError} if the header never came */
  end(): void {
    if (this.#begun !== null) parseHeader(this.#resource, this.#begun);
  }
}

/** A member that arrives in pieces, the first of which has the whole header, which is checked. */
export async function* headed(
  resource: string,
  stamp: Stamp,
  member: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  const head = new Head(resource, stamp);
  for await (const piece of member) {
    const begun = head.take(piece);
    if (begun !== null) yield begun;
  }
  head.end();
}

/** @throws {CorruptObjectError} where bytes and metadata tell of different writes. */
export function checkStamp(resource: string, found: Stamp, expected: Stamp): void {
  if (found.token !== expected.token || found.writeId !== expected.writeId)
    throw new CorruptObjectError(
      resource,
      'the stored body and its metadata are of different writes',
    );
}

function check(
  resource: string,
  trailer: Trailer,
  found: { readonly isUsedUp: boolean; readonly length: number; readonly crc32: number },
): void {
  const holds =
    found.isUsedUp &&
    found.length % 2 ** 32 === trailer.lengthMod2e32 &&
    found.crc32 === trailer.crc32;
  if (!holds) throw damaged(resource);
}

function damaged(resource: string, cause?: unknown): CorruptObjectError {
  return new CorruptObjectError(
    resource,
    'the stored body is damaged: its checksum does not hold',
    { cause },
  );
}

/** Whether zlib stopped because there was more than it was to make. */
export function isCutShort(error: unknown): boolean {
  return (error as { readonly code?: unknown } | null)?.code === 'ERR_BUFFER_TOO_LARGE';
}

export function isOfZlib(error: unknown): boolean {
  const code = (error as { readonly code?: unknown } | null)?.code;
  return typeof code === 'string' && code.startsWith('Z_');
}
