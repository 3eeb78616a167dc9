import type { EventEmitter } from 'node:events';
import { type Runtime, sleep } from '../../runtime/runtime.js';
import type { ChannelListener, DatabaseClient, Value } from '../client.js';
import { FurtherConnection, type PostgresClient } from './further-connection.js';

/** The part of a `pg.Pool`'s connection that LISTEN needs. */
export interface PostgresConnection extends Pick<EventEmitter, 'on'> {
  query(text: string): Promise<unknown>;
  release(error?: Error | boolean): void;
}

/** The calls used of a `pg.Pool`. */
export interface PostgresPool {
  /** If the pool has only one connection, none is kept for LISTEN. */
  readonly options?: { readonly max?: number };
  readonly totalCount?: number;
  readonly idleCount?: number;
  /** Opens a connection beside the pool, for extensions while all of the pool are in use. */
  readonly Client?: new (
    options: never,
  ) => PostgresClient;
  connect(lend: (error: Error | undefined, connection?: PostgresConnection) => void): void;
  query(text: string, values?: unknown[]): Promise<{ readonly rows: unknown[] }>;
}

/** The default of pg. */
const CONNECTIONS = 10;
/** Milliseconds between two tries to listen. */
const RETRY_MS = 1_000;

/** A pool of pg. */
export class PgAdapter implements DatabaseClient {
  readonly #pool: PostgresPool;
  readonly #runtime: Runtime;
  readonly #further: FurtherConnection | null;

  constructor(pool: PostgresPool, runtime: Runtime) {
    this.#pool = pool;
    this.#runtime = runtime;
    const { Client, options } = pool;
    this.#further = Client
      ? new FurtherConnection(() => new Client(options as never), runtime)
      : null;
  }

  get connections(): number {
    return this.#pool.options?.max ?? CONNECTIONS;
  }

  async query(text: string, values?: Value[]): Promise<unknown[][]> {
    return rowsOf(await this.#pool.query(text, values));
  }

  async queryAtOnce(text: string, values: Value[]): Promise<unknown[][]> {
    const { totalCount = 0, idleCount = 1 } = this.#pool;
    const isFull = idleCount === 0 && totalCount >= this.connections;
    return rowsOf(await (isFull && this.#further ? this.#further : this.#pool).query(text, values));
  }

  listen(channel: string, listener: ChannelListener): (() => void) | null {
    if (this.connections < 2) return null;
    const over = new AbortController();
    void this.#listenUntil(over.signal, channel, listener);
    return () => over.abort();
  }

  async #listenUntil(over: AbortSignal, channel: string, listener: ChannelListener): Promise<void> {
    const ended = new Promise((resolve) => {
      over.addEventListener('abort', resolve, { once: true });
    });
    while (!over.aborted) {
      const lost = Promise.withResolvers<void>();
      const connection = await this.#listen(channel, listener, lost.resolve).catch(() => null);
      if (connection !== null) {
        if (!over.aborted) {
          listener.onListening(true);
          await Promise.race([lost.promise, ended]);
        }
        // The pool closes the connection, which has our listeners and further notifications.
        connection.release(true);
      }
      if (over.aborted) return;
      listener.onListening(false);
      await sleep(this.#runtime, RETRY_MS, over).catch(() => undefined);
    }
  }

  async #listen(
    channel: string,
    listener: ChannelListener,
    lost: () => void,
  ): Promise<PostgresConnection> {
    const connection = await this.#borrow(lost);
    try {
      connection.on('notification', (message: { payload?: string }) =>
        listener.onMessage(message.payload),
      );
      await connection.query(`LISTEN ${channel}`);
      return connection;
    } catch (error) {
      connection.release(error instanceof Error ? error : true);
      throw error;
    }
  }

  /**
   * Borrows by a callback. A server that is shutting down may accept a connection and end it in one
   * packet. That error comes before a promise resolves, when the connection has no listener yet,
   * and would end the process.
   */
  #borrow(lost: () => void): Promise<PostgresConnection> {
    return new Promise((resolve, reject) => {
      this.#pool.connect((error, connection) => {
        if (!connection) return reject(error);
        connection.on('error', lost);
        connection.on('end', lost);
        resolve(connection);
      });
    });
  }
}

/** @param result an array, if there were several statements */
function rowsOf(result: { readonly rows: unknown[] }): unknown[][] {
  const { rows } = Array.isArray(result) ? result.at(-1) : result;
  return rows.map((row: object) => Object.values(row));
}
