import { ConflictError } from '../core/errors.js';
import { publish, type StoreEvent } from '../events.js';
import { isSerializationFailure } from './client.js';
import type { Runtime } from './runtime.js';

const BACKOFF_BASE_MS = 10;
const BACKOFF_MAX_MS = 500;

/** The call that is tried again. */
export interface Retried {
  readonly runtime: Runtime;
  readonly signal: AbortSignal | undefined;
  readonly attemptsMax: number;
  /** Facts for the event that reports a further attempt. */
  readonly place: Omit<StoreEvent, 'store'>;
}

/**
 * Runs `attempt`, again while the server rolls it back because of concurrent transactions.
 *
 * @throws {ConflictError} each of `attemptsMax` attempts was rolled back
 * @throws the signal's reason, and the other errors of `attempt`
 */
export async function untilSerialized<Result>(
  retried: Retried,
  attempt: () => Promise<Result>,
): Promise<Result> {
  for (let attempts = 1; ; attempts++) {
    retried.signal?.throwIfAborted();
    try {
      return await attempt();
    } catch (error) {
      if (!isSerializationFailure(error)) throw error;
      await backOff(retried, attempts, error);
    }
  }
}

/**
 * Waits before the next attempt: a random time up to a bound that doubles from 20 to 500 ms.
 *
 * @throws {ConflictError} `attempt` was the last one
 */
export async function backOff(retried: Retried, attempt: number, error?: unknown): Promise<void> {
  const { runtime, signal, attemptsMax, place } = retried;
  const cause = error === undefined ? {} : { cause: error };
  if (attempt >= attemptsMax)
    throw new ConflictError({ resource: place.resources.join(', '), attempts: attempt }, cause);
  publish('fenced:store:retried', () => ({
    store: 'postgres',
    ...place,
    attempt,
    reason: 'conflict',
    ...(error !== undefined && { error }),
  }));
  const boundMs = Math.min(BACKOFF_MAX_MS, BACKOFF_BASE_MS * 2 ** attempt);
  await runtime.sleep(runtime.random() * boundMs, signal);
}
