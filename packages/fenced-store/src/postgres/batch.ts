import type { PostgresClient, PostgresResult, SessionClient } from './client.js';

/** One SQL statement, with the values of its parameters `$1`, `$2` … */
export interface Statement {
  readonly text: string;
  readonly values?: readonly unknown[] | undefined;
}

/** Statements that were sent together, and the server's progress with them. */
export interface Batch {
  /** Resolves when the server has carried out all of them. */
  readonly results: Promise<PostgresResult[]>;
  /** Number of statements that were handed to the connection. */
  readonly sent: number;
  /** Number of statements that the server has answered with success. It answers in order. */
  readonly answered: number;
}

/**
 * Sends statements in one message. The server stops at the first that fails. A fenced write thus
 * takes one round trip instead of three (docs/decisions, number 11).
 *
 * Some clients get one statement after the other: pg-native, postgres.js, and a client with the
 * option `pipeline` of pg. That option sends a Sync after each statement. So after a failed BEGIN,
 * the server would commit each of the others by itself.
 */
export function sendBatch(client: SessionClient, statements: readonly Statement[]): Batch {
  const { connection, pipeline } = client as { connection?: PgConnection; pipeline?: boolean };
  const { Query } = client.constructor as { Query?: PgQueryClass };
  if (!connection?.sync || !Query?.prototype.prepare || pipeline)
    return new OneByOne(client as ConfigClient, statements, pipeline === true);
  try {
    // `types` has the parsers of column types that the caller has given to the client.
    const queries = statements.map(
      ({ text, values }) => new Query({ text, values: [...(values ?? [])], types: client }),
    );
    return (client as PostgresClient).query(new OneMessage(connection, queries));
  } catch (error) {
    return { results: Promise.reject(error), sent: 0, answered: 0 };
  }
}

/** The part of pg's `Query` that is used here. It makes messages and reads their answers. */
interface PgQuery {
  callback(error: unknown, result?: PostgresResult): void;
  prepare(connection: PgConnection): void;
  handleRowDescription(message: unknown): void;
  handleDataRow(message: unknown): void;
  handleCommandComplete(message: unknown, connection: PgConnection): void;
  handleReadyForQuery(connection: PgConnection): void;
}

type PgQueryClass = new (config: object) => PgQuery;

/** The part of pg's `Connection` that is used here. */
interface PgConnection {
  readonly stream: { write(message: Buffer): void };
  sync(): void;
  sendCopyFail(reason: string): void;
}

/**
 * Parse, Bind, Describe and Execute of each query, then a single Sync. After an error, the server
 * skips everything up to the Sync. The `query` of pg takes any object with these methods.
 */
class OneMessage implements Batch {
  readonly results: Promise<PostgresResult[]>;
  readonly sent: number;
  answered = 0;
  /** Called with the error, or null when the server is ready for the next message. */
  readonly callback: (error: unknown) => void;
  readonly #queries: readonly PgQuery[];
  readonly #message: Buffer;

  /** @throws the error of a value that cannot be sent; nothing was sent then */
  constructor(connection: PgConnection, queries: readonly PgQuery[]) {
    this.#message = messageOf(connection, queries);
    this.#queries = queries;
    this.sent = queries.length;
    const { promise, resolve, reject } = Promise.withResolvers<PostgresResult[]>();
    const all: PostgresResult[] = [];
    for (const query of queries) {
      // The server's errors go to `handleError`. This one is a row that a parser could not read.
      query.callback = (error, result) => (result ? all.push(result) : reject(error));
    }
    this.callback = (error) => (error ? reject(error) : resolve(all));
    this.results = promise;
  }

  submit(connection: PgConnection): void {
    connection.stream.write(this.#message);
  }

  handleRowDescription(message: unknown): void {
    this.#queries[this.answered]?.handleRowDescription(message);
  }

  handleDataRow(message: unknown): void {
    this.#queries[this.answered]?.handleDataRow(message);
  }

  handleCommandComplete(message: unknown, connection: PgConnection): void {
    this.#queries[this.answered]?.handleCommandComplete(message, connection);
    this.answered += 1;
  }

  handleEmptyQuery(): void {
    this.answered += 1;
  }

  handleError(error: unknown): void {
    this.callback(error);
  }

  handleReadyForQuery(connection: PgConnection): void {
    for (const query of this.#queries) query.handleReadyForQuery(connection);
    this.callback(null);
  }

  handleCopyInResponse(connection: PgConnection): void {
    connection.sendCopyFail('COPY FROM STDIN needs the client of a transaction');
  }

  handleCopyData(): void {}
  handlePortalSuspended(): void {}
}

/** The bytes that pg would send for these queries, with one Sync at their end. */
function messageOf(connection: PgConnection, queries: readonly PgQuery[]): Buffer {
  const pieces: Buffer[] = [];
  const recorder: PgConnection = Object.create(connection, {
    stream: { value: { writable: true, write: (piece: Buffer) => pieces.push(piece) } },
    sync: { value: () => undefined },
  });
  for (const query of queries) {
    query.callback = (error) => {
      throw error;
    };
    query.prepare(recorder);
  }
  connection.sync.call(recorder);
  return Buffer.concat(pieces);
}

/** A client whose `query` also takes an object with pg's settings of the query. */
interface ConfigClient extends SessionClient {
  query(text: string | object, values?: unknown[]): Promise<unknown>;
}

class OneByOne implements Batch {
  readonly results: Promise<PostgresResult[]>;
  sent = 0;
  answered = 0;

  constructor(client: ConfigClient, statements: readonly Statement[], isPg: boolean) {
    this.results = this.#send(client, statements, isPg);
  }

  async #send(
    client: ConfigClient,
    statements: readonly Statement[],
    isPg: boolean,
  ): Promise<PostgresResult[]> {
    const all: PostgresResult[] = [];
    for (const { text, values = [] } of statements) {
      this.sent += 1;
      // Without values, pg would send the text by the simple protocol, which allows several
      // statements: the server would obey a COMMIT inside the caller's text.
      const query = isPg ? { text, queryMode: 'extended' } : text;
      all.push((await client.query(query, [...values])) as PostgresResult);
      this.answered += 1;
    }
    return all;
  }
}
