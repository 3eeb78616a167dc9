import type { EventEmitter } from 'node:events';
import { NODE_TIMEOUT_MAX_MS } from '../../core/validity.js';
import type { Runtime } from '../../runtime/runtime.js';

/** The calls used of a `pg.Client`. */
export interface PostgresClient extends Pick<EventEmitter, 'on'> {
  connect(): Promise<unknown>;
  query(text: string, values: unknown[]): Promise<{ readonly rows: unknown[] }>;
  end(): Promise<void>;
}

/** Milliseconds after which a connection that nobody uses is closed. */
const IDLE_MS = 1_000;

/**
 * A connection beside a pool, opened when it is needed. Its statements run one after the other, so
 * a statement without an answer ends it: the next one opens another.
 */
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
    const cancel = this.#runtime.after(NODE_TIMEOUT_MAX_MS, () => this.#close(client));
    try {
      return await (await client).query(text, values);
    } finally {
      cancel();
      this.#uses -= 1;
      if (this.#uses === 0) this.#runtime.after(IDLE_MS, () => this.#closeIfIdle());
    }
  }

  #connect(): Promise<PostgresClient> {
    const client = this.#open();
    const connected = client.connect().then(() => client);
    // The server may end the connection at any time, also before it is made.
    const drop = (): void => this.#drop(connected);
    client.on('error', drop);
    client.on('end', drop);
    connected.catch(drop);
    return connected;
  }

  /** A later connection may be in its place already. */
  #drop(client: Promise<PostgresClient>): void {
    if (this.#client === client) this.#client = null;
  }

  #closeIfIdle(): void {
    if (this.#uses === 0 && this.#client !== null) this.#close(this.#client);
  }

  #close(client: Promise<PostgresClient>): void {
    this.#drop(client);
    client.then((opened) => opened.end()).catch(() => undefined);
  }
}
