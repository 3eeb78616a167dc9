import type { ChannelListener, DatabaseClient, Value } from '../client.js';

/** The calls used of the `sql` that `postgres()` of postgres.js returns. */
export interface PostgresJs {
  readonly options?: { readonly max?: number };
  unsafe(
    text: string,
    values?: Value[],
    options?: { readonly prepare?: boolean },
  ): PromiseLike<object[]>;
  listen(
    channel: string,
    onMessage: (payload: string) => void,
    onListening?: () => void,
  ): PromiseLike<unknown>;
}

/** The default of postgres.js. */
const CONNECTIONS = 10;

/** postgres.js. All lock services of one `sql` share an adapter, because it listens once. */
export class PostgresJsAdapter implements DatabaseClient {
  readonly #sql: PostgresJs;
  readonly #listeners = new Set<ChannelListener>();
  #listens = false;
  #isListening = false;

  constructor(sql: PostgresJs) {
    this.#sql = sql;
  }

  get connections(): number {
    return this.#sql.options?.max ?? CONNECTIONS;
  }

  async query(text: string, values: Value[] = []): Promise<unknown[][]> {
    // A statement with values takes two round trips, unless it was prepared. If the owner set
    // `prepare: false`, that has priority.
    const result = await this.#sql.unsafe(text, values, { prepare: true });
    const rows = 'command' in result ? result : (result.at(-1) as object[]);
    // The owner's option `transform` may replace null, too.
    return Array.from(rows, (row) => Object.values(row).map((value) => value ?? null));
  }

  /** postgres.js cannot open a further connection for one statement, so this waits for one. */
  queryAtOnce(text: string, values: Value[]): Promise<unknown[][]> {
    return this.query(text, values);
  }

  /**
   * Listens until the owner's `sql.end()`. After a reconnection, `unlisten` of postgres.js has no
   * effect, and its connection stays open anyway.
   */
  listen(channel: string, listener: ChannelListener): () => void {
    this.#listeners.add(listener);
    if (this.#isListening) listener.onListening(true);
    if (!this.#listens) {
      this.#listens = true;
      this.#listen(channel);
    }
    return () => void this.#listeners.delete(listener);
  }

  /** After a lost connection, postgres.js itself listens again, and calls `onListening` again. */
  #listen(channel: string): void {
    const onMessage = (payload: string): void => {
      for (const listener of this.#listeners) listener.onMessage(payload);
    };
    const onListening = (): void => {
      this.#isListening = true;
      for (const listener of this.#listeners) listener.onListening(true);
    };
    this.#sql.listen(channel, onMessage, onListening).then(undefined, () => undefined);
  }
}
