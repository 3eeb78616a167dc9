import { InvalidArgumentError } from '../core/errors.js';
import { shown } from '../core/shown.js';
import { isSerializationFailure, isServerError, type PostgresResult } from './client.js';
import {
  beforeWork,
  IN_FAILED_TRANSACTION,
  NOT_THE_TRANSACTION,
  notCommitted,
  outcomeUnknown,
  provesNoCommit,
  stalenessOf,
} from './failures.js';
import type { CheckedFence, IsolationLevel } from './fence.js';
import type { Session } from './session.js';

/** What the caller's function works with: the statements between the ratchet and `COMMIT`. */
export interface FencedTransaction {
  /**
   * Runs one statement. The driver's errors arrive as they are, except that a stale token is a `StaleTokenError`
   * once it leaves the function. There is no time limit here, since only the caller knows how long a statement may take:
   * set `statement_timeout` on the server or `query_timeout` of pg, or let a signal end it.
   *
   * @throws {InvalidArgumentError} where the statement would end the transaction, or the transaction is over.
   */
  query<Row = Record<string, unknown>>(
    text: string,
    values?: readonly unknown[],
  ): Promise<PostgresResult<Row>>;
}

/**
 * Advances every resource in a transaction of its own: what lower tokens wrote is committed then, and none of them can
 * write any more.
 */
export async function claim(session: Session, fence: CheckedFence): Promise<void> {
  await session.script(...opening(session, fence, 'read committed'), 'COMMIT');
}

function opening(session: Session, fence: CheckedFence, isolation: IsolationLevel): string[] {
  const limitMs = fence.limitMs();
  return [
    `BEGIN ISOLATION LEVEL ${isolation} READ WRITE`,
    // A paused holder keeps its place until the server ends its session, so it must.
    `SET LOCAL idle_in_transaction_session_timeout = ${limitMs}`,
    `SET LOCAL lock_timeout = ${limitMs}`,
    ...fence.resources.map(
      (resource) => `SELECT fenced.advance(${session.quote(resource)}, ${fence.token})`,
    ),
  ];
}

/** Statements that would end the transaction, and the lock on the ratchet with it. `ROLLBACK TO` a savepoint may pass. */
const ENDS_TRANSACTION =
  /^\s*(begin|start\s+transaction|commit|end|abort|prepare\s+transaction|rollback(?!\s+((work|transaction)\s+)?to\b))\b/i;

/** @throws {InvalidArgumentError} where it is not text with a list of values, or would end the transaction. */
export function checkStatement(text: string, values: readonly unknown[] | undefined): void {
  // pg also takes an object with the text in it, which would pass the check below.
  if (typeof text !== 'string')
    throw new InvalidArgumentError(`the statement must be a string value=${shown(text)}`);
  if (values !== undefined && !Array.isArray(values))
    throw new InvalidArgumentError(`values must be an array value=${shown(values)}`);
  if (ENDS_TRANSACTION.test(text))
    throw new InvalidArgumentError(
      `tx.query must not begin or end a transaction: return to commit, throw to roll back statement=${text.slice(0, 40)}`,
    );
}

/** One run of a fenced transaction, from `BEGIN` to the answer to `COMMIT`. Its errors say what became of it. */
export class Run implements FencedTransaction {
  readonly #session: Session;
  readonly #fence: CheckedFence;
  readonly #writeId: string;
  /** What failed since a statement last succeeded: the transaction has failed with the first, whatever the caller made of it. */
  #failures: unknown[] = [];
  #isOver = false;

  constructor(session: Session, fence: CheckedFence, writeId: string) {
    this.#session = session;
    this.#fence = fence;
    this.#writeId = writeId;
  }

  async run<Result>(work: (tx: FencedTransaction) => Promise<Result>): Promise<Result> {
    const transactionId = await this.#begin();
    let result: Result;
    try {
      result = await work({ query: (text, values) => this.query(text, values) });
    } catch (thrown) {
      throw await this.#failureOfWork(thrown);
    } finally {
      this.#isOver = true;
    }
    await this.#commit(transactionId);
    return result;
  }

  async query<Row>(text: string, values?: readonly unknown[]): Promise<PostgresResult<Row>> {
    if (this.#isOver) {
      throw new InvalidArgumentError('tx.query was called after its transaction had ended');
    }
    checkStatement(text, values);
    try {
      const result = await this.#session.callersQuery<Row>(text, values);
      this.#failures = [];
      return result;
    } catch (error) {
      this.#failures.push(error);
      throw error;
    }
  }

  /** The server's name for the transaction, once it holds the ratchet. Nothing of the caller's is sent before. */
  async #begin(): Promise<string> {
    const { isolation } = this.#fence;
    try {
      // A snapshot for the whole transaction is taken here, before its turn, so what another holder wrote while we waited
      // would be missing from it. After a claim there is nobody left to wait for.
      if (isolation !== 'read committed') await claim(this.#session, this.#fence);
      const results = await this.#session.script<{ id: string }>(
        ...opening(this.#session, this.#fence, isolation),
        'SELECT pg_current_xact_id()::text AS id',
      );
      return results.at(-1)?.rows[0]?.id ?? '';
    } catch (error) {
      throw await beforeWork(error, this.#session, this.#fence);
    }
  }

  async #failureOfWork(thrown: unknown): Promise<unknown> {
    const isAlive = await this.#session.rollBack();
    const [first] = this.#failures;
    // Also where the function threw an error of its own because of it: run again it may not fail.
    if (isSerializationFailure(first)) return first;
    if (!this.#failures.includes(thrown)) return thrown;
    return isAlive ? stalenessOf(thrown) : notCommitted(thrown, this.#session, this.#fence.signal);
  }

  async #commit(transactionId: string): Promise<void> {
    if (this.#fence.signal?.aborted || this.#session.lostBy) {
      await this.#session.rollBack();
      throw notCommitted(this.#session.lostBy, this.#session, this.#fence.signal);
    }
    try {
      const results = await this.#session.script(
        `SELECT fenced.confirm('${transactionId}')`,
        'COMMIT',
      );
      // Invariant: only the tag COMMIT says that something was committed: a failed transaction answers ROLLBACK, without an error.
      if (results.at(-1)?.command === 'COMMIT') return;
      throw new Error('COMMIT was not answered with COMMIT');
    } catch (error) {
      throw await this.#failureOfCommit(error);
    }
  }

  async #failureOfCommit(error: unknown): Promise<unknown> {
    const isAlive = await this.#session.rollBack();
    if (provesNoCommit(error)) return notCommitted(error, this.#session, this.#fence.signal);
    // An error of the server that leaves the session alive undid the transaction. Anything else can follow a commit.
    if (!isAlive || !isServerError(error)) {
      return outcomeUnknown(this.#fence, this.#writeId, error);
    }
    switch (error.code) {
      case NOT_THE_TRANSACTION: {
        const cause = new InvalidArgumentError(
          'a statement ended the fenced transaction: what came before it may be applied, what came after it was not fenced',
        );
        return outcomeUnknown(this.#fence, this.#writeId, cause);
      }
      case IN_FAILED_TRANSACTION:
        return stalenessOf(this.#failures[0] ?? error);
      default:
        return error;
    }
  }
}
