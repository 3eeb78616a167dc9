import { EventEmitter } from 'node:events';
import { StoreSetupError } from '../core/errors.js';
import { isServerError, type LentClient, type PostgresResult, type ServerError } from './client.js';
import { NOT_THE_TRANSACTION } from './failures.js';

/** The calls used of the `sql` that `postgres()` of postgres.js returns. */
export interface PostgresJs extends Unsafe {
  readonly options: {
    readonly host: readonly string[];
    readonly port: readonly number[];
    readonly path: string | false | undefined;
  };
  begin(work: (sql: Unsafe) => Promise<never>): PromiseLike<unknown>;
}

interface Unsafe {
  unsafe(text: string, values?: never[], options?: object): PromiseLike<unknown>;
}

/** The result of one statement. Several statements have a list of such results. */
interface Result extends Array<Record<string, unknown>> {
  readonly command: string;
  readonly count: number | null;
}

/** A statement of postgres.js. `state` is set once it was handed to a connection. */
interface Query extends PromiseLike<Result | Result[]> {
  readonly state?: { readonly pid: number; readonly secret: number } | null;
}

/** A connection inside postgres.js. */
interface Connection {
  /** Set by the transaction that owns the connection; null if none owns it. */
  readonly reserved: unknown;
  terminate(): void;
}

export function isPostgresJs(value: unknown): value is PostgresJs {
  const { begin, unsafe, options } = Object(value) as Partial<Record<keyof PostgresJs, unknown>>;
  return [begin, unsafe].every((call) => typeof call === 'function') && typeof options === 'object';
}

/**
 * Borrows a connection of postgres.js.
 *
 * @throws the error of postgres.js; nothing was sent
 */
export function connectPostgresJs(sql: PostgresJs): Promise<LentClient> {
  const { promise, resolve, reject } = Promise.withResolvers<LentClient>();
  let client: PostgresJsClient | undefined;
  const begun = sql.begin((transaction: Unsafe) => {
    client = new PostgresJsClient(sql, transaction);
    resolve(client);
    // Never settles. Otherwise, postgres.js would send a COMMIT or ROLLBACK of its own. It takes
    // the connection back when the server says that no transaction is open.
    return new Promise<never>(() => undefined);
  });
  begun.then(undefined, (error) => (client ? client.lose(error) : reject(error)));
  return promise;
}

/** The error that `fenced.confirm` raises after a statement of the caller ended the transaction. */
class TransactionEndedError extends Error implements ServerError {
  readonly code = NOT_THE_TRANSACTION;
  readonly severity = 'ERROR';

  constructor() {
    super('the transaction that presented the fencing token has ended');
  }
}

/**
 * A connection of postgres.js, with the calls of a `pg.PoolClient`.
 *
 * Invariant: until its release, a transaction is open, because postgres.js takes the connection
 * back otherwise. So COMMIT and ROLLBACK are sent with AND CHAIN, which begins another transaction.
 */
class PostgresJsClient extends EventEmitter implements LentClient {
  readonly native: Unsafe;
  readonly #sql: PostgresJs;
  #lostBy: unknown;
  /** The connection, and its `reserved` while it is ours. Both are set by the first statement. */
  #connection: Connection | undefined;
  #mark: unknown;
  #last: Query | undefined;
  /** The statement that sets the isolation level; null between two transactions. */
  #begun: Promise<unknown> | null = null;
  #isCommitting = false;

  constructor(sql: PostgresJs, transaction: Unsafe) {
    super();
    this.#sql = sql;
    this.native = transaction;
    // An empty statement shows which connection this is: postgres.js calls `onexecute` for it, and
    // not for the first run of a statement with values.
    this.#send('').catch(() => undefined);
  }

  get host(): string | undefined {
    const { host, path } = this.#sql.options;
    return path ? path.slice(0, path.lastIndexOf('/')) : host[0];
  }

  get port(): number | undefined {
    return this.#sql.options.port[0];
  }

  get processID(): number | undefined {
    // No COMMIT is cancelled: the server would only stop waiting for standbys, and its warning
    // about that does not reach this class.
    return this.#isCommitting ? undefined : this.#last?.state?.pid;
  }

  get secretKey(): number | undefined {
    return this.#last?.state?.secret;
  }

  async query(text: string, values?: unknown[]): Promise<unknown> {
    const [, kind] = /^BEGIN (.*)/.exec(text) ?? [];
    if (kind !== undefined) {
      // The next statement waits for the answer.
      this.#begun = this.#send(`SET TRANSACTION ${kind}`);
      this.#begun.catch(() => undefined);
      return { command: 'BEGIN', rowCount: null, rows: [] };
    }
    if (text === 'COMMIT') return this.#commit();
    if (text === 'ROLLBACK') return this.#rollBack();
    if (this.#begun !== null)
      return (await Promise.all([this.#begun, this.#send(text, values)]))[1];
    return this.#autocommit(text, values);
  }

  async #autocommit(text: string, values?: unknown[]): Promise<unknown> {
    if (!this.#isOurs) return resultOf((await this.#sql.unsafe(text, sendable(values))) as Result);
    try {
      const result = await this.#send(text, values);
      await this.#commit();
      return result;
    } catch (error) {
      if (isServerError(error)) await this.#rollBack();
      throw error;
    }
  }

  async #commit(): Promise<unknown> {
    this.#begun = null;
    this.#isCommitting = true;
    try {
      // `statement_timeout` would end COMMIT's wait for synchronous standbys.
      return await this.#send('SET LOCAL statement_timeout = 0; COMMIT AND CHAIN');
    } finally {
      this.#isCommitting = false;
    }
  }

  async #rollBack(): Promise<unknown> {
    this.#begun = null;
    return this.#isOurs ? this.#send('ROLLBACK AND CHAIN') : undefined;
  }

  /** False if the connection was lost, or a statement has ended the transaction. */
  get #isOurs(): boolean {
    return (
      this.#lostBy === undefined && (!this.#connection || this.#connection.reserved === this.#mark)
    );
  }

  async #send(text: string, values?: unknown[]): Promise<PostgresResult | PostgresResult[]> {
    // Invariant: nothing is sent on a connection that others may use.
    if (!this.#isOurs) throw this.#lostBy ?? new TransactionEndedError();
    const onexecute = (connection: Connection): true => {
      this.#connection ??= connection;
      this.#mark ??= connection.reserved;
      return true;
    };
    // With a list of values, even an empty one, the server takes one statement only.
    const options = values ? { onexecute, simple: false } : { onexecute };
    this.#last = this.native.unsafe(text, sendable(values), options) as Query;
    let result: Result | Result[];
    try {
      result = await this.#last;
    } catch (error) {
      if (isLoss(error)) this.lose(error);
      throw error;
    }
    if (this.#connection) return resultOf(result);
    throw new StoreSetupError('this version of postgres (postgres.js) is not supported: use 3.4');
  }

  /** The connection is closed, or will be in a moment. */
  lose(error: unknown): void {
    if (this.#lostBy !== undefined) return;
    this.#lostBy = error;
    if (this.listenerCount('error') > 0) this.emit('error', error);
  }

  release(error?: Error | boolean): void {
    if (!this.#isOurs) return;
    if (error) this.#connection?.terminate();
    // After a ROLLBACK, postgres.js takes the connection back.
    else this.native.unsafe('ROLLBACK').then(undefined, () => undefined);
    this.#lostBy = new Error('the connection was given back');
  }
}

/** As in pg, undefined is NULL. */
function sendable(values: unknown[] = []): never[] {
  return values.map((value) => value ?? null) as never[];
}

/** Errors of the connection have an `errno`. Errors of a value that cannot be sent have none. */
function isLoss(error: unknown): boolean {
  return !isServerError(error) && 'errno' in Object(error);
}

function resultOf(result: Result | Result[]): PostgresResult | PostgresResult[] {
  if (!('command' in result)) return result.map((one) => resultOf(one) as PostgresResult);
  return { command: result.command, rowCount: result.count, rows: [...result] };
}
