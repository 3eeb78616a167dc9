import { InvalidArgumentError } from '../core/errors.js';
import {
  isSerializationFailure,
  isServerError,
  type PostgresClient,
  type PostgresResult,
} from './client.js';
import {
  failureOf,
  IN_FAILED_TRANSACTION,
  NOT_THE_TRANSACTION,
  notCommitted,
  outcomeUnknown,
  provesNoCommit,
  stalenessOf,
} from './failures.js';
import type { CheckedFence } from './fence.js';
import { nameFor } from './names.js';
import type { Runtime } from './runtime.js';
import type { Session } from './session.js';
import { COMMIT, checkStatement, confirmed, NOTHING, opening } from './statements.js';

/** What the caller's function works with: the statements between the ratchet and `COMMIT`. */
export interface FencedTransaction<Client = PostgresClient> {
  /**
   * Runs one statement. The driver's errors arrive as they are, except that a stale token is a `StaleTokenError`
   * once it leaves the function. The server ends it when the lease ends, or `holdMs` is over.
   *
   * @throws {InvalidArgumentError} where the statement would end the transaction, or the transaction or the lease is over.
   */
  query<Row = Record<string, unknown>>(
    text: string,
    values?: readonly unknown[],
  ): Promise<PostgresResult<Row>>;
  /**
   * The connection itself, for what `query` does not do: COPY (pg-copy-streams), cursors (pg-cursor), named statements. To be used
   * until the function returns, and not to end the transaction. Annotate the parameter to have it typed:
   * `async (tx: FencedTransaction<pg.PoolClient>) => …`
   */
  readonly client: Client;
}

/** Tags of statements that end a transaction; ROLLBACK is also that of the way back to a savepoint. */
const ENDINGS: readonly string[] = ['COMMIT', 'ROLLBACK', 'PREPARE'];

/** How far the server's limit may be off from the lease before it is told anew. */
const LIMIT_SLACK_MS = 50;

/** From here on the server has a limit for whole transactions, which goes on by itself. */
const WITH_TRANSACTION_TIMEOUT = 170_000;

/**
 * A transaction, and once more, on the same connection, where a statement failed only for the name under which the server was
 * to know it. Each time there are fewer names.
 */
export async function runTransaction<Result, Client>(
  session: Session,
  fence: CheckedFence,
  writeId: string,
  runtime: Runtime,
  work: (tx: FencedTransaction<Client>) => Promise<Result>,
): Promise<Result> {
  for (;;) {
    const run = new Run(session, fence, writeId, runtime);
    try {
      return await run.run(work);
    } catch (error) {
      if (!run.failedForName || session.lostBy) throw error;
      fence.signal?.throwIfAborted();
    }
  }
}

/** One run of a fenced transaction, from `BEGIN` to the answer to `COMMIT`. Its errors say what became of it. */
class Run {
  readonly #session: Session;
  readonly #fence: CheckedFence;
  readonly #writeId: string;
  readonly #runtime: Runtime;
  /** What failed since a statement last succeeded: the transaction has failed with the first, whatever the caller made of it. */
  #failures: unknown[] = [];
  #isOver = false;
  #lostName = false;
  /** How many statements have not been answered. */
  #running = 0;
  /** Whether a statement may have ended the transaction: what we looked at cannot have. */
  #mayHaveEnded = false;
  #serverVersion = 0;
  /** When the server was told how long the resource may be held, and until when that is. */
  #heldSinceMs = 0;
  #heldUntilMs = 0;

  constructor(session: Session, fence: CheckedFence, writeId: string, runtime: Runtime) {
    this.#session = session;
    this.#fence = fence;
    this.#writeId = writeId;
    this.#runtime = runtime;
  }

  /** Whether a statement failed that would not have without its name, and nothing can have been committed. */
  get failedForName(): boolean {
    return this.#lostName && !this.#mayHaveEnded;
  }

  async run<Result, Client>(
    work: (tx: FencedTransaction<Client>) => Promise<Result>,
  ): Promise<Result> {
    const transactionId = await this.#begin();
    let result: Result;
    try {
      result = await work(this.#transaction<Client>());
    } catch (thrown) {
      this.#isOver = true;
      throw await this.#failureOfWork(thrown);
    }
    this.#isOver = true;
    await this.#commit(transactionId);
    return result;
  }

  #transaction<Client>(): FencedTransaction<Client> {
    const { client } = this.#session;
    // Nobody can tell what was done with it.
    const lend = (): void => {
      this.#mayHaveEnded = true;
    };
    return {
      query: (text, values) => this.#query(text, values),
      get client() {
        lend();
        return client as Client;
      },
    };
  }

  async #query<Row>(text: string, values?: readonly unknown[]): Promise<PostgresResult<Row>> {
    this.#requireOpen();
    checkStatement(text, values);
    // It will be run again, so that nothing that comes now matters.
    if (this.#lostName) throw this.#failures[0];
    this.#running += 1;
    const { client, canBatch } = this.#session;
    // A text without values may be several statements, and those cannot have a name.
    const mayHaveName = !this.#mayHaveEnded && canBatch && values?.length;
    const name = mayHaveName ? nameFor(client, text) : undefined;
    try {
      const limitMs = await this.#holdOn();
      // What is sent behind COMMIT or ROLLBACK is no part of the transaction.
      this.#requireOpen();
      const result = await this.#session.query<Row>(text, values, limitMs, name);
      this.#failures = [];
      if (Array.isArray(result) || ENDINGS.includes(result.command)) this.#mayHaveEnded = true;
      return result;
    } catch (error) {
      this.#failures.push(error);
      if (this.#session.forgoesName(error, { text, name })) this.#lostName = true;
      throw error;
    } finally {
      this.#running -= 1;
    }
  }

  #requireOpen(): void {
    if (this.#isOver)
      throw new InvalidArgumentError(
        'tx.query was called, or not awaited, when its transaction ended',
      );
  }

  /** The server's name for the transaction, once it holds the ratchet. Nothing of the caller's is sent before. */
  async #begin(): Promise<string> {
    const statements = opening(this.#fence);
    this.#countFrom(this.#fence.limitMs());
    try {
      const results = await this.#session.batchFromStart<[id: string, version: string]>(statements);
      const [[id = '', version = ''] = []] = results.at(-1)?.rows ?? [];
      this.#serverVersion = Number(version);
      return id;
    } catch (error) {
      const length = statements.length;
      throw await failureOf(error, this.#session, this.#fence, {
        writeId: this.#writeId,
        ours: length,
        commitAt: length,
      });
    }
  }

  /** Tells the server how long the lease still lasts, where it does not know: the lease was extended, or its limits are for pauses only. */
  async #holdOn(): Promise<number> {
    const limitMs = this.#fence.limitMs();
    if (!this.#fence.hasLease) return limitMs;
    const nowMs = this.#runtime.nowMs();
    const isExtended = nowMs + limitMs > this.#heldUntilMs + LIMIT_SLACK_MS;
    const isForgotten =
      this.#serverVersion < WITH_TRANSACTION_TIMEOUT && nowMs > this.#heldSinceMs + LIMIT_SLACK_MS;
    if (!isExtended && !isForgotten) return limitMs;
    this.#countFrom(limitMs);
    try {
      await this.#session.query('SELECT fenced.hold($1::integer)', [limitMs]);
    } catch (error) {
      // What comes next may be the way back to a savepoint.
      if (!isServerError(error) || error.code !== IN_FAILED_TRANSACTION) throw error;
    }
    return limitMs;
  }

  #countFrom(limitMs: number): void {
    this.#heldSinceMs = this.#runtime.nowMs();
    this.#heldUntilMs = this.#heldSinceMs + limitMs;
  }

  async #failureOfWork(thrown: unknown): Promise<unknown> {
    const isAlive = await this.#session.rollBack();
    const [first] = this.#failures;
    // Also where the function threw an error of its own because of it: run again it may not fail.
    if (isSerializationFailure(first)) return first;
    if (thrown instanceof InvalidArgumentError || !this.#failures.includes(thrown)) return thrown;
    return isAlive ? stalenessOf(thrown) : notCommitted(thrown, this.#session, this.#fence.signal);
  }

  async #commit(transactionId: string): Promise<void> {
    if (this.#fence.signal?.aborted || this.#session.lostBy || this.#lostName) {
      await this.#session.rollBack();
      const cause = this.#session.lostBy ?? this.#failures[0];
      throw notCommitted(cause, this.#session, this.#fence.signal);
    }
    const isSure = !this.#mayHaveEnded && this.#running === 0 && this.#failures.length === 0;
    const statements = isSure ? [NOTHING, COMMIT] : confirmed(transactionId);
    try {
      const results = await this.#session.batch(statements);
      // Invariant: only the tag COMMIT says that something was committed: a failed transaction answers ROLLBACK, without an error.
      if (results.at(-1)?.command === 'COMMIT') return;
      throw new Error('COMMIT was not answered with COMMIT');
    } catch (error) {
      const failed = statements[this.#session.progress.answered];
      if (this.#session.forgoesName(error, failed)) this.#lostName = true;
      throw await this.#failureOfCommit(error);
    }
  }

  async #failureOfCommit(error: unknown): Promise<unknown> {
    const isAlive = await this.#session.rollBack();
    if (provesNoCommit(error, this.#session, 1))
      return notCommitted(error, this.#session, this.#fence.signal);
    if (!isAlive || !isServerError(error)) return outcomeUnknown(this.#fence, this.#writeId, error);
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
        return stalenessOf(error);
    }
  }
}
