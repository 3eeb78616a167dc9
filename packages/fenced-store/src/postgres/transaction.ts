import { InvalidArgumentError } from '../core/errors.js';
import { begin } from './begin.js';
import {
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
import {
  COMMIT,
  checkStatement,
  confirmed,
  mayEndTransaction,
  NOTHING,
  statusOf,
} from './statements.js';

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
   * until the function returns, and not to end the transaction. Once it was used, the loss of the connection leaves the outcome
   * unknown, because it may have ended the transaction. Annotate the parameter to have it typed:
   * `async (tx: FencedTransaction<pg.PoolClient>) => …`
   */
  readonly client: Client;
}

/** What the caller is given. Its fields may be taken apart. */
class Handle<Client> implements FencedTransaction<Client> {
  readonly query: FencedTransaction<Client>['query'];
  readonly #lend: () => Client;

  constructor(query: FencedTransaction<Client>['query'], lend: () => Client) {
    this.query = query;
    this.#lend = lend;
  }

  get client(): Client {
    return this.#lend();
  }
}

/** How far the server's limit may be off from the lease before it is told anew. */
const LIMIT_SLACK_MS = 50;

/**
 * A transaction, and once more, on the same connection, where a statement failed only for the name under which the server was
 * to know it. Each time there are fewer names.
 */
export async function runTransaction<Result, Client>(
  session: Session,
  fence: CheckedFence,
  work: (tx: FencedTransaction<Client>) => Promise<Result>,
): Promise<Result> {
  for (;;) {
    const run = new Run(session, fence);
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
  /** What failed since a statement last succeeded: the transaction has failed with the first, whatever the caller made of it. */
  #failures: unknown[] = [];
  #isOver = false;
  #lostName = false;
  /** How many statements have not been answered. */
  #running = 0;
  /** The server's name for the transaction. */
  #id = '';
  /** Whether the caller may have ended the transaction: with its connection, or with a text that may be several statements. */
  #mayHaveEnded = false;
  /** Whether the server's limit for the transaction goes on by itself. */
  #isLimited = false;
  /** When the server was told how long the resource may be held, and until when that is. */
  #heldSinceMs = 0;
  #heldUntilMs = 0;

  constructor(session: Session, fence: CheckedFence) {
    this.#session = session;
    this.#fence = fence;
  }

  /** Whether a statement failed that would not have without its name, and nothing can have been committed. */
  get failedForName(): boolean {
    return this.#lostName && !this.#mayHaveEnded;
  }

  async run<Result, Client>(
    work: (tx: FencedTransaction<Client>) => Promise<Result>,
  ): Promise<Result> {
    await this.#begin();
    let result: Result;
    try {
      const query: Handle<Client>['query'] = (text, values) => this.#query(text, values);
      result = await work(new Handle(query, () => this.#lend<Client>()));
    } catch (thrown) {
      this.#isOver = true;
      const isAlive = await this.#session.rollBack();
      throw await this.#unlessCommitted(this.#failureOfWork(thrown, isAlive), isAlive);
    }
    this.#isOver = true;
    await this.#commit();
    return result;
  }

  /** Nobody can tell what will be done with it. */
  #lend<Client>(): Client {
    this.#mayHaveEnded = true;
    return this.#session.client as Client;
  }

  async #query<Row>(text: string, values?: readonly unknown[]): Promise<PostgresResult<Row>> {
    this.#requireOpen();
    checkStatement(text, values);
    // It will be run again, so that nothing that comes now matters.
    if (this.#lostName) throw this.#failures[0];
    if (mayEndTransaction(text, values)) this.#mayHaveEnded = true;
    this.#running += 1;
    const { names, sender } = this.#session.state;
    // A text without values may be several statements, and those cannot have a name.
    const mayHaveName = !this.#mayHaveEnded && sender.canBatch && values?.length;
    const name = mayHaveName ? names.nameFor(text) : undefined;
    try {
      const limitMs = this.#fence.limitMs();
      if (this.#fence.hasLease) {
        await this.#holdOn(limitMs);
        // What is sent behind COMMIT or ROLLBACK is no part of the transaction.
        this.#requireOpen();
      }
      const result = await this.#session.query<Row>(text, values, limitMs, name);
      this.#failures = [];
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

  /** Nothing of the caller's is sent before the transaction holds the ratchet. */
  async #begin(): Promise<void> {
    this.#countFrom(this.#fence.limitMs());
    try {
      const { id, isLimited } = await begin(this.#session, this.#fence);
      this.#id = id;
      this.#isLimited = isLimited;
    } catch (error) {
      throw await failureOf(error, this.#session, this.#fence, {
        ours: Number.POSITIVE_INFINITY,
        commitAt: Number.POSITIVE_INFINITY,
      });
    }
  }

  /** Tells the server how long the lease still lasts, where it does not know: the lease was extended, or its limits are for pauses only. */
  async #holdOn(limitMs: number): Promise<void> {
    const nowMs = this.#session.runtime.nowMs();
    const isExtended = nowMs + limitMs > this.#heldUntilMs + LIMIT_SLACK_MS;
    const isForgotten = !this.#isLimited && nowMs > this.#heldSinceMs + LIMIT_SLACK_MS;
    if (!isExtended && !isForgotten) return;
    this.#countFrom(limitMs);
    try {
      await this.#session.query('SELECT fenced.hold($1::integer)', [limitMs]);
    } catch (error) {
      // What comes next may be the way back to a savepoint.
      if (!isServerError(error) || error.code !== IN_FAILED_TRANSACTION) throw error;
    }
  }

  #countFrom(limitMs: number): void {
    this.#heldSinceMs = this.#session.runtime.nowMs();
    this.#heldUntilMs = this.#heldSinceMs + limitMs;
  }

  #failureOfWork(thrown: unknown, isAlive: boolean): unknown {
    const [first] = this.#failures;
    // Also where the function threw an error of its own because of it: run again it may not fail.
    if (isSerializationFailure(first)) return first;
    if (thrown instanceof InvalidArgumentError || !this.#failures.includes(thrown)) return thrown;
    if (!isAlive) return notCommitted(thrown, this.#session, this.#fence.signal);
    // Before version 17, and while the client takes no rows, the server's limit ends the statement and not the session.
    const isOver = this.#session.runtime.nowMs() >= this.#heldUntilMs;
    return isOver && isCancellation(thrown) ? evicted(thrown) : stalenessOf(thrown);
  }

  /**
   * The failure, which says that nothing was written. If the caller may have ended the transaction, only the server knows
   * that, and without its word the outcome is unknown.
   */
  async #unlessCommitted(failure: unknown, isAlive: boolean): Promise<unknown> {
    if (!this.#mayHaveEnded) return failure;
    const results = isAlive && this.#session.batch<[string?]>([statusOf(this.#id)]);
    const status = results && (await results.catch(() => undefined))?.[0]?.rows[0]?.[0];
    if (status === 'aborted') return failure;
    const cause = status === 'committed' ? endedByCaller(failure) : failure;
    return outcomeUnknown(cause, this.#session, this.#fence);
  }

  async #commit(): Promise<void> {
    if (this.#fence.signal?.aborted || this.#session.lostBy || this.#lostName) {
      const isAlive = await this.#session.rollBack();
      const cause = this.#session.lostBy ?? this.#failures[0];
      const failure = notCommitted(cause, this.#session, this.#fence.signal);
      throw await this.#unlessCommitted(failure, isAlive);
    }
    const isSure = !this.#mayHaveEnded && this.#running === 0 && this.#failures.length === 0;
    const statements = isSure ? [NOTHING, COMMIT] : confirmed(this.#id);
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
    const isNotCommitted = provesNoCommit(error, this.#session, 1);
    const isAlive = await this.#session.rollBack();
    if (isNotCommitted) {
      const failure = notCommitted(error, this.#session, this.#fence.signal);
      return this.#unlessCommitted(failure, isAlive);
    }
    if (!isAlive || !isServerError(error)) return outcomeUnknown(error, this.#session, this.#fence);
    if (error.code === NOT_THE_TRANSACTION)
      return outcomeUnknown(endedByCaller(error), this.#session, this.#fence);
    const failure = error.code === IN_FAILED_TRANSACTION ? (this.#failures[0] ?? error) : error;
    return this.#unlessCommitted(stalenessOf(failure), isAlive);
  }
}

function endedByCaller(cause: unknown): InvalidArgumentError {
  return new InvalidArgumentError(
    'a statement ended the fenced transaction: what came before it may be applied, what came after it was not fenced',
    { cause },
  );
}
