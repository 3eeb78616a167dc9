import type { RedisClient } from './client.js';

/** Why a client is not connected, as far as it has said so. */
export interface LastError {
  readonly error: Error | null;
}

/** One listener for each client, however many lock services use it. */
const known = new WeakMap<RedisClient, LastError>();

/** Listens for the last error of the client's connection: its commands only hear that there is none. A connection that is ready has none. */
export function lastErrorOf(client: RedisClient): LastError {
  const before = known.get(client);
  if (before) return before;
  const last: { error: Error | null } = { error: null };
  known.set(client, last);
  client.on?.('error', (error) => {
    last.error = error;
    // ioredis writes to the console what nobody listens for. The client's owner does not, so that stays as it is.
    if (client.listenerCount?.('error') === 1) {
      // biome-ignore lint/suspicious/noConsole: in ioredis' stead, see above.
      console.error('[ioredis] Unhandled error event:', error.stack);
    }
  });
  client.on?.('ready', () => {
    last.error = null;
  });
  return last;
}
