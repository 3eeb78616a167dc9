import type { EventEmitter } from 'node:events';
import type { Runtime } from '../../runtime/runtime.js';

/** The calls used of a `pg.Client`. */
export interface PostgresClient extends Pick<EventEmitter, 'on'> {
  connect(): Promise<unknown>;
  query(text: string, values: unknown[]): Promise<{ readonly rows: unknown[] }>;
  end(): Promise<void>;
}

/** Milliseconds after which a connection that nobody uses is closed. */
const IDLE_MS = 1_000;

/** A connection beside a pool, opened when it is needed. Its statements run one after the other. */
export class FurtherConnection {
  readonly #open: () => PostgresClient;
  readonly #runtime: Runtime;
  #client: Promise<PostgresClient> | null = null;
  #uses = 0;

  constructor(open: () => PostgresClient, runtime: Runtime) {
    this.#open = open;
    this.#runtime = runtime;
  }

  async query(text: string, values: unknown[]): Promise<{ readonly rows: unknown[] }> {
    this.#client ??= this.#connect();
    const client = this.#client;
    this.#uses += 1;
    try {
      return await (await client).query(text, values);
    } finally {
      this.#uses -= 1;
      if (this.#uses === 0) this.#runtime.after(IDLE_MS, () => this.#closeIfIdle(client));
    }
  }

  async #connect(): Promise<PostgresClient> {
    const client = this.#open();
    const drop = (): void => {
      this.#client = null;
    };
    // The server may end the connection at any time, also before the promise resolves.
    client.on('error', drop);
    client.on('end', drop);
    try {
      await client.connect();
    } catch (error) {
      drop();
      throw error;
    }
    return client;
  }

  #closeIfIdle(client: Promise<PostgresClient>): void {
    if (this.#uses > 0 || this.#client !== client) return;
    this.#client = null;
    client.then((opened) => opened.end()).catch(() => undefined);
  }
}
