import { InvalidArgumentError } from '../core/errors.js';
import {
  fieldsOf,
  isCancellation,
  isSerializationFailure,
  isServerError,
  type PostgresClient,
  type PostgresResult,
} from './client.js';
import {
  evicted,
  failureOf,
  IN_FAILED_TRANSACTION,
  NOT_THE_TRANSACTION,
  notCommitted,
  outcomeUnknown,
  provesNoCommit,
  stalenessOf,
} from './failures.js';
import type { CheckedFence } from './fence.js';
import type { Session } from './session.js';
import { COMMIT, checkStatement, confirming, mayEndTransaction, opening } from './statements.js';

/** The caller's side of a fenced transaction: statements between the token and COMMIT. */
export interface FencedTransaction<Client = PostgresClient> {
  /**
   * Runs one statement. The server ends it when the lease ends, or when `holdMs` is over.
   *
   * @throws the driver's error as it is. `transaction` turns that of a stale token into a
   *   `StaleTokenError`.
   * @throws {InvalidArgumentError} the statement would end the transaction, or the transaction or
   *   the lease is over
   */
  query<Row = Record<string, unknown>>(
    text: string,
    values?: readonly unknown[],
  ): Promise<PostgresResult<Row>>;
  /**
   * The connection itself, for COPY (pg-copy-streams), cursors (pg-cursor) and named statements.
   * Use it until the function returns, and do not end the transaction with it. After its use, a
   * lost connection leaves the outcome unknown, because you may have ended the transaction. Its
   * type is that of the parameter: `async (tx: FencedTransaction<pg.PoolClient>) => …`
   */
  readonly client: Client;
}

/**
 * Runs the caller's function in one transaction that holds the ratchet, and commits.
 * Its errors say whether something was written.
 */
export async function runTransaction<Result, Client>(
  session: Session,
  fence: CheckedFence,
  work: (tx: FencedTransaction<Client>) => Promise<Result>,
): Promise<Result> {
  const transaction = new Transaction(session, fence);
  await transaction.begin();
  let result: Result;
  try {
    result = await work(transaction.handle<Client>());
  } catch (thrown) {
    throw await transaction.rollBack(thrown);
  }
  await transaction.commit();
  return result;
}

/** Up to this difference, the server's limit is not brought up to the lease's remaining time. */
const LIMIT_SLACK_MS = 50;

/** Position of COMMIT in the last batch of a transaction. */
const COMMIT_AT = 1;

/** A transaction that holds the ratchet. */
class Transaction {
  readonly #session: Session;
  readonly #fence: CheckedFence;
  /** The server's id of the transaction. */
  #id = '';
  /** Time at which a limit was last sent to the server, and time at which that limit ends. */
  #limitedAtMs = 0;
  #limitedUntilMs = 0;
  /** True if the limit is for the transaction. Before PostgreSQL 17, it is for each statement. */
  #isLimitedAsAWhole = false;
  /** Failures since the last successful statement. The first one made the transaction fail. */
  #failures: unknown[] = [];
  /** True once the caller had the client, or sent a text that may be several statements. */
  #mayHaveEnded = false;
  #isOver = false;

  constructor(session: Session, fence: CheckedFence) {
    this.#session = session;
    this.#fence = fence;
  }

  /** Sends BEGIN and the token. No statement of the caller comes before the ratchet is held. */
  async begin(): Promise<void> {
    const columns = `, pg_catalog.pg_current_xact_id()::pg_catalog.text AS id,
      pg_catalog.current_setting('server_version_num') AS version`;
    this.#countFrom(this.#fence.limitMs());
    try {
      const statements = opening(this.#fence, columns);
      const results = await this.#session.batch(statements);
      const [, id, version] = fieldsOf(results.at(-1))[0] ?? [];
      this.#id = id ?? '';
      this.#isLimitedAsAWhole = Number(version) >= 170_000;
    } catch (error) {
      throw await failureOf(error, this.#session, this.#fence);
    }
  }

  handle<Client>(): FencedTransaction<Client> {
    const lend = (): Client => {
      this.#mayHaveEnded = true;
      const { client } = this.#session;
      return (client.native ?? client) as Client;
    };
    return {
      query: <Row>(text: string, values?: readonly unknown[]) => this.#query<Row>(text, values),
      get client() {
        return lend();
      },
    };
  }

  async #query<Row>(text: string, values?: readonly unknown[]): Promise<PostgresResult<Row>> {
    this.#requireOpen();
    checkStatement(text, values);
    if (mayEndTransaction(text, values)) this.#mayHaveEnded = true;
    try {
      const limitMs = this.#fence.limitMs();
      if (this.#fence.hasLease) await this.#renewLimit(limitMs);
      // A statement after COMMIT or ROLLBACK would not be fenced.
      this.#requireOpen();
      const result = await this.#session.query<Row>(text, values, limitMs);
      this.#failures = [];
      return result;
    } catch (error) {
      this.#failures.push(error);
      throw error;
    }
  }

  #requireOpen(): void {
    if (this.#isOver)
      throw new InvalidArgumentError(
        'tx.query was called, or not awaited, when its transaction ended',
      );
  }

  /**
   * Sends the lease's remaining time as the new limit if the lease was extended. Before PostgreSQL
   * 17, each statement has the whole limit, so a shorter one is sent as the lease runs out.
   */
  async #renewLimit(limitMs: number): Promise<void> {
    const nowMs = this.#session.runtime.nowMs();
    const isExtended = nowMs + limitMs > this.#limitedUntilMs + LIMIT_SLACK_MS;
    const isStale = !this.#isLimitedAsAWhole && nowMs > this.#limitedAtMs + LIMIT_SLACK_MS;
    if (!isExtended && !isStale) return;
    this.#countFrom(limitMs);
    try {
      await this.#session.query('SELECT fenced.hold($1::integer)', [limitMs]);
    } catch (error) {
      // The transaction has failed. The caller's statement may roll back to a savepoint.
      if (!isServerError(error) || error.code !== IN_FAILED_TRANSACTION) throw error;
    }
  }

  #countFrom(limitMs: number): void {
    this.#limitedAtMs = this.#session.runtime.nowMs();
    this.#limitedUntilMs = this.#limitedAtMs + limitMs;
  }

  /** Sends COMMIT, and with it a check that this is still the same transaction. */
  async commit(): Promise<void> {
    this.#isOver = true;
    if (this.#fence.signal?.aborted || this.#session.lostBy)
      throw await this.#rollBackFor(this.#session.lostBy);
    try {
      const results = await this.#session.batch([confirming(this.#id), COMMIT]);
      // Invariant: only the command tag COMMIT proves a commit. In a failed transaction, the server
      // answers COMMIT with the tag ROLLBACK, without an error.
      if (results.at(-1)?.command !== 'COMMIT')
        throw new Error('COMMIT was not answered with COMMIT');
    } catch (error) {
      throw await this.#failureOfCommit(error);
    }
  }

  /** Rolls back after the caller's function has thrown. Returns the error of the transaction. */
  async rollBack(thrown: unknown): Promise<unknown> {
    this.#isOver = true;
    const isAlive = await this.#session.rollBack();
    return this.#failureOrUnknown(this.#failureOfWork(thrown, isAlive), isAlive);
  }

  async #rollBackFor(cause: unknown): Promise<unknown> {
    const isAlive = await this.#session.rollBack();
    const failure = notCommitted(cause, this.#session, this.#fence.signal);
    return this.#failureOrUnknown(failure, isAlive);
  }

  #failureOfWork(thrown: unknown, isAlive: boolean): unknown {
    const [first] = this.#failures;
    // A second run may succeed, even if the function threw another error because of this one.
    if (isSerializationFailure(first)) return first;
    if (thrown instanceof InvalidArgumentError || !this.#failures.includes(thrown)) return thrown;
    if (!isAlive) return notCommitted(thrown, this.#session, this.#fence.signal);
    // Before PostgreSQL 17, the limit ends the statement and not the session.
    const isTimeOver = this.#session.runtime.nowMs() >= this.#limitedUntilMs;
    return isTimeOver && isCancellation(thrown) ? evicted(thrown) : stalenessOf(thrown);
  }

  async #failureOfCommit(error: unknown): Promise<unknown> {
    const isProven = provesNoCommit(error, this.#session, COMMIT_AT);
    const isAlive = await this.#session.rollBack();
    // The connection was lost, or the error is not the server's: COMMIT may have been carried out.
    if (!isAlive || !isServerError(error)) {
      if (!isProven) return outcomeUnknown(error, this.#session, this.#fence);
      const failure = notCommitted(error, this.#session, this.#fence.signal);
      return this.#failureOrUnknown(failure, isAlive);
    }
    // Found by `confirming`: a statement of the caller had ended the transaction.
    if (error.code === NOT_THE_TRANSACTION)
      return outcomeUnknown(endedByCaller(error), this.#session, this.#fence);
    // A failed transaction refuses `confirming`, too. The first failure is the reason.
    const failure = error.code === IN_FAILED_TRANSACTION ? (this.#failures[0] ?? error) : error;
    return this.#failureOrUnknown(stalenessOf(failure), isAlive);
  }

  /**
   * Returns `failure`, which says that nothing was written. If the caller may have ended the
   * transaction, asks the server whether it was committed. Without an answer, the outcome is
   * unknown.
   */
  async #failureOrUnknown(failure: unknown, isAlive: boolean): Promise<unknown> {
    if (!this.#mayHaveEnded) return failure;
    const status = isAlive ? await this.#status() : undefined;
    if (status === 'aborted') return failure;
    const cause = status === 'committed' ? endedByCaller(failure) : failure;
    return outcomeUnknown(cause, this.#session, this.#fence);
  }

  async #status(): Promise<string | undefined> {
    const text = 'SELECT pg_catalog.pg_xact_status($1::pg_catalog.xid8)';
    const asked = this.#session.query(text, [this.#id]);
    return asked.then(
      (result) => fieldsOf(result)[0]?.[0] ?? undefined,
      () => undefined,
    );
  }
}

function endedByCaller(cause: unknown): InvalidArgumentError {
  return new InvalidArgumentError(
    'a statement ended the fenced transaction: earlier statements may be applied, later ones were not fenced',
    { cause },
  );
}
