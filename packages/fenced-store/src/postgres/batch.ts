import type { PostgresClient, PostgresResult } from './client.js';

/** A statement of the caller's, with the values of its parameters. */
export interface TheirStatement {
  readonly text: string;
  readonly values?: readonly unknown[] | undefined;
  readonly name?: string | undefined;
  readonly isOurs?: false;
}

/** A statement of this library. Its rows come as lists of strings. */
export interface OurStatement {
  readonly isOurs: true;
  readonly text: string;
  readonly values?: readonly (string | null)[];
  /** What the server may keep it under, so that it is parsed and planned once for each connection. */
  readonly name?: string;
}

export type Statement = TheirStatement | OurStatement;

/** Statements under way, and how far the server has come with them. */
export interface Batched {
  readonly results: Promise<PostgresResult[]>;
  /** How many were handed to the connection. */
  readonly sent: number;
  /** How many the server has answered with success. It answers in order. */
  readonly answered: number;
}

/** One statement in a batch: its messages, and what they are answered with. */
interface Part {
  readonly text: string;
  readonly name?: string | undefined;
  prepare(wire: Wire): void;
  handleRowDescription(message: unknown): void;
  handleDataRow(message: unknown): void;
  handleCommandComplete(message: unknown, connection: object): void;
  handleReadyForQuery(connection: object): void;
}

/** What is used of pg's `Query`. */
interface TheirPart extends Part {
  name?: string | undefined;
  readonly _result: object;
  callback(error: unknown, result: PostgresResult): void;
}

type TheirPartClass = new (text: string, values: unknown[]) => TheirPart;

/** What is used of pg's `Connection`. */
interface Wire {
  readonly stream: { write(message: Buffer): void };
  readonly parsedStatements: Readonly<Record<string, string>>;
  /** Those that the server will have parsed when it comes to what is prepared now. */
  readonly submittedNamedStatements: Record<string, string>;
  parse(statement: { text: string; name: string | undefined }): void;
  bind(values: { statement: string | undefined; values: readonly (string | null)[] }): void;
  execute(options: object): void;
  sync(): void;
  sendCopyFail(reason: string): void;
}

/**
 * Several statements in one message, and so in one round trip: Parse, Bind and Execute for each, then a single Sync.
 * After the first that fails the server reads no further than to the Sync, so nothing behind it is run. (pg's own
 * `pipeline` sends a Sync after each: there a failed BEGIN leaves what follows to be committed by itself.)
 *
 * It is a query class of the kind that pg lets others bring, as pg-cursor does, with pg's own queries in it.
 */
class Batch implements Batched {
  answered = 0;
  readonly results: Promise<PostgresResult[]>;
  readonly callback: (error: unknown) => void;
  readonly #parts: readonly Part[];
  readonly #message: Buffer;

  constructor(
    parts: readonly Part[],
    message: Buffer,
    results: Promise<PostgresResult[]>,
    callback: (error: unknown) => void,
  ) {
    this.#parts = parts;
    this.#message = message;
    this.results = results;
    this.callback = callback;
  }

  get sent(): number {
    return this.#parts.length;
  }

  /** Where pg's client puts its parsers for the rows, as it does for pg-cursor. */
  get _result(): object | undefined {
    return this.#parts.find(isTheirs)?._result;
  }

  /** With `text`, what pg keeps in mind when the server has parsed a statement. */
  get name(): string | undefined {
    return this.#parts[this.answered]?.name;
  }

  get text(): string | undefined {
    return this.#parts[this.answered]?.text;
  }

  submit(connection: Wire): null {
    connection.stream.write(this.#message);
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

function isTheirs(part: Part): part is TheirPart {
  return '_result' in part;
}

/** Without Describe: its caller knows the columns. */
class OurPart implements Part {
  readonly text: string;
  readonly name: string | undefined;
  readonly #values: readonly (string | null)[];
  readonly #rows: unknown[] = [];
  readonly #done: (result: PostgresResult) => void;
  /** With the server's counts, as `SELECT 1`: to take them off would cost more than all else here. */
  #tag = '';

  constructor(statement: OurStatement, isNamed: boolean, done: (result: PostgresResult) => void) {
    this.text = statement.text;
    this.name = isNamed ? statement.name : undefined;
    this.#values = statement.values ?? [];
    this.#done = done;
  }

  prepare(wire: Wire): void {
    const { name, text } = this;
    const { parsedStatements, submittedNamedStatements } = wire;
    const isParsed =
      name !== undefined && (parsedStatements[name] ?? submittedNamedStatements[name]) === text;
    if (!isParsed) wire.parse({ name, text });
    if (name !== undefined) submittedNamedStatements[name] = text;
    wire.bind({ statement: name, values: this.#values });
    wire.execute({});
  }

  handleRowDescription(): void {}

  handleDataRow(message: { fields: unknown[] }): void {
    this.#rows.push(message.fields);
  }

  handleCommandComplete(message: { text: string }): void {
    this.#tag = message.text;
  }

  handleReadyForQuery(): void {
    const rows = this.#rows as Record<string, unknown>[];
    this.#done({ command: this.#tag, rowCount: rows.length, rows });
  }
}

/** Sends statements over one connection: all at once, where its client can; else one after the other, as long as they succeed. */
export class StatementSender {
  readonly #client: PostgresClient;
  readonly #buffer: MessageBuffer | undefined;

  constructor(client: PostgresClient) {
    this.#client = client;
    this.#buffer = bufferFor(client);
  }

  /** Whether several statements are one message. */
  get canBatch(): boolean {
    return this.#buffer !== undefined;
  }

  /** @param isNamed whether the server may keep this library's own under their names */
  send(statements: readonly Statement[], isNamed: boolean): Batched {
    return this.#buffer
      ? this.#sendAtOnce(this.#buffer, statements, isNamed)
      : sendOneByOne(this.#client, statements);
  }

  #sendAtOnce(buffer: MessageBuffer, statements: readonly Statement[], isNamed: boolean): Batched {
    const { promise: results, resolve, reject } = Promise.withResolvers<PostgresResult[]>();
    const all: PostgresResult[] = [];
    const done = (result: PostgresResult): unknown => all.push(result);
    try {
      const parts = statements.map((statement) =>
        statement.isOurs
          ? new OurPart(statement, isNamed, done)
          : theirPart(buffer.PartOf, statement),
      );
      const message = buffer.messageOf(parts);
      for (const part of parts.filter(isTheirs)) {
        // The error of a single one is a row that cannot be read.
        part.callback = (error, result) => (error ? reject(error) : done(result));
      }
      return this.#client.query(
        new Batch(parts, message, results, (error) => (error ? reject(error) : resolve(all))),
      );
    } catch (error) {
      reject(error);
      return { results, sent: 0, answered: 0 };
    }
  }
}

/** Where this client can send a batch: not pg-native, nor with pg's own `pipeline`. */
function bufferFor(client: PostgresClient): MessageBuffer | undefined {
  const { connection, pipeline } = client as { connection?: Wire; pipeline?: boolean };
  const { Query } = client.constructor as { Query?: TheirPartClass };
  const isFit = typeof Query?.prototype.prepare === 'function' && !pipeline;
  return isFit && typeof connection?.sync === 'function'
    ? new MessageBuffer(connection, Query)
    : undefined;
}

function theirPart(PartOf: TheirPartClass, { text, values, name }: TheirStatement): TheirPart {
  const part = new PartOf(text, values ? [...values] : []);
  part.name = name;
  part.callback = (error) => {
    throw error;
  };
  return part;
}

/** A connection as the parts see it: what they send is kept, and there is no Sync. */
class MessageBuffer {
  /** pg's class of queries. */
  readonly PartOf: TheirPartClass;
  readonly #connection: Wire;
  readonly #wire: Wire;
  #pieces: Buffer[] = [];
  #named: Record<string, string> = {};

  constructor(connection: Wire, PartOf: TheirPartClass) {
    this.PartOf = PartOf;
    this.#connection = connection;
    this.#wire = Object.create(connection, {
      stream: { value: { writable: true, write: (piece: Buffer) => this.#pieces.push(piece) } },
      sync: { value: () => undefined },
      // In the connection's own it would stay if the server did not come that far.
      submittedNamedStatements: { get: () => this.#named },
    });
  }

  /**
   * All that the parts have to say, in the words of pg's connection, as one piece for one packet.
   *
   * @throws whatever the value throws that cannot be sent: found here, while nothing is.
   */
  messageOf(parts: readonly Part[]): Buffer {
    this.#pieces = [];
    this.#named = {};
    for (const part of parts) part.prepare(this.#wire);
    this.#connection.sync.call(this.#wire);
    return Buffer.concat(this.#pieces);
  }
}

function asList(row: Record<string, unknown>): Record<string, unknown> {
  return Object.values(row) as unknown as Record<string, unknown>;
}

function sendOneByOne(client: PostgresClient, statements: readonly Statement[]): Batched {
  const all: PostgresResult[] = [];
  let sent = 0;
  const run = async (): Promise<PostgresResult[]> => {
    for (const { text, values, isOurs } of statements) {
      sent += 1;
      const result = (await client.query(text, values && [...values])) as PostgresResult;
      all.push(isOurs ? { ...result, rows: result.rows.map(asList) } : result);
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
