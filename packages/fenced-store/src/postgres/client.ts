/** The answer to a statement: the part of pg's `QueryResult` that callers may rely on. */
export interface PostgresResult<Row = Record<string, unknown>> {
  /** The tag of the command: `UPDATE`, `SELECT`, `COMMIT` … */
  readonly command: string;
  readonly rowCount: number | null;
  readonly rows: Row[];
}

/**
 * The rows of one of this library's own statements, each as a list of columns. Names of columns are
 * not used, because an option of the caller's client may rename them. An option may also replace
 * null.
 */
export function fieldsOf(result: PostgresResult<unknown> | undefined): (string | null)[][] {
  const rows = (result?.rows ?? []) as Record<string, string | null | undefined>[];
  return rows.map((row) => Object.values(row).map((field) => field ?? null));
}

/** The calls that a session makes on its connection, in the form of pg's. */
export interface SessionClient {
  query(text: string, values?: unknown[]): Promise<unknown>;
  /** `I` outside a transaction, `null` before the connection is ready. Older pg lacks it. */
  getTransactionStatus?(): string | null;
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(event: 'notice', listener: (notice: PostgresNotice) => void): unknown;
  removeListener(event: 'error', listener: (error: Error) => void): unknown;
  removeListener(event: 'notice', listener: (notice: PostgresNotice) => void): unknown;
}

/** The calls used of a connected `pg.Client`. Another driver with the same calls will do. */
export interface PostgresClient extends SessionClient {
  query(text: string, values?: unknown[]): Promise<unknown>;
  /** Takes queries of other classes, such as those of pg-cursor and pg-copy-streams. */
  query<Submittable extends { submit(connection: never): void }>(query: Submittable): Submittable;
  escapeLiteral(value: string): string;
}

/** A warning of the server. */
export interface PostgresNotice {
  /** The function in the server's source code that sent it. */
  readonly routine?: string | undefined;
}

/** A client lent by a pool. If it is given back with an error, the pool closes its connection. */
export interface LentClient extends SessionClient {
  release(error?: Error | boolean): void;
  /** The object to which callers send statements of their own. @default the client itself */
  readonly native?: unknown;
}

/** A client lent by a `pg.Pool`. */
export interface PostgresPoolClient extends PostgresClient {
  release(error?: Error | boolean): void;
}

/** The call used of a `pg.Pool`. */
export interface PostgresPool {
  connect(): Promise<PostgresPoolClient>;
}

/** An error that the server sent. Errors of the socket have no severity. */
export interface ServerError extends Error {
  /** The SQLSTATE. */
  readonly code: string;
  readonly severity: string;
  readonly detail?: string;
  readonly hint?: string;
}

export function isServerError(error: unknown): error is ServerError {
  return error instanceof Error && 'severity' in error && 'code' in error;
}

/** True if pg sent nothing, because the connection had been closed or lost before. */
export function wasNotSent(error: unknown): boolean {
  return error instanceof Error && error.message.endsWith(' is not queryable');
}

/** SQLSTATEs of a rollback because of concurrent transactions. A further attempt may succeed. */
export const SERIALIZATION_FAILURES: readonly string[] = ['40001', '40P01'];

export function isSerializationFailure(error: unknown): error is ServerError {
  return isServerError(error) && SERIALIZATION_FAILURES.includes(error.code);
}

/** True if the transaction, or a pause in it, lasted too long and the server ended the session. */
export function isEviction(error: unknown): boolean {
  return isServerError(error) && ['25P03', '25P04'].includes(error.code);
}

/** True if the server ended the statement, after a cancel request or at its time limit. */
export function isCancellation(error: unknown): error is ServerError {
  return isServerError(error) && error.code === '57014';
}
