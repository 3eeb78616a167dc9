import { InvalidArgumentError } from '../../core/errors.js';
import type { ByteRange } from '../arguments.js';

/** Tools for bytes that arrive in pieces. */

/** @throws {InvalidArgumentError} if the stream gives something else than strings and bytes. */
export async function* bytesOf(body: AsyncIterable<unknown>): AsyncGenerator<Uint8Array> {
  for await (const chunk of body) {
    if (chunk instanceof Uint8Array) yield chunk;
    else if (typeof chunk === 'string') yield Buffer.from(chunk);
    else
      throw new InvalidArgumentError(
        `a body's stream must give strings or Uint8Arrays type=${chunk === null ? 'null' : typeof chunk}`,
      );
  }
}

/**
 * Copies the bytes into pieces of exactly that size; the last may be smaller.
 *
 * @param free pieces that the reader no longer needs, for reuse. New memory costs more than copying
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

/** Puts one piece in front of the others. */
export async function* prepended(
  first: Uint8Array,
  rest: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  yield first;
  yield* rest;
}

/** Maps items in order, at most `ahead` of them before the reader needs them. */
export async function* inOrder<In, Out>(
  items: AsyncIterable<In>,
  ahead: number,
  map: (item: In) => Promise<Out>,
): AsyncGenerator<Out> {
  const underWay: Promise<Out>[] = [];
  for await (const item of items) {
    const mapped = map(item);
    // A failure is reported when the item is awaited below.
    mapped.catch(() => undefined);
    underWay.push(mapped);
    if (underWay.length <= ahead) continue;
    const next = underWay.shift();
    if (next !== undefined) yield await next;
  }
  for (const mapped of underWay) yield await mapped;
}

/** Passes on the pieces. At their end, checks the number of bytes, if that is known. */
export async function* exactly(
  bytes: number | undefined | (() => Promise<number | undefined>),
  pieces: AsyncIterable<Uint8Array>,
  wrongLength: (bytes: number, found: number) => Error,
): AsyncGenerator<Uint8Array> {
  const bytesMax = typeof bytes === 'number' ? bytes : Number.POSITIVE_INFINITY;
  let found = 0;
  for await (const piece of pieces) {
    found += piece.length;
    if (found > bytesMax) break;
    yield piece;
  }
  const wanted = typeof bytes === 'function' ? await bytes() : bytes;
  if (wanted !== undefined && wanted !== found) throw wrongLength(wanted, found);
}

/** All bytes together; null as soon as they are more than `bytesMax`. */
export async function collected(
  pieces: AsyncIterable<Uint8Array>,
  bytesMax: number,
): Promise<Uint8Array | null> {
  const all: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of pieces) {
    bytes += piece.length;
    if (bytes > bytesMax) return null;
    all.push(piece);
  }
  const [only] = all;
  // A whole buffer needs no copy. A slice would keep all of its buffer in memory.
  const isWhole = only !== undefined && only.length === only.buffer.byteLength;
  return isWhole && all.length === 1 ? only : Buffer.concat(all);
}

/**
 * The bytes of the range. Reads no more than these need.
 *
 * @param onSkip called with each piece before the range
 */
export async function* slice(
  body: AsyncIterable<Uint8Array>,
  { start, end = Number.POSITIVE_INFINITY }: ByteRange,
  onSkip: () => void = () => undefined,
): AsyncGenerator<Uint8Array> {
  let at = 0;
  for await (const piece of body) {
    const wanted = piece.subarray(Math.max(0, start - at), end + 1 - at);
    at += piece.length;
    if (wanted.length > 0) yield wanted;
    else onSkip();
    if (at > end) return;
  }
}
