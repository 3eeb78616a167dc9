import type { Readable } from 'node:stream';
import { startTimer, tookTooLong } from '../runtime.js';
import { asBroken } from './explain.js';

/**
 * The bytes of a reply. Each piece must come within `limitMs` after the reader asked for it.
 *
 * One timer serves all pieces: a timer and a race for each would cost more than the pieces.
 */
export async function* arriving(
  resource: string,
  body: Readable,
  limitMs: number,
  signal?: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const pieces = body[Symbol.asyncIterator]() as AsyncIterator<Uint8Array>;
  // Ends the wait for a piece. Has no effect while the reader works on the last piece.
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
