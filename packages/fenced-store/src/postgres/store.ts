import { schema } from './schema.generated.js';
import '../node-version.js';
import { checkFunction, checkObject, checkWholeNumber } from '../core/check.js';
import {
  ConflictError,
  InvalidArgumentError,
  type Settlement,
  StoreUnavailableError,
} from '../core/errors.js';
import { shown } from '../core/shown.js';
import { parseToken, type TokenLike } from '../core/token.js';
import { publish, publishOutcome, type WriteEvent } from '../events.js';
import {
  isCancellation,
  isSerializationFailure,
  isServerError,
  type PostgresClient,
  type PostgresPool,
  type PostgresResult,
  type ServerError,
} from './client.js';
import { nameOf, refusal } from './failures.js';
import {
  type CheckedFence,
  checkFence,
  checkResource,
  checkWriteId,
  complaintAboutName,
  type Fence,
  LIMIT_MS_MAX,
  type TransactionOptions,
} from './fence.js';
import { runClaim, runQuery } from './query.js';
import { FencedRecords } from './records.js';
import { type Runtime, systemRuntime } from './runtime.js';
import { Connections, type Session } from './session.js';
import { BEGIN, COMMIT, checkSingle, checkStatement, presentation } from './statements.js';
import { type FencedTransaction, runTransaction } from './transaction.js';

export { asFencedError } from './as-fenced-error.js';
export type { PostgresPoolClient } from './client.js';
export type { IsolationLevel } from './fence.js';
export {
  type CurrentRecord,
  FencedRecords,
  type Json,
  type RecordOptions,
  type RecordReadOptions,
  type RecordUpdateOptions,
  type RecordWriteOptions,
  type WrittenRecord,
} from './records.js';
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
   * How long, in milliseconds, a writer may wait for a connection and for another writer of its resource, and then hold the
   * resource until the server ends its transaction: from 1 to 2147483647. A `lease` says that better.
   * Before PostgreSQL 17 the second limit counts for each statement, and for each pause between two.
   * @default 10000
   */
  readonly holdMs?: number;
}

/** A statement for another driver, with the values of its parameters. */
export interface PresentingStatement {
  readonly text: string;
  readonly values: (string | null)[];
}

export interface PruneOptions {
  /** What the names begin with; `''` for all. Their tokens must come from one lock service. */
  readonly prefix: string;
  /** How long, in milliseconds, their tokens must not have grown: longer than any lease lasts. */
  readonly olderThanMs: number;
  /**
   * The highest token that may be forgotten. It takes the place of the check that names which stay have no lower tokens.
   * @default none
   */
  readonly upTo?: TokenLike;
}

export interface Pruned {
  /** How many names were forgotten. */
  readonly names: number;
  /** The lowest token with which a forgotten name can be written from now on. */
  readonly floor: bigint;
  /** The name with the lowest token among those that stay, if more could be forgotten without it; else null. */
  readonly heldBackBy: string | null;
}

/** A guarded table. */
export interface Guard {
  /** As in SQL, with its schema where the search path of the connection does not have it. */
  readonly table: string;
  /** The SQL that gives a row's resource; null where an earlier version made the guard. */
  readonly expression: string | null;
  /** What is wrong with the guard; null where it is as `guard` made it. */
  readonly problem: string | null;
}

/** The schema that this release needs: what `fenced.version()` of its schema.sql returns. */
const SCHEMA_VERSION = 4;

/** For a look at all of the ratchet: 100 million rows take less. */
const SCAN_LIMIT_MS = 600_000;

/** A hundred years. */
const OLDER_THAN_MS_MAX = 3_155_760_000_000;

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
   * Several processes may do so at once, also of different releases. The role needs `CREATE` on the database, and owns the ratchet
   * from then on; other roles need `SELECT fenced.allow('role')`.
   *
   * @throws {StoreSetupError} where the role may not.
   */
  async install(): Promise<void> {
    await this.#ask(async (session) => {
      if ((await installedVersion(session)) < SCHEMA_VERSION) {
        await session.query(`BEGIN; ${schema}; COMMIT`);
      }
    });
  }

  /**
   * Runs `work` in one transaction behind the ratchet, and commits. `work` is run again, with the same token, where the server
   * rolled the transaction back because of others, so it must have no effects elsewhere.
   * Two round trips beside those of `work`; two more where the token was accepted before, and is not at once.
   *
   * @returns what `work` returned, once the server has said that it is committed.
   * @throws {StaleTokenError} a higher token was presented before: nothing was written.
   * @throws {ConflictError} others held the resource, or kept interfering: nothing was written.
   * @throws {StoreUnavailableError} the connection was lost, or the server ended it, before `COMMIT`: nothing was written.
   * @throws {OutcomeUnknownError} the connection was lost after `COMMIT` was sent, or after `work` may have sent it; or `work` did.
   * @throws {StoreSetupError} address, credentials, rights or schema are wrong: nothing was written.
   * @throws {InvalidTokenError | InvalidArgumentError} the call is wrong: nothing was sent.
   * @throws whatever `work` throws, unchanged, and the reason of an aborted signal: nothing was written.
   */
  async transaction<Result, Client = PostgresClient>(
    options: TransactionOptions,
    work: (tx: FencedTransaction<Client>) => Promise<Result>,
  ): Promise<Result> {
    const fence = checkFence(options, this.#holdMs);
    checkFunction('work', work);
    return this.#write('transaction', fence, (session) => runTransaction(session, fence, work));
  }

  /**
   * A transaction of one statement, in one round trip (in two where the token was accepted before, and is not at once; in three with
   * pg-native, or with pg's own `pipeline`). Errors as
   * `transaction`, with one more case of `OutcomeUnknownError`: the rows that came back could not be read.
   */
  async query<Row = Record<string, unknown>>(
    options: TransactionOptions,
    text: string,
    values?: readonly unknown[],
  ): Promise<PostgresResult<Row>> {
    const fence = checkFence(options, this.#holdMs);
    checkStatement(text, values);
    checkSingle(text);
    const statement = values ? { text, values } : { text };
    return this.#write('query', fence, (session) => runQuery<Row>(session, fence, statement));
  }

  /**
   * Presents the token without writing: from now on lower ones are refused, so that what is read next cannot be changed by
   * an earlier holder. One round trip; claiming again is harmless. Errors as `transaction`.
   */
  async claim(options: Fence): Promise<void> {
    const fence = checkFence(options, this.#holdMs);
    await this.#write('claim', fence, (session) => runClaim(session, fence));
  }

  /**
   * A parameterised statement that presents the token in a transaction of the caller's own, with any driver or ORM. It must be the
   * first statement of that transaction, which must be READ COMMITTED. The token counts until the transaction ends. The time limit of the
   * transaction, from `lease` or `holdMs`, is counted from this call, so send it at once.
   *
   * Errors are the driver's own: `asFencedError` finds a `StaleTokenError` in them. Nobody runs the transaction again,
   * and nobody checks that the statement was sent: `guard` the table to be sure.
   *
   * @returns the text, with a parameter `$1` to `$5` for each of the values, in order; all are strings or null.
   * @throws {InvalidTokenError | InvalidArgumentError} the call is wrong, or the lease is over.
   * @throws the reason of an aborted signal.
   */
  presenting(fence: Omit<Fence, 'attemptsMax'>): PresentingStatement {
    const checked = checkFence(fence, this.#holdMs);
    if (checked.isolation !== 'read committed')
      throw new InvalidArgumentError(
        `presenting needs a transaction under READ COMMITTED isolation=${checked.isolation}`,
      );
    checked.signal?.throwIfAborted();
    return presentation(checked);
  }

  /** A name for a write, unlike all others: to be given to it as `writeId`, and after an unknown outcome to `settle`. */
  newWriteId(): string {
    return this.#runtime.timedId();
  }

  /**
   * What became of a write that was given this `writeId`. The answer is final: one that is still under way is waited for, for
   * `holdMs` at most, and one that has not reached the server yet will be refused.
   *
   * @returns `applied`; `not-applied`: it is not applied and never will be; `unknown` where the id is older than 23 hours or
   * was not given to the write (the ids of errors of such writes are of another kind), or the write is still under way.
   * @throws {StoreUnavailableError} no answer: ask again.
   */
  async settle(writeId: string): Promise<Settlement> {
    if (!checkWriteId(writeId)) return 'unknown';
    return this.#ask(async (session) => {
      try {
        const results = await session.batch<{ outcome: 'applied' | 'refused' | 'unknown' }>([
          { text: 'BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE' },
          {
            text: "SELECT pg_catalog.set_config('lock_timeout', $1, true)",
            values: [`${this.#holdMs}`],
          },
          { text: 'SELECT fenced.settle($1::pg_catalog.uuid) AS outcome', values: [writeId] },
          { text: 'COMMIT' },
        ]);
        const { outcome = 'unknown' } = results[2]?.rows[0] ?? {};
        // The schema has its own word, which earlier releases read.
        return outcome === 'refused' ? 'not-applied' : outcome;
      } catch (error) {
        if (!isServerError(error) || error.code !== '55P03' || !(await session.rollBack()))
          throw error;
        return 'unknown';
      }
    });
  }

  /**
   * Forgets names that will not come back, so that the ratchet does not grow for ever. It first raises a floor to their highest token:
   * a forgotten or new name with the prefix can be written only with a token that is not below the floor. So no stale write
   * passes. For the owner of the schema. It works in small steps, next to all other calls.
   *
   * The lock service must give a name that comes back a token above the floor. PostgresLock does, Redlock once its nodes have
   * forgotten the name: docs/postgres.md has the conditions. Otherwise each write of the name is a `StaleTokenError` which says so,
   * until an operator calls `fenced.reset`.
   *
   * @throws {StoreSetupError} where the role may not, or the schema is an earlier one.
   * @throws {StoreUnavailableError} the connection was lost: what was forgotten before stays forgotten. Call again.
   * @throws {InvalidArgumentError | InvalidTokenError} nothing was sent.
   */
  async prune(options: PruneOptions): Promise<Pruned> {
    checkObject('options', options);
    const { prefix, olderThanMs, upTo } = options;
    const complaint = complaintAboutName(prefix === '' ? 'all' : prefix);
    if (complaint) throw new InvalidArgumentError(`prefix ${complaint}`);
    checkWholeNumber('olderThanMs', olderThanMs, 0, OLDER_THAN_MS_MAX);
    // An interval as text has no more than 2^31 milliseconds before PostgreSQL 15.
    const names = [prefix, olderThanMs / 1_000];
    const raised = await this.#inTransaction<{ floor: string; held_back_by: string | null }>(
      'SELECT floor::pg_catalog.text, held_back_by FROM fenced.raise_floor($1, pg_catalog.make_interval(secs => $2::pg_catalog.float8), $3::pg_catalog.int8)',
      [...names, upTo === undefined ? null : String(parseToken(upTo))],
      SCAN_LIMIT_MS,
    );
    let count = 0;
    for (let page: string | null = '0'; page !== null; ) {
      const step: { pruned: string; next_page: string | null } = await this.#inTransaction(
        'SELECT pruned::pg_catalog.text, next_page::pg_catalog.text FROM fenced.prune($1, pg_catalog.make_interval(secs => $2::pg_catalog.float8), $3::pg_catalog.int8)',
        [...names, page],
      );
      count += Number(step.pruned);
      page = step.next_page;
    }
    return { names: count, floor: BigInt(raised.floor), heldBackBy: raised.held_back_by };
  }

  /** The row that one statement gives, in a transaction of its own of the kind that this library needs. */
  async #inTransaction<Row>(
    text: string,
    values: readonly unknown[],
    limitMs?: number,
  ): Promise<Row> {
    return this.#ask(async (session) => {
      const statements = [BEGIN['read committed'], { text, values }, COMMIT];
      const [, result] = await session.batchFromStart<Row>(statements, limitMs);
      return result?.rows[0] as Row;
    });
  }

  /** The highest token that ever wrote to the resource or claimed it; `0n` where there was none. The floor, where it was forgotten. */
  async highest(resource: string): Promise<bigint> {
    checkResource(resource);
    const { rows } = await this.#ask((session) =>
      session.query<{ highest: string }>('SELECT fenced.highest($1)::pg_catalog.text AS highest', [
        resource,
      ]),
    );
    return BigInt(rows[0]?.highest ?? 0);
  }

  /**
   * From now on every row of the table can be written only in a transaction that presented a token for the row's resource, by
   * whatever client: others are refused with SQLSTATE UF002, or UF001 where the token is stale. Again with another expression,
   * that takes the place of the first. For the owner of the table. docs/postgres.md says what each kind of statement meets.
   * The names in the expression keep the meaning that they have for the caller's connection now.
   *
   * @param table as in SQL: `public.invoice`
   * @param expression SQL over the columns of a row, which gives its resource: `'invoice/' || id`
   * @throws {InvalidArgumentError} there is no such table, or the expression does not fit it, or uses what belongs to another role.
   * @throws {StoreSetupError} where the role may not, or other roles may create triggers on the table.
   */
  async guard(table: string, expression: string): Promise<void> {
    checkText('expression', expression);
    await this.#govern(table, 'SELECT fenced.guard($1::pg_catalog.regclass, $2)', [
      table,
      expression,
    ]);
  }

  /** Takes the guard away; does nothing where there is none. Errors as `guard`. */
  async unguard(table: string): Promise<void> {
    await this.#govern(table, 'SELECT fenced.unguard($1::pg_catalog.regclass)', [table]);
  }

  /**
   * The guarded tables of the database, each with what is wrong with its guard. Other roles' rights, and what the owner of a
   * table does, can take a guard away: ask from time to time. Errors as `guard`.
   */
  async guards(): Promise<Guard[]> {
    const { rows } = await this.#ask((session) =>
      session.query<Guard>(
        'SELECT target::pg_catalog.text AS "table", expression, problem FROM fenced.guards()',
      ),
    );
    return rows;
  }

  async #govern(table: string, call: string, values: readonly string[]): Promise<void> {
    checkText('table', table);
    await this.#ask(
      (session) => session.query(call, values),
      (error) =>
        /^(42501|3F000|UF005)$/.test(error.code) || error.message.includes('function fenced.')
          ? refusal(error, table)
          : new InvalidArgumentError(`table=${table}: ${error.message}`),
    );
  }

  /**
   * The JSON documents of a collection, each with a ratchet of its own.
   *
   * @param collection 1 to 1024 bytes
   * @throws {InvalidArgumentError}
   */
  records(collection: string): FencedRecords {
    return new FencedRecords(collection, this.#connections, this.#holdMs, this.#runtime);
  }

  #write<Result>(
    operation: WriteEvent['operation'],
    fence: CheckedFence,
    run: (session: Session) => Promise<Result>,
  ): Promise<Result> {
    const { resources, token, writeId } = fence;
    return publishOutcome(
      () => this.#untilSerialized(fence, run),
      () => ({ store: 'postgres', operation, resources: [...resources], token }),
      () => writeId,
      () => this.#runtime.nowMs(),
    );
  }

  async #untilSerialized<Result>(
    fence: CheckedFence,
    run: (session: Session) => Promise<Result>,
  ): Promise<Result> {
    const { signal } = fence;
    for (let attempt = 1; ; attempt++) {
      signal?.throwIfAborted();
      const waitLimit = { limitMs: fence.limitMs(), signal };
      try {
        return await this.#connections.with(waitLimit, run);
      } catch (error) {
        const isOurs = isCancellation(error) || isCancellation((error as Error).cause);
        if (signal?.aborted && isOurs) throw signal.reason;
        if (!isSerializationFailure(error)) throw error;
        if (attempt >= fence.attemptsMax) {
          throw new ConflictError({ resource: nameOf(fence), attempts: attempt }, { cause: error });
        }
        publish('fenced:store:retried', () => {
          const resources = [...fence.resources];
          return { store: 'postgres', resources, attempt, reason: 'conflict', error };
        });
      }
      const ceilingMs = Math.min(BACKOFF_MAX_MS, BACKOFF_BASE_MS * 2 ** attempt);
      await this.#runtime.sleep(this.#runtime.random() * ceilingMs, signal);
    }
  }

  /** Something that may be asked again however it ended. */
  async #ask<Answer>(
    question: (session: Session) => Promise<Answer>,
    meaningOf: (error: ServerError) => Error = (error) => refusal(error, 'fenced'),
  ): Promise<Answer> {
    return this.#connections.with({ limitMs: this.#holdMs, signal: undefined }, async (session) => {
      try {
        return await question(session);
      } catch (error) {
        const isAlive = await session.rollBack();
        if (isAlive && isServerError(error)) throw meaningOf(error);
        throw new StoreUnavailableError('the connection was lost: ask again', { cause: error });
      }
    });
  }
}

/** @throws {InvalidArgumentError} */
function checkText(name: string, value: unknown): void {
  if (typeof value !== 'string' || value === '')
    throw new InvalidArgumentError(`${name} must be a non-empty string value=${shown(value)}`);
}

/** The version of the schema; 0 where there is none. Read, not called: the function may be somebody else's. */
async function installedVersion(session: Session): Promise<number> {
  const { rows } = await session.query<{ version: number | null }>(
    `SELECT pg_catalog.substring(p.prosrc, '[0-9]+')::pg_catalog.int4 AS version FROM pg_catalog.pg_proc AS p
      WHERE p.oid OPERATOR(pg_catalog.=) pg_catalog.to_regprocedure('fenced.version()')`,
  );
  return rows[0]?.version ?? 0;
}
