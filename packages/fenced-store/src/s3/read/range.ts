import { checkObject, checkWholeNumber } from '../../core/check.js';
import { InvalidArgumentError } from '../../core/errors.js';

/**
 * Bytes of a body as the caller wrote it, whatever form it is stored in: from `start` to `end`, both counted, as in HTTP and
 * `createReadStream`. Without `end`, to the end of the body.
 */
export interface ByteRange {
  readonly start: number;
  readonly end?: number;
}

/** @throws {InvalidArgumentError} */
export function checkRange(range: ByteRange | undefined): void {
  if (range === undefined) return;
  checkObject('range', range);
  const { start, end } = range;
  checkWholeNumber('range.start', start, 0, Number.MAX_SAFE_INTEGER);
  if (end === undefined) return;
  checkWholeNumber('range.end', end, 0, Number.MAX_SAFE_INTEGER);
  if (end < start)
    throw new InvalidArgumentError(
      `range.end must not be before range.start start=${start} end=${end}`,
    );
}

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
