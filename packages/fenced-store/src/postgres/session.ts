import { StoreSetupError, StoreUnavailableError } from '../core/errors.js';
import {
  isServerError,
  type PostgresClient,
  type PostgresPool,
  type PostgresResult,
} from './client.js';
import { LIMIT_MS_MAX } from './fence.js';
import type { Runtime } from './runtime.js';

/** How much longer than a limit that the server itself keeps we wait for its answer. */
const ANSWER_GRACE_MS = 1_000;

/** How long to wait for something of the server, and whose signal ends the wait earlier. */
interface Patience {
  readonly limitMs: number;
  readonly signal: AbortSignal | undefined;
}

/**
 * A connection, and the way back to its owner: with an error where it must not be used again, and with an answer that is
 * still outstanding.
 */
interface Lent {
  readonly client: PostgresClient;
  giveBack(error?: Error, overdue?: Promise<unknown>): void;
}

/** Lends connections of the caller's pool, or the caller's only client to one user after the other. */
export class Connections {
  readonly #runtime: Runtime;
  readonly #isPool: boolean;
  readonly #borrow: () => Promise<Lent>;

  constructor(pool: PostgresPool | PostgresClient, runtime: Runtime) {
    this.#runtime = runtime;
    // Both have `connect` and `query` in pg. Only clients can quote.
    this.#isPool = !('escapeLiteral' in pool);
    this.#borrow = 'escapeLiteral' in pool ? inTurns(pool) : fromPool(pool);
  }

  /**
   * Runs `use` on a connection of its own that is ready for a transaction.
   *
   * @throws {StoreUnavailableError} where none can be had within the limit.
   * @throws {StoreSetupError} where address, credentials or the connection's state are wrong.
   */
  async with<Result>(
    patience: Patience,
    use: (session: Session) => Promise<Result>,
  ): Promise<Result> {
    const session = new Session(await this.#checkOut(patience), this.#runtime, patience.limitMs);
    // The connection of a pool can be closed under a statement that is under way; the caller's only client is not ours to close.
    const abandon = (): void => {
      if (this.#isPool) session.abandon(new Error('aborted', { cause: patience.signal?.reason }));
    };
    patience.signal?.addEventListener('abort', abandon, { once: true });
    try {
      patience.signal?.throwIfAborted();
      session.requireIdle();
      return await use(session);
    } finally {
      patience.signal?.removeEventListener('abort', abandon);
      session.close();
    }
  }

  async #checkOut(patience: Patience): Promise<Lent> {
    patience.signal?.throwIfAborted();
    const borrowing = this.#borrow();
    try {
      return await within(
        borrowing.catch((error: unknown) => {
          throw connectFailure(error);
        }),
        patience,
        this.#runtime,
        'is it a PostgreSQL server, and are there connections enough?',
      );
    } catch (error) {
      // Where the wait was given up, what comes after it goes straight back.
      void borrowing.then(
        (lent) => lent.giveBack(),
        () => undefined,
      );
      throw error;
    }
  }
}

/** One connection while it is ours. We listen to its `error` events, which end the process where nobody does. */
export class Session {
  readonly #client: PostgresClient;
  readonly #giveBack: Lent['giveBack'];
  readonly #runtime: Runtime;
  readonly #patience: Patience;
  #lostBy: Error | undefined;
  #overdue: Promise<unknown> | undefined;
  #isClosed = false;

  constructor(lent: Lent, runtime: Runtime, limitMs: number) {
    this.#client = lent.client;
    this.#giveBack = lent.giveBack;
    this.#runtime = runtime;
    this.#patience = {
      limitMs: Math.min(limitMs + ANSWER_GRACE_MS, LIMIT_MS_MAX),
      signal: undefined,
    };
    this.#client.on('error', this.#onError);
  }

  /** Why the connection is of no more use, as far as that is known. */
  get lostBy(): Error | undefined {
    return this.#lostBy;
  }

  readonly #onError = (error: Error): void => {
    this.#lostBy ??= error;
  };

  /** A `BEGIN` inside of somebody else's transaction would only warn, and our `COMMIT` would end theirs. */
  requireIdle(): void {
    const status = this.#client.getTransactionStatus?.();
    if (status === undefined || status === 'I') return;
    const reason =
      status === null
        ? 'the pg.Client is not connected yet: await its connect() first'
        : 'the connection is in the middle of a transaction: end it before the connection is used here or given back to the pool';
    this.#lostBy = new StoreSetupError(reason);
    throw this.#lostBy;
  }

  quote(text: string): string {
    return this.#client.escapeLiteral(text);
  }

  /** A statement of the caller's, who knows how long it may take. */
  async callersQuery<Row>(text: string, values?: readonly unknown[]): Promise<PostgresResult<Row>> {
    return (await this.#client.query(text, values && [...values])) as PostgresResult<Row>;
  }

  /** One statement of ours. */
  async query<Row>(text: string, values?: readonly unknown[]): Promise<PostgresResult<Row>> {
    return this.#answer(this.callersQuery<Row>(text, values));
  }

  /** Several statements in one message: one round trip, and after the first that fails the server reads no further. */
  async script<Row>(...statements: readonly string[]): Promise<PostgresResult<Row>[]> {
    const answer = this.#client.query(statements.join(';\n'));
    return this.#answer(answer as Promise<PostgresResult<Row>[]>);
  }

  /** An answer to one of our own statements: where it does not come in time, the connection is as good as lost. */
  async #answer<Answer>(answer: Promise<Answer>): Promise<Answer> {
    try {
      return await within(answer, this.#patience, this.#runtime, 'the connection is given up');
    } catch (error) {
      if (error instanceof StoreUnavailableError) {
        this.#lostBy ??= error;
        this.#overdue = answer;
      }
      throw error;
    }
  }

  /**
   * Ends whatever transaction is open. `false` where the server did not answer: the connection is lost then, and with it,
   * as soon as the server notices, the transaction.
   */
  async rollBack(): Promise<boolean> {
    if (this.#lostBy !== undefined) return false;
    try {
      await this.query('ROLLBACK');
      return true;
    } catch (error) {
      this.#lostBy ??= error instanceof Error ? error : new Error(String(error));
      return false;
    }
  }

  /** Closes the connection under whatever is running on it. */
  abandon(reason: Error): void {
    this.#lostBy ??= reason;
    this.close();
  }

  /** Gives the connection back. A lost one keeps its listener: its socket may have more to complain about. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    if (this.#lostBy === undefined) this.#client.removeListener('error', this.#onError);
    this.#giveBack(this.#lostBy, this.#overdue);
  }
}

function fromPool(pool: PostgresPool): () => Promise<Lent> {
  return async () => {
    const client = await pool.connect();
    return { client, giveBack: (error) => client.release(error) };
  };
}

/** When the last of those who asked for a client will be done with it; shared by all stores, since the client is. */
const lastTurns = new WeakMap<PostgresClient, Promise<void>>();

function inTurns(client: PostgresClient): () => Promise<Lent> {
  return async () => {
    const before = lastTurns.get(client);
    let endTurn = (): void => undefined;
    const turn = new Promise<void>((resolve) => {
      endTurn = resolve;
    });
    lastTurns.set(client, turn);
    await before;
    return {
      client,
      giveBack: (_, overdue) => {
        // What was given up may still be carried out, and leave a transaction open: nobody's turn comes before that is over.
        const over = overdue?.catch(() => undefined).then(() => client.query('ROLLBACK'));
        Promise.resolve(over).then(endTurn, endTurn);
      },
    };
  };
}

/** The answer, unless it takes longer than the limit or the signal aborts first. What was asked for goes on all the same. */
async function within<Answer>(
  answer: Promise<Answer>,
  { limitMs, signal }: Patience,
  runtime: Runtime,
  advice: string,
): Promise<Answer> {
  const answered = new AbortController();
  const stop = signal ? AbortSignal.any([answered.signal, signal]) : answered.signal;
  const tooLate = runtime.sleep(limitMs, stop).then(() => {
    throw new StoreUnavailableError(`no answer from PostgreSQL within ${limitMs} ms: ${advice}`);
  });
  try {
    return await Promise.race([answer, tooLate]);
  } finally {
    answered.abort();
  }
}

/** Why no connection could be had. Nothing was sent. */
function connectFailure(error: unknown): Error {
  const { code = '', message = String(error) } = error as { code?: string; message?: string };
  const report = `no connection to PostgreSQL: ${message || code}`;
  const isSetup = isServerError(error)
    ? // Role or password refused, database unknown, or no right to connect to it.
      /^(28|3D|42501)/.test(code)
    : // pg has no codes of its own. What is neither the network nor a limit is TLS or a password that does not fit.
      code === 'ENOTFOUND' || (code === '' && !/terminated|timeout/i.test(message));
  return isSetup
    ? new StoreSetupError(`${report}; check address, database, role, password and TLS`, {
        cause: error,
      })
    : new StoreUnavailableError(report, { cause: error });
}
