import { readFile } from 'node:fs/promises';
import { checkFunction, checkObject, checkWholeNumber } from '../core/check.js';
import { ConflictError, InvalidArgumentError, StoreUnavailableError } from '../core/errors.js';
import {
  isSerializationFailure,
  isServerError,
  type PostgresClient,
  type PostgresPool,
  type PostgresResult,
} from './client.js';
import { beforeWork, nameOf, outcomeUnknown, provesNoCommit, refusal } from './failures.js';
import {
  type CheckedFence,
  checkFence,
  checkResource,
  type Fence,
  LIMIT_MS_MAX,
  type TransactionOptions,
} from './fence.js';
import { type Runtime, systemRuntime } from './runtime.js';
import { Connections, type Session } from './session.js';
import { checkStatement, claim, type FencedTransaction, Run } from './transaction.js';

export type { PostgresPoolClient } from './client.js';
export type { IsolationLevel } from './fence.js';
export type {
  Fence,
  FencedTransaction,
  PostgresClient,
  PostgresPool,
  PostgresResult,
  Runtime,
  TransactionOptions,
};

export interface FencedPostgresOptions {
  /**
   * The caller's `pg.Pool`; or its connected `pg.Client`, which is then used by one transaction after the other, and by
   * nobody else meanwhile. Both stay the caller's: this library listens to the `error` events of a connection only while it uses it, so that a
   * listener for `error` on the pool itself remains necessary.
   */
  readonly pool: PostgresPool | PostgresClient;
  /**
   * How long, in milliseconds, a writer may wait for a connection, for another writer of its resource or for a lock, and how
   * long it may be idle between two statements before the server ends its transaction: from 1 to 2147483647.
   * A `lease` says that better.
   * @default 10000
   */
  readonly holdMs?: number;
}

/** The schema that this release needs: what `fenced.version()` of its schema.sql returns. */
const SCHEMA_VERSION = 1;

const BACKOFF_BASE_MS = 10;
const BACKOFF_MAX_MS = 500;

/**
 * Writes to PostgreSQL that are refused once a higher token was presented: check and write are one transaction,
 * and the server itself does both.
 *
 * Holds under READ COMMITTED, REPEATABLE READ and SERIALIZABLE: no transaction of a lower token commits after one of a higher
 * token, and what lower tokens committed is visible to every statement of a higher one.
 * Not promised: anything about statements that go to the same tables without presenting a token.
 */
export class FencedPostgres {
  readonly #connections: Connections;
  readonly #holdMs: number;
  readonly #runtime: Runtime;

  /** @throws {InvalidArgumentError} */
  constructor(options: FencedPostgresOptions, runtime: Runtime = systemRuntime) {
    checkObject('options', options);
    const { pool, holdMs = 10_000 } = options;
    if (
      typeof (pool as Partial<PostgresPool & PostgresClient> | undefined)?.connect !== 'function'
    ) {
      throw new InvalidArgumentError('pool must be a pg.Pool or a connected pg.Client');
    }
    checkWholeNumber('holdMs', holdMs, 1, LIMIT_MS_MAX);
    this.#connections = new Connections(pool, runtime);
    this.#holdMs = holdMs;
    this.#runtime = runtime;
  }

  /**
   * Creates the schema `fenced` where it is missing or older; does nothing, and needs no rights, where it is not.
   * Several processes may do so at once. The role needs `CREATE` on the database, and owns the ratchet from then on.
   *
   * @throws {StoreSetupError} where the role may not.
   */
  async install(): Promise<void> {
    const schema = await readFile(
      new URL('../../src/postgres/schema.sql', import.meta.url),
      'utf8',
    );
    await this.#ask(async (session) => {
      if ((await installedVersion(session)) < SCHEMA_VERSION) {
        await session.script('BEGIN', schema, 'COMMIT');
      }
    });
  }

  /**
   * Runs `work` in one transaction behind the ratchet, and commits. `work` is run again, with the same token, where the server
   * rolled the transaction back because of others, so it must have no effects elsewhere.
   * Two round trips beside those of `work`; one more under REPEATABLE READ and SERIALIZABLE.
   *
   * @returns what `work` returned, once the server has said that it is committed.
   * @throws {StaleTokenError} a higher token was presented before: nothing was written.
   * @throws {ConflictError} others held the resource, or kept interfering: nothing was written.
   * @throws {StoreUnavailableError} the connection was lost, or the server ended it, before `COMMIT`: nothing was written.
   * @throws {OutcomeUnknownError} the connection was lost after `COMMIT` was sent.
   * @throws {StoreSetupError} address, credentials, rights or schema are wrong: nothing was written.
   * @throws {InvalidTokenError | InvalidArgumentError} the call is wrong: nothing was sent.
   * @throws whatever `work` throws, unchanged, and the reason of an aborted signal: nothing was written.
   */
  async transaction<Result>(
    options: TransactionOptions,
    work: (tx: FencedTransaction) => Promise<Result>,
  ): Promise<Result> {
    const fence = checkFence(options, this.#holdMs);
    checkFunction('work', work);
    return this.#untilSerialized(fence, (session) =>
      new Run(session, fence, this.#runtime.uniqueId()).run(work),
    );
  }

  /** A transaction of one statement. Errors as `transaction`. */
  async query<Row = Record<string, unknown>>(
    options: TransactionOptions,
    text: string,
    values?: readonly unknown[],
  ): Promise<PostgresResult<Row>> {
    checkStatement(text, values);
    return this.transaction(options, (tx) => tx.query<Row>(text, values));
  }

  /**
   * Presents the token without writing: from now on lower ones are refused, so that what is read next cannot be changed by
   * an earlier holder. One round trip; claiming again is harmless. Errors as `transaction`.
   */
  async claim(options: Fence): Promise<void> {
    const fence = checkFence(options, this.#holdMs);
    await this.#untilSerialized(fence, async (session) => {
      try {
        await claim(session, fence);
      } catch (error) {
        const meaning = await beforeWork(error, session, fence);
        const isCertain =
          isServerError(error) ||
          error instanceof InvalidArgumentError ||
          provesNoCommit(error) ||
          fence.signal?.aborted;
        throw isCertain ? meaning : outcomeUnknown(fence, this.#runtime.uniqueId(), error);
      }
    });
  }

  /** The highest token that ever wrote to the resource or claimed it; `0n` where there was none. */
  async highest(resource: string): Promise<bigint> {
    checkResource(resource);
    const { rows } = await this.#ask((session) =>
      session.query<{ highest: string }>('SELECT fenced.highest($1)::text AS highest', [resource]),
    );
    return BigInt(rows[0]?.highest ?? 0);
  }

  async #untilSerialized<Result>(
    fence: CheckedFence,
    run: (session: Session) => Promise<Result>,
  ): Promise<Result> {
    for (let attempt = 1; ; attempt++) {
      fence.signal?.throwIfAborted();
      const patience = { limitMs: fence.limitMs(), signal: fence.signal };
      try {
        return await this.#connections.with(patience, run);
      } catch (error) {
        if (!isSerializationFailure(error)) throw error;
        if (attempt >= fence.attemptsMax) {
          throw new ConflictError({ resource: nameOf(fence), attempts: attempt }, { cause: error });
        }
      }
      const ceilingMs = Math.min(BACKOFF_MAX_MS, BACKOFF_BASE_MS * 2 ** attempt);
      await this.#runtime.sleep(this.#runtime.random() * ceilingMs, fence.signal);
    }
  }

  /** Something that may be asked again however it ended. */
  async #ask<Answer>(question: (session: Session) => Promise<Answer>): Promise<Answer> {
    return this.#connections.with({ limitMs: this.#holdMs, signal: undefined }, async (session) => {
      try {
        return await question(session);
      } catch (error) {
        const isAlive = await session.rollBack();
        if (isAlive && isServerError(error)) throw refusal(error, 'fenced');
        throw new StoreUnavailableError('the connection was lost: ask again', { cause: error });
      }
    });
  }
}

/** 0 where there is none. */
async function installedVersion(session: Session): Promise<number> {
  const { rows } = await session.query<{ present: boolean }>(
    "SELECT to_regprocedure('fenced.version()') IS NOT NULL AS present",
  );
  if (!rows[0]?.present) return 0;
  const versions = await session.query<{ version: number }>('SELECT fenced.version() AS version');
  return versions.rows[0]?.version ?? 0;
}
