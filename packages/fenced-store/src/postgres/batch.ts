import type { PostgresClient, PostgresResult } from './client.js';

/** One statement with the values of its parameters. */
export interface Statement {
  readonly text: string;
  readonly values?: readonly unknown[];
}

/** Statements under way, and how far the server has come with them. */
export interface Batched {
  readonly results: Promise<PostgresResult[]>;
  /** How many were handed to the connection. */
  readonly sent: number;
  /** How many the server has answered with success. It answers in order. */
  readonly answered: number;
}

/** What is used of pg's `Query`. */
interface Part {
  values: unknown[];
  types: unknown;
  callback(error: unknown, result: PostgresResult): void;
  prepare(connection: object): void;
  handleRowDescription(message: unknown): void;
  handleDataRow(message: unknown): void;
  handleCommandComplete(message: unknown, connection: object): void;
  handleReadyForQuery(connection: object): void;
}

type PartClass = new (config: object) => Part;

/** What is used of pg's `Connection`. */
interface Wire {
  readonly stream: { cork(): void; uncork(): void };
  sync(): void;
  sendCopyFail(reason: string): void;
}

/**
 * Several statements in one message, and so in one round trip: Parse, Bind and Execute for each, then a single Sync.
 * After the first that fails the server reads no further than to the Sync, so nothing behind it is run. (pg's own
 * `pipeline` sends a Sync after each: there a failed BEGIN leaves what follows to be committed by itself.)
 *
 * It is a query class of the kind that pg lets others bring, as pg-cursor does, made of pg's own queries.
 */
class Batch {
  answered = 0;
  readonly callback: (error: unknown) => void;
  readonly #parts: readonly Part[];

  constructor(parts: readonly Part[], callback: (error: unknown) => void) {
    this.#parts = parts;
    this.callback = callback;
  }

  submit(connection: Wire): null {
    const withoutSync = Object.create(connection, { sync: { value: () => undefined } });
    connection.stream.cork();
    for (const part of this.#parts) part.prepare(withoutSync);
    connection.sync();
    connection.stream.uncork();
    return null;
  }

  handleRowDescription(message: unknown): void {
    this.#parts[this.answered]?.handleRowDescription(message);
  }

  handleDataRow(message: unknown): void {
    this.#parts[this.answered]?.handleDataRow(message);
  }

  handleCommandComplete(message: unknown, connection: Wire): void {
    this.#parts[this.answered]?.handleCommandComplete(message, connection);
    this.answered += 1;
  }

  handleEmptyQuery(): void {
    this.answered += 1;
  }

  handleError(error: unknown): void {
    this.callback(error);
  }

  handleReadyForQuery(connection: Wire): void {
    for (const part of this.#parts) part.handleReadyForQuery(connection);
    this.callback(null);
  }

  handleCopyInResponse(connection: Wire): void {
    connection.sendCopyFail('COPY FROM STDIN needs the client of a transaction');
  }

  handleCopyData(): void {}
  handlePortalSuspended(): void {}
}

/** pg's class of queries, where this client can send a batch: not pg-native, nor with pg's own `pipeline`. */
function partClassOf(client: PostgresClient): PartClass | undefined {
  const { connection, pipeline } = client as { connection?: Partial<Wire>; pipeline?: boolean };
  const { Query } = client.constructor as { Query?: PartClass };
  const isFit =
    typeof connection?.sync === 'function' && typeof Query?.prototype.prepare === 'function';
  return isFit && !pipeline ? Query : undefined;
}

export function canBatch(client: PostgresClient): boolean {
  return partClassOf(client) !== undefined;
}

/** Sends all at once, where the client can; else one after the other, as long as they succeed. */
export function send(client: PostgresClient, statements: readonly Statement[]): Batched {
  const PartOf = partClassOf(client);
  return PartOf ? sendAtOnce(client, PartOf, statements) : sendInTurns(client, statements);
}

function sendAtOnce(
  client: PostgresClient,
  PartOf: PartClass,
  statements: readonly Statement[],
): Batched {
  const { promise: results, resolve, reject } = Promise.withResolvers<PostgresResult[]>();
  const all: PostgresResult[] = [];
  let parts: Part[];
  try {
    parts = statements.map((statement) => partFor(client, PartOf, statement));
  } catch (error) {
    reject(error);
    return { results, sent: 0, answered: 0 };
  }
  for (const part of parts) {
    // The error of a single one is a row that cannot be read.
    part.callback = (error, result) => (error ? reject(error) : all.push(result));
  }
  const batch = new Batch(parts, (error) => (error ? reject(error) : resolve(all)));
  client.query(batch);
  return {
    results,
    sent: statements.length,
    get answered() {
      return batch.answered;
    },
  };
}

/** @throws whatever the value throws that cannot be sent: found here, while nothing is. */
function partFor(client: PostgresClient, PartOf: PartClass, { text, values }: Statement): Part {
  // The parsers of the client are wanted for the rows, and no types for the parameters: pg has one option for both.
  const part = new PartOf({ text, values: values ? [...values] : [], types: client });
  part.types = undefined;
  part.callback = (error) => {
    throw error;
  };
  const nowhere = () => undefined;
  part.prepare({
    parsedStatements: {},
    parse: nowhere,
    bind: (bound: { values: unknown[]; valueMapper(value: unknown): unknown }) => {
      part.values = bound.values.map((value) => bound.valueMapper(value));
    },
    close: nowhere,
    describe: nowhere,
    execute: nowhere,
    sync: nowhere,
  });
  return part;
}

function sendInTurns(client: PostgresClient, statements: readonly Statement[]): Batched {
  const all: PostgresResult[] = [];
  let sent = 0;
  const run = async (): Promise<PostgresResult[]> => {
    for (const { text, values } of statements) {
      sent += 1;
      all.push((await client.query(text, values && [...values])) as PostgresResult);
    }
    return all;
  };
  return {
    results: run(),
    get sent() {
      return sent;
    },
    get answered() {
      return all.length;
    },
  };
}
