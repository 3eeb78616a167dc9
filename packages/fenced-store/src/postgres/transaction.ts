import { InvalidArgumentError, type OutcomeUnknownError } from '../core/errors.js';
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
import { HoldLimit } from './hold-limit.js';
import type { Session } from './session.js';
import { COMMIT, checkStatement, confirming, mayEndTransaction, opening } from './statements.js';

/** The caller's side of a fenced transaction: statements between the token and COMMIT. */
export interface FencedTransaction<Client = PostgresClient> {
  /**
   * Runs one statement. The server ends it when the lease ends, or when `holdMs` is over.
   *
   * @throws the driver's error, unchanged. If the token is stale, `transaction` then throws a
   *   `StaleTokenError` in its place.
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
 * Runs the caller's function in one transaction that presents the token. Until the transaction
 * ends, it holds the ratchet of the resource: no other token is accepted. Each error says whether
 * something was written.
 */
export async function runTransaction<Result, Client>(
  session: Session,
  fence: CheckedFence,
  work: (tx: FencedTransaction<Client>) => Promise<Result>,
): Promise<Result> {
  const transaction = await Transaction.begin(session, fence);
  try {
    const result = await work(transaction.handle<Client>());
    await transaction.commit();
    return result;
  } catch (error) {
    throw await transaction.rollBack(error);
  }
}

/** Columns beside the presented token: the transaction's id, and the version of the server. */
const ID_AND_VERSION = `, pg_catalog.pg_current_xact_id()::pg_catalog.text AS id,
  pg_catalog.current_setting('server_version_num') AS version`;

/** Position of COMMIT in the last batch of a transaction. */
const COMMIT_AT = 1;

/** A transaction that holds the ratchet. */
class Transaction {
  readonly #session: Session;
  readonly #fence: CheckedFence;
  /** The server's id of the transaction. */
  readonly #id: string;
  readonly #limit: HoldLimit;
  /** Takes statements while `open`. COMMIT may have been sent only if `committing`. */
  #state: 'open' | 'closed' | 'committing' = 'open';
  /** Errors since the last successful statement. The first is the reason for those after it. */
  #failures: unknown[] = [];
  /** True once the caller had the client, or sent a text that may be several statements. */
  #mayHaveEnded = false;

  private constructor(session: Session, fence: CheckedFence, id: string, limit: HoldLimit) {
    this.#session = session;
    this.#fence = fence;
    this.#id = id;
    this.#limit = limit;
  }

  /** Sends BEGIN and the token. The caller's function runs after the server has accepted both. */
  static async begin(session: Session, fence: CheckedFence): Promise<Transaction> {
    const limit = new HoldLimit(session, fence.limitMs());
    try {
      const results = await session.batch(opening(fence, ID_AND_VERSION));
      const [, id, version] = fieldsOf(results.at(-1))[0] ?? [];
      limit.isForAll = Number(version) >= 170_000;
      return new Transaction(session, fence, id ?? '', limit);
    } catch (error) {
      throw await failureOf(error, session, fence);
    }
  }

  /** The object that the caller's function gets. */
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
      if (this.#fence.hasLease) await this.#limit.renew(limitMs);
      // The transaction may have ended during the renewal: the statement would not be fenced.
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
    if (this.#state !== 'open')
      throw new InvalidArgumentError(
        'tx.query was called after its transaction ended, or was not awaited before that',
      );
  }

  /** Sends COMMIT, and in front of it a check that this is still the same transaction. */
  async commit(): Promise<void> {
    this.#state = 'closed';
    const { signal } = this.#fence;
    const { lostBy } = this.#session;
    if (signal?.aborted || lostBy) throw notCommitted(lostBy, this.#session, signal);
    this.#state = 'committing';
    const results = await this.#session.batch([confirming(this.#id), COMMIT]);
    // Invariant: only the command tag COMMIT proves a commit. In a failed transaction, the server
    // answers COMMIT with the tag ROLLBACK, without an error.
    if (results.at(-1)?.command !== 'COMMIT')
      throw new Error('COMMIT was not answered with COMMIT');
  }

  /** Rolls back after an error. Returns the error that says whether something was written. */
  async rollBack(error: unknown): Promise<unknown> {
    const state = this.#state;
    this.#state = 'closed';
    const isAlive = await this.#session.rollBack();
    if (state === 'committing') return this.#failureOfCommit(error, isAlive);
    const failure = state === 'open' ? this.#failureOfWork(error, isAlive) : error;
    return this.#unlessEnded(failure, isAlive);
  }

  /** The error for the caller's function, which threw. Nothing was written. */
  #failureOfWork(thrown: unknown, isAlive: boolean): unknown {
    const [first] = this.#failures;
    // Another run may succeed, even if the function turned this failure into an error of its own.
    if (isSerializationFailure(first)) return first;
    if (thrown instanceof InvalidArgumentError || !this.#failures.includes(thrown)) return thrown;
    if (!isAlive) return notCommitted(thrown, this.#session, this.#fence.signal);
    // Before PostgreSQL 17, the limit ends the statement and not the session.
    return this.#limit.isOver && isCancellation(thrown) ? evicted(thrown) : stalenessOf(thrown);
  }

  /** The error for a COMMIT that did not succeed: "unknown" if the server may have committed. */
  async #failureOfCommit(error: unknown, isAlive: boolean): Promise<unknown> {
    if (!isAlive || !isServerError(error)) {
      if (!provesNoCommit(error, this.#session, COMMIT_AT)) return this.#unknown(error);
      const failure = notCommitted(error, this.#session, this.#fence.signal);
      return this.#unlessEnded(failure, isAlive);
    }
    // `confirming` found that a statement of the caller had ended the transaction.
    if (error.code === NOT_THE_TRANSACTION) return this.#unknown(endedByCaller(error));
    // A failed transaction refuses `confirming`, too. The first failure is the reason.
    const failure = error.code === IN_FAILED_TRANSACTION ? (this.#failures[0] ?? error) : error;
    return this.#unlessEnded(stalenessOf(failure), isAlive);
  }

  /**
   * Returns `failure`, which says that nothing was written, unless the caller may have sent COMMIT.
   * In that case, asks the server. Without an answer, the outcome is unknown.
   */
  async #unlessEnded(failure: unknown, isAlive: boolean): Promise<unknown> {
    if (!this.#mayHaveEnded) return failure;
    const status = isAlive ? await this.#status() : undefined;
    if (status === 'aborted') return failure;
    return this.#unknown(status === 'committed' ? endedByCaller(failure) : failure);
  }

  async #status(): Promise<string | undefined> {
    const text = 'SELECT pg_catalog.pg_xact_status($1::pg_catalog.xid8)';
    const asked = this.#session.query(text, [this.#id]);
    return asked.then(
      (result) => fieldsOf(result)[0]?.[0] ?? undefined,
      () => undefined,
    );
  }

  #unknown(cause: unknown): OutcomeUnknownError {
    return outcomeUnknown(cause, this.#session, this.#fence);
  }
}

function endedByCaller(cause: unknown): InvalidArgumentError {
  return new InvalidArgumentError(
    'a statement ended the fenced transaction: earlier statements may be applied, later ones were not fenced',
    { cause },
  );
}
