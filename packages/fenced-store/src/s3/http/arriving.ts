import type { Readable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { startTimer, timeLimit, tookTooLong, unlessAborted } from '../runtime.js';
import { asBroken } from './failures.js';

/** What the reader of a body waits for. */
export interface Patience {
  /** For each piece. */
  readonly limitMs: number;
  readonly signal: AbortSignal | undefined;
}

/**
 * The bytes of a reply. While the reader waits for a piece, it must come within the limit.
 *
 * One timer serves all pieces: a timer and a race for each cost more than the pieces do.
 */
export async function* arriving(
  resource: string,
  body: Readable,
  { limitMs, signal }: Patience,
): AsyncGenerator<Uint8Array> {
  const pieces = body[Symbol.asyncIterator]() as AsyncIterator<Uint8Array>;
  // Ends the wait for a piece; without effect while the reader has one.
  let giveUp: (reason: unknown) => void = () => undefined;
  const timer = startTimer(() => giveUp(tookTooLong()), limitMs);
  const onAbort = (): void => giveUp(signal?.reason);
  signal?.addEventListener('abort', onAbort);
  try {
    for (;;) {
      signal?.throwIfAborted();
      timer.refresh();
      const next = await new Promise<IteratorResult<Uint8Array>>((resolve, reject) => {
        giveUp = reject;
        pieces.next().then(resolve, reject);
      });
      if (next.done) return;
      yield next.value;
    }
  } catch (cause) {
    signal?.throwIfAborted();
    throw asBroken(resource, cause);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', onAbort);
    body.destroy();
  }
}

/** As `arriving`, all of them together; quicker, as nobody waits for the single piece. Null if they are more than `bytesMax`. */
export async function arrived(
  resource: string,
  body: Readable,
  { limitMs, signal, bytesMax }: Patience & { readonly bytesMax: number },
): Promise<Uint8Array | null> {
  const pieces: Uint8Array[] = [];
  const limit = timeLimit(limitMs);
  let bytes = 0;
  body.on('data', (piece: Uint8Array) => {
    bytes += piece.length;
    if (bytes > bytesMax) body.destroy();
    else pieces.push(piece);
    limit.renew();
  });
  try {
    const either = signal ? AbortSignal.any([limit.signal, signal]) : limit.signal;
    await unlessAborted(finished(body), either);
  } catch (cause) {
    if (bytes > bytesMax) return null;
    signal?.throwIfAborted();
    throw asBroken(resource, cause);
  } finally {
    limit.lift();
    body.destroy();
  }
  return Buffer.concat(pieces);
}
