/**
 * Port to the database: all that the lock needs of a pool of connections. `clients/` has an adapter
 * for each kind of client. The client stays its owner's: an adapter never closes it.
 */
export interface DatabaseClient {
  /** The number of statements that the server runs for this client at once. */
  readonly connections: number;
  /**
   * Runs one statement. Several statements without values run in one transaction.
   *
   * @returns the rows of the last statement, with their columns in order, because a client may
   *   rename columns
   * @throws the client's error; `code` is the SQLSTATE if the server refused
   */
  query(text: string, values?: Value[]): Promise<unknown[][]>;
  /**
   * As `query`, for a statement that must not wait until the owner's transactions return their
   * connections. If all are in use, runs it on a further connection.
   */
  queryAtOnce(text: string, values: Value[]): Promise<unknown[][]>;
  /**
   * Listens to a channel on a separate connection, and connects again when that is lost.
   *
   * @returns a function that ends this; null if the client has no connection to spare
   */
  listen(channel: string, listener: ChannelListener): (() => void) | null;
}

export type Value = string | number | boolean | null;

/** Receives the notifications of a channel. */
export interface ChannelListener {
  onMessage(payload: string | undefined): void;
  /** True if notifications that are sent from now on arrive. Called at each change. */
  onListening(isListening: boolean): void;
}
