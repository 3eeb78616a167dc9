import { once } from 'node:events';
import { connect } from 'node:net';
import type { SessionClient } from './client.js';

/** The code of CancelRequest in PostgreSQL's protocol. */
const CANCEL_REQUEST = 80_877_102;

/**
 * Asks the server to cancel the running statement of this connection, over a connection of its own.
 * Resolves when the server has taken the request, or cannot be reached. Never rejects.
 *
 * Source: PostgreSQL documentation, "Message Formats", CancelRequest. It carries no password, so it
 * needs no TLS.
 *
 * @param signal ends the wait for the server
 */
export async function cancelRunning(client: SessionClient, signal: AbortSignal): Promise<void> {
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
  for (const [at, word] of [message.length, CANCEL_REQUEST, processID, secretKey].entries())
    message.writeInt32BE(word | 0, 4 * at);
  try {
    socket.end(message);
    // The server answers by closing.
    socket.resume();
    await once(socket, 'close', { signal });
  } catch {
    socket.destroy();
  }
}
