import { StoreSetupError, StoreUnavailableError } from '../core/errors.js';
import type { Batched, Statement } from './batch.js';
import { type BorrowedConnection, fromPool, serialized } from './borrowed-connection.js';
import { cancelRunning } from './cancel.js';
import {
  isServerError,
  type PostgresClient,
  type PostgresPool,
  type PostgresResult,
} from './client.js';
import { LIMIT_MS_MAX } from './fence.js';
import type { Runtime } from './runtime.js';
import { type ConnectionState, stateOf } from './state.js';

/** How much longer than a limit that the server itself keeps we wait for its answer. */
const ANSWER_GRACE_MS = 1_000;

/** SQLSTATEs: the server does not know a statement of that name, or knows one already, or the statement would now have other columns. */
const NAME_TROUBLES = ['26000', '42P05', '0A000'];

/** How long to wait for something of the server, and whose signal ends the wait earlier. */
export interface WaitLimit {
  readonly limitMs: number;
  readonly signal: AbortSignal | undefined;
}

/** Lends connections of the caller's pool, or the caller's only client to one user after the other. */
export class Connections {
  readonly #runtime: Runtime;
  readonly #isPool: boolean;
  readonly #borrow: () => Promise<BorrowedConnection>;

  constructor(pool: PostgresPool | PostgresClient, runtime: Runtime) {
    this.#runtime = runtime;
    // Both have `connect` and `query` in pg. Only clients can quote.
    this.#isPool = !('escapeLiteral' in pool);
    this.#borrow = 'escapeLiteral' in pool ? serialized(pool) : fromPool(pool);
  }

  /**
   * Runs `use` on a connection of its own that is ready for a transaction.
   *
   * @throws {StoreUnavailableError} where none can be had within the limit.
   * @throws {StoreSetupError} where address, credentials or the connection's state are wrong.
   */
  async with<Result>(
    waitLimit: WaitLimit,
    use: (session: Session) => Promise<Result>,
  ): Promise<Result> {
    const borrowed = await this.#checkOut(waitLimit);
    const session = new Session(borrowed, this.#isPool, this.#runtime, waitLimit.limitMs);
    const interrupt = (): void => void session.interrupt(waitLimit.signal?.reason);
    waitLimit.signal?.addEventListener('abort', interrupt, { once: true });
    try {
      waitLimit.signal?.throwIfAborted();
      session.requireIdle();
      return await use(session);
    } finally {
      waitLimit.signal?.removeEventListener('abort', interrupt);
      session.close();
    }
  }

  #checkOut(waitLimit: WaitLimit): Promise<BorrowedConnection> {
    waitLimit.signal?.throwIfAborted();
    const borrowing = this.#borrow();
    const advice = 'is it a PostgreSQL server, and are there connections enough?';
    return within(borrowing, waitLimit, this.#runtime, advice).catch((error) => {
      // Where the wait was given up, what comes after it goes straight back.
      void borrowing.then(
        (borrowed) => borrowed.giveBack(),
        () => undefined,
      );
      throw error;
    });
  }
}

/** One connection while it is ours. */
export class Session {
  readonly client: PostgresClient;
  readonly state: ConnectionState;
  readonly #borrowed: BorrowedConnection;
  readonly #isPools: boolean;
  readonly runtime: Runtime;
  readonly #limitMs: number;
  #isClosed = false;
  #batched: Batched = { results: Promise.resolve([]), sent: 0, answered: 0 };
  #running = 0;
  #overdue: Promise<unknown> | undefined;
  #cancelling: Promise<void> | undefined;

  /** @param isPools whether the connection is a pool's, which opens others for those that are closed */
  constructor(borrowed: BorrowedConnection, isPools: boolean, runtime: Runtime, limitMs: number) {
    this.client = borrowed.client;
    this.#borrowed = borrowed;
    this.#isPools = isPools;
    this.runtime = runtime;
    this.#limitMs = limitMs;
    this.state = stateOf(this.client);
    this.state.lacksStandby = false;
  }

  /** Why the connection is of no more use, as far as that is known. */
  get lostBy(): Error | undefined {
    return this.#borrowed.lostBy;
  }

  /** How far the last batch has come. */
  get progress(): Pick<Batched, 'sent' | 'answered'> {
    return this.#batched;
  }

  /** A `BEGIN` inside of somebody else's transaction would only warn, and our `COMMIT` would end theirs. */
  requireIdle(): void {
    const status = this.client.getTransactionStatus?.();
    if (status === undefined || status === 'I') return;
    const reason =
      status === null
        ? 'the pg.Client is not connected yet: await its connect() first'
        : 'the connection is in the middle of a transaction: end it before the connection is used here or given back to the pool';
    this.#borrowed.lostBy = new StoreSetupError(reason);
    throw this.#borrowed.lostBy;
  }

  /** One statement, which the server itself ends after `limitMs`. Only where a batch is one message may it have a name. */
  query<Row>(
    text: string,
    values?: readonly unknown[],
    limitMs: number = this.#limitMs,
    name?: string,
  ): Promise<PostgresResult<Row>> {
    if (name === undefined) {
      const answer = this.client.query(text, values && [...values]);
      return this.#answer(answer as Promise<PostgresResult<Row>>, limitMs);
    }
    const results = this.batch<Row>([{ text, values, name }], limitMs);
    return results.then(([result]) => result as PostgresResult<Row>);
  }

  /** Several statements, in one round trip where that can be done. After the first that fails none is carried out. */
  batch<Row>(
    statements: readonly Statement[],
    limitMs: number = this.#limitMs,
  ): Promise<PostgresResult<Row>[]> {
    this.#batched = this.state.sender.send(statements, this.state.names.areKept);
    return this.#answer(this.#batched.results as Promise<PostgresResult<Row>[]>, limitMs);
  }

  /** A batch that begins a transaction, or is one. Where a name is not known, it is sent once more without names. */
  async batchFromStart<Row>(
    statements: readonly Statement[],
    limitMs?: number,
  ): Promise<PostgresResult<Row>[]> {
    try {
      return await this.batch(statements, limitMs);
    } catch (error) {
      if (!this.forgoesName(error, statements[this.progress.answered])) throw error;
      if (statements[0]?.text.startsWith('BEGIN')) await this.query('ROLLBACK');
      const unnamed = statements.map(({ name: _, ...rest }): Statement => rest);
      return this.batch(unnamed, limitMs);
    }
  }

  /** Whether a statement failed only for its name. From now on it is sent without. */
  forgoesName(error: unknown, failed: Statement | undefined): boolean {
    const isForName = isServerError(error) && NAME_TROUBLES.includes(error.code);
    const { names } = this.state;
    if (!isForName || failed?.name === undefined || !names.areKept) return false;
    if (error.code === '0A000' && !failed.isOurs) names.forgo(failed.text);
    else names.areKept = false;
    return true;
  }

  /** Where an answer does not come in time, the connection is as good as lost. */
  #answer<Answer>(answer: Promise<Answer>, limitMs: number): Promise<Answer> {
    const waitLimit = {
      limitMs: Math.min(limitMs + ANSWER_GRACE_MS, LIMIT_MS_MAX),
      signal: undefined,
    };
    this.#running += 1;
    return within(answer, waitLimit, this.runtime, 'the connection is given up').then(
      (result) => {
        this.#running -= 1;
        if (!this.state.lacksStandby) return result;
        this.state.lacksStandby = false;
        throw new Error('the server gave up its wait for a synchronous standby, which may lack it');
      },
      (error: unknown) => {
        this.#running -= 1;
        if (error instanceof StoreUnavailableError) {
          this.#borrowed.lostBy ??= error;
          this.#overdue = answer;
        }
        throw error;
      },
    );
  }

  /**
   * Ends what is going on, since the caller's signal aborted. A running statement is cancelled, and its answer tells what became of
   * it; where there is none to be had, a pool's connection is closed, and the server rolls back. The caller's only client is not
   * ours to close.
   */
  async interrupt(reason: unknown): Promise<void> {
    const aborted = new Error('the signal aborted', { cause: reason });
    if (this.#running > 0) {
      const enough = new AbortController();
      this.#cancelling = cancelRunning(this.client, enough.signal);
      await this.runtime.sleep(ANSWER_GRACE_MS, undefined);
      enough.abort();
    }
    if (this.#isPools) this.#abandon(aborted);
  }

  /**
   * Ends whatever transaction is open. `false` where the server did not answer: the connection is lost then, and with it,
   * as soon as the server notices, the transaction.
   */
  async rollBack(statement = 'ROLLBACK'): Promise<boolean> {
    if (this.#borrowed.lostBy !== undefined) return false;
    try {
      await this.#cancelling;
      await this.query(statement);
      return true;
    } catch (error) {
      this.#borrowed.lostBy ??= error instanceof Error ? error : new Error(String(error));
      return false;
    }
  }

  /** Closes the connection under whatever is running on it. */
  #abandon(reason: Error): void {
    this.#borrowed.lostBy ??= reason;
    this.close();
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    // A cancellation may arrive late, and would hit the next statement, whose-ever that is.
    if (this.#isPools && this.#cancelling !== undefined)
      this.#borrowed.lostBy ??= new Error('cancelled');
    this.#borrowed.giveBack(this.#overdue ?? this.#cancelling);
  }
}

/** The answer, unless it takes longer than the limit or the signal aborts first. What was asked for goes on all the same. */
function within<Answer>(
  answer: Promise<Answer>,
  { limitMs, signal }: WaitLimit,
  runtime: Runtime,
  advice: string,
): Promise<Answer> {
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  const giveUp = (reason: unknown): void => {
    stop();
    reject(reason);
  };
  const abort = (): void => giveUp(signal?.reason);
  signal?.addEventListener('abort', abort, { once: true });
  const cancel = runtime.after(limitMs, () =>
    giveUp(new StoreUnavailableError(`no answer from PostgreSQL within ${limitMs} ms: ${advice}`)),
  );
  const stop = (): void => {
    cancel();
    signal?.removeEventListener('abort', abort);
  };
  if (signal?.aborted) abort();
  answer.then((result) => {
    stop();
    resolve(result);
  }, giveUp);
  return promise;
}
