import type { ByteRange } from '../arguments.js';

/** The bytes of the range, and no more is read than these need. `onSkip` is called with each piece before them. */
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
