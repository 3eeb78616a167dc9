import { once } from 'node:events';
import { connect } from 'node:net';
import type { PostgresClient } from './client.js';

/** The number that PostgreSQL's protocol gives to CancelRequest. */
const CANCEL_REQUEST = 80_877_102;

/**
 * Asks the server to end the statement that is running on this connection, over one of its own, as the protocol wants it.
 * Resolves when the server has passed it on, or cannot be reached. Never rejects; `signal` gives it up.
 *
 * Source: PostgreSQL documentation, "Message Formats", CancelRequest. No password goes with it, so it needs no TLS.
 */
export async function cancelRunning(client: PostgresClient, signal: AbortSignal): Promise<void> {
  const { host, port, processID, secretKey } = client as Partial<
    Record<'host' | 'port' | 'processID' | 'secretKey', unknown>
  >;
  if (typeof processID !== 'number' || typeof secretKey !== 'number') return;
  const socket = connect(
    typeof host === 'string' && host.startsWith('/')
      ? { path: `${host}/.s.PGSQL.${port}` }
      : { host: String(host), port: Number(port) },
  );
  const message = Buffer.alloc(16);
  message.writeInt32BE(message.length, 0);
  message.writeInt32BE(CANCEL_REQUEST, 4);
  message.writeInt32BE(processID, 8);
  message.writeInt32BE(secretKey, 12);
  try {
    socket.end(message);
    // The server answers by closing.
    socket.resume();
    await once(socket, 'close', { signal });
  } catch {
    socket.destroy();
  }
}
