import { StoreSetupError, StoreUnavailableError } from '../core/errors.js';
import { type Batch, type Statement, sendBatch } from './batch.js';
import { cancelRunning } from './cancel.js';
import type { LentClient, PostgresNotice, PostgresResult, SessionClient } from './client.js';
import { LIMIT_MS_MAX } from './fence.js';
import type { Runtime } from './runtime.js';
import { within } from './within.js';

/** Extra time for an answer, after a limit that the server itself keeps. */
const ANSWER_GRACE_MS = 1_000;

/**
 * PostgreSQL's routine that waits for synchronous standbys. Notices name the routine that sent
 * them. That name is not translated, as their text is.
 */
const WAIT_FOR_STANDBY = 'SyncRepWaitForLSN';

/**
 * Gives a connection back to its owner.
 *
 * @param lostBy the reason why the connection cannot be used any more, if there is one
 * @param pending an answer or a cancellation that is still on its way
 */
type GiveBack = (lostBy: Error | undefined, pending: Promise<unknown> | undefined) => void;

interface SessionOptions {
  readonly runtime: Runtime;
  /** Default limit for a statement. */
  readonly limitMs: number;
  /** True if the connection belongs to a pool, which opens another one in place of a closed one. */
  readonly isPools: boolean;
}

/** One connection while it is borrowed. */
export class Session {
  readonly client: SessionClient & Pick<LentClient, 'native'>;
  readonly runtime: Runtime;
  /** The reason why the connection cannot be used any more, if that is known. */
  lostBy: Error | undefined;
  readonly #giveBack: GiveBack;
  readonly #options: SessionOptions;
  #batch: Batch = { results: Promise.resolve([]), sent: 0, answered: 0 };
  #running = 0;
  #pending: Promise<unknown> | undefined;
  #cancelling: Promise<void> | undefined;
  #isClosed = false;
  /**
   * True if the server gave up a wait for a synchronous standby. It still reports success. Only a
   * notice says that a failover may lose the write.
   */
  #lacksStandby = false;

  constructor(client: Session['client'], giveBack: GiveBack, options: SessionOptions) {
    this.client = client;
    this.runtime = options.runtime;
    this.#giveBack = giveBack;
    this.#options = options;
    // Without a listener, an error of the connection would end the process.
    client.on('error', this.#onError);
    client.on('notice', this.#onNotice);
  }

  readonly #onError = (error: Error): void => {
    this.lostBy ??= error;
  };

  readonly #onNotice = ({ routine }: PostgresNotice): void => {
    if (routine === WAIT_FOR_STANDBY) this.#lacksStandby = true;
  };

  /** The server's progress with the last batch. */
  get progress(): Pick<Batch, 'sent' | 'answered'> {
    return this.#batch;
  }

  /**
   * Refuses a connection whose owner has left a transaction open. Our BEGIN would do nothing there,
   * and our COMMIT would end the owner's transaction.
   *
   * @throws {StoreSetupError}
   */
  requireIdle(): void {
    const status = this.client.getTransactionStatus?.();
    if (status === undefined || status === 'I') return;
    this.lostBy = new StoreSetupError(
      status === null
        ? 'the pg.Client is not connected yet: await its connect() first'
        : 'the connection is in a transaction: end it before the connection is used here or given back to the pool',
    );
    throw this.lostBy;
  }

  /** Sends one statement. The server is expected to end the statement within `limitMs`. */
  query<Row>(
    text: string,
    values?: readonly unknown[],
    limitMs?: number,
  ): Promise<PostgresResult<Row>> {
    const answer = this.client.query(text, values && [...values]);
    return this.#answer(answer as Promise<PostgresResult<Row>>, limitMs);
  }

  /** Sends several statements, in one round trip if possible. None runs after a failed one. */
  batch<Row>(statements: readonly Statement[], limitMs?: number): Promise<PostgresResult<Row>[]> {
    this.#batch = sendBatch(this.client, statements);
    return this.#answer(this.#batch.results as Promise<PostgresResult<Row>[]>, limitMs);
  }

  /** Waits for an answer. A connection whose answer does not come in time counts as lost. */
  async #answer<Answer>(
    answer: Promise<Answer>,
    limitMs: number = this.#options.limitMs,
  ): Promise<Answer> {
    const waitLimit = {
      limitMs: Math.min(limitMs + ANSWER_GRACE_MS, LIMIT_MS_MAX),
      signal: undefined,
    };
    this.#running += 1;
    try {
      const result = await within(answer, waitLimit, this.runtime, 'the connection is given up');
      if (!this.#lacksStandby) return result;
      this.#lacksStandby = false;
    } catch (error) {
      if (error instanceof StoreUnavailableError) {
        this.lostBy ??= error;
        this.#pending = answer;
      }
      throw error;
    } finally {
      this.#running -= 1;
    }
    throw new Error(
      'the server gave up its wait for a synchronous standby, which may lack the write',
    );
  }

  /**
   * Cancels the running statement, because the caller's signal aborted. The answer to the statement
   * reports the outcome. If none comes within a second, a connection of a pool is closed, and the
   * server rolls back.
   */
  async interrupt(reason: unknown): Promise<void> {
    if (this.#running > 0) {
      const enough = new AbortController();
      this.#cancelling = cancelRunning(this.client, enough.signal);
      await this.runtime.sleep(ANSWER_GRACE_MS, undefined);
      enough.abort();
    }
    if (!this.#options.isPools) return;
    this.lostBy ??= new Error('the signal aborted', { cause: reason });
    this.close();
  }

  /**
   * Rolls back the transaction, if one is open. False if the server did not answer. The connection
   * is lost then, and the server rolls back when it notices that.
   */
  async rollBack(statement = 'ROLLBACK'): Promise<boolean> {
    if (this.lostBy !== undefined) return false;
    try {
      await this.#cancelling;
      await this.query(statement);
      return true;
    } catch (error) {
      this.lostBy ??= error instanceof Error ? error : new Error(String(error));
      return false;
    }
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    // A cancel request that arrives late would hit the next user's statement. So the pool must
    // close the connection.
    if (this.#options.isPools && this.#cancelling !== undefined)
      this.lostBy ??= new Error('a statement was cancelled');
    this.client.removeListener('notice', this.#onNotice);
    // A lost connection may report further errors, so it keeps the listener.
    if (this.lostBy === undefined) this.client.removeListener('error', this.#onError);
    this.#giveBack(this.lostBy, this.#pending ?? this.#cancelling);
  }
}
