/** What a statement answered: the part of pg's `QueryResult` that callers of this library may rely on. */
export interface PostgresResult<Row = Record<string, unknown>> {
  /** The tag of the command: `UPDATE`, `SELECT`, `COMMIT` … */
  readonly command: string;
  readonly rowCount: number | null;
  readonly rows: Row[];
}

/** The calls used of a connected `pg.Client`. Any driver that answers them alike will do. */
export interface PostgresClient {
  query(text: string, values?: unknown[]): Promise<unknown>;
  /** A query of a class of its own, as pg-cursor and pg-copy-streams bring them. */
  query<Submittable extends { submit(connection: never): void }>(query: Submittable): Submittable;
  escapeLiteral(value: string): string;
  /** `I` outside of a transaction, `null` before the connection is ready. Older releases of pg do not have it. */
  getTransactionStatus?(): string | null;
  on(event: 'error', listener: (error: Error) => void): unknown;
  removeListener(event: 'error', listener: (error: Error) => void): unknown;
}

/** A client lent by a pool; given back with an error, the pool closes its connection. */
export interface PostgresPoolClient extends PostgresClient {
  release(error?: Error | boolean): void;
}

/** The call used of a `pg.Pool`. */
export interface PostgresPool {
  connect(): Promise<PostgresPoolClient>;
}

/** An error that the server sent, as pg throws it: with a SQLSTATE and a severity, which errors of the socket have not. */
export interface ServerError extends Error {
  readonly code: string;
  readonly severity: string;
  readonly detail?: string;
  readonly hint?: string;
}

export function isServerError(error: unknown): error is ServerError {
  return error instanceof Error && 'severity' in error && 'code' in error;
}

/** pg did not send it: the connection had been closed, or lost, before. */
export function wasNotSent(error: unknown): boolean {
  return error instanceof Error && error.message.endsWith(' is not queryable');
}

/** The server rolled the transaction back because of others, and the same transaction may succeed when it is run again. */
export function isSerializationFailure(error: unknown): error is ServerError {
  return isServerError(error) && (error.code === '40001' || error.code === '40P01');
}

/** The server ended the statement because somebody asked for it. */
export function isCancellation(error: unknown): error is ServerError {
  return isServerError(error) && error.code === '57014';
}
