import { StoreUnavailableError } from '../core/errors.js';
import type { Runtime } from './runtime.js';

/** A time limit in milliseconds, and the signal that ends the wait earlier. */
export interface WaitLimit {
  readonly limitMs: number;
  readonly signal: AbortSignal | undefined;
}

/**
 * The answer, if it comes within the limit and before the signal aborts. Neither ends the work that
 * makes the answer.
 *
 * @throws {StoreUnavailableError} the limit is over
 * @throws the signal's reason
 */
export async function within<Answer>(
  answer: Promise<Answer>,
  { limitMs, signal }: WaitLimit,
  runtime: Runtime,
  advice: string,
): Promise<Answer> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const abort = (): void => reject(signal?.reason);
  signal?.addEventListener('abort', abort, { once: true });
  const cancel = runtime.after(limitMs, () =>
    reject(new StoreUnavailableError(`no answer from PostgreSQL within ${limitMs} ms: ${advice}`)),
  );
  try {
    return await Promise.race([answer, late]);
  } finally {
    cancel();
    signal?.removeEventListener('abort', abort);
  }
}
