import { schema } from './schema.generated.js';
import '../node-version.js';
import { checkFunction, checkOptions, checkWholeNumber } from '../core/check.js';
import { InvalidArgumentError, type Settlement, StoreUnavailableError } from '../core/errors.js';
import { shown } from '../core/shown.js';
import { parseToken, type TokenLike } from '../core/token.js';
import { publishOutcome, type WriteEvent } from '../events.js';
import {
  fieldsOf,
  isCancellation,
  type PostgresClient,
  type PostgresPool,
  type PostgresResult,
  type ServerError,
} from './client.js';
import { Connections } from './connections.js';
import { GUARD_IN_DANGER, NOT_ALLOWED, refusal } from './failures.js';
import {
  type CheckedFence,
  checkFence,
  checkName,
  type Fence,
  isNoted,
  LIMIT_MS_MAX,
  type TransactionOptions,
} from './fence.js';
import { isPostgresJs, type PostgresJs } from './postgres-js.js';
import { runClaim, runQuery } from './query.js';
import { FencedRecords } from './records.js';
import { untilSerialized } from './retry.js';
import { type Runtime, systemRuntime } from './runtime.js';
import type { Session } from './session.js';
import {
  begin,
  COMMIT,
  checkNoCopy,
  checkStatement,
  type PresentingStatement,
  presentingStatement,
} from './statements.js';
import { type FencedTransaction, runTransaction } from './transaction.js';

export { asFencedError } from './as-fenced-error.js';
export type { PostgresPoolClient } from './client.js';
export type { IsolationLevel } from './fence.js';
export type { PostgresJs } from './postgres-js.js';
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
  PresentingStatement,
  Runtime,
  TransactionOptions,
};

export interface FencedPostgresOptions {
  /**
   * The caller's `pg.Pool`, or a connected `pg.Client`, which then runs one transaction at a time
   * and nothing else meanwhile. Or the `sql` that `postgres()` of postgres.js returns. The caller
   * closes it. A `pg.Pool` needs a listener for `error`: this library listens to a connection only
   * while it uses it.
   */
  readonly pool: PostgresPool | PostgresClient | PostgresJs;
  /**
   * Milliseconds, 1 to 2147483647. A writer waits at most this time for a connection and for other
   * writers of its resource. Then it holds the resource at most as long. With a `lease`, its
   * remaining time counts instead. Before PostgreSQL 17, the limit for holding counts anew for each
   * statement and for each pause between two.
   * @default 10000
   */
  readonly holdMs?: number;
}

export interface PruneOptions {
  /** The beginning of the names; `''` for all. Their tokens must come from one lock service. */
  readonly prefix: string;
  /** Milliseconds for which their tokens have not grown; longer than any lease lasts. */
  readonly olderThanMs: number;
  /**
   * The highest token that may be forgotten.
   * @default the lowest token among the names with this prefix that are too young to be forgotten
   */
  readonly upTo?: TokenLike;
}

export interface Pruned {
  /** Number of forgotten names. */
  readonly names: number;
  /** The lowest token with which a forgotten name can be written from now on. */
  readonly floor: bigint;
  /** The name whose low token kept the floor down; null if all that are old enough could go. */
  readonly heldBackBy: string | null;
}

/** The mode of a guard: to refuse a write without a valid token, or to record it only. */
export type GuardMode = 'refuse' | 'audit';

export interface GuardOptions {
  /**
   * `audit` lets every write pass. The server warns its client, and the view `fenced.audit` shows
   * the role, the application and the statement. A call of `guard` without the mode ends that.
   * @default 'refuse'
   */
  readonly mode?: GuardMode;
}

/** A table that is guarded, or should be. */
export interface Guard {
  /**
   * As in SQL, with its schema if that is not in the connection's search path, or if no table has
   * this name now.
   */
  readonly table: string;
  /** The SQL that gives a row's resource; null if another version made the guard. */
  readonly expression: string | null;
  /** Null if there is no guard, or another version made it. */
  readonly mode: GuardMode | null;
  /** The problem of the guard; null if it is as `guard` made it. */
  readonly problem: string | null;
}

/** The schema that this release needs: the number in `fenced.version()` of its schema.sql. */
const SCHEMA_VERSION = 7;

/** Limit for a scan of the whole ratchet. 100 million rows take less. */
const SCAN_LIMIT_MS = 600_000;

/** A hundred years. */
const OLDER_THAN_MS_MAX = 3_155_760_000_000;

/**
 * Writes to PostgreSQL that are refused once a higher token was presented. Check and write are one
 * transaction, and the server does both.
 *
 * Invariant: on one resource, no transaction of a lower token commits after one of a higher token.
 * Every statement of a higher token sees what lower tokens committed. That holds on each isolation
 * level.
 *
 * Not promised: anything about statements that go to the same tables without a token.
 */
export class FencedPostgres {
  readonly #connections: Connections;

  /** @throws {InvalidArgumentError} */
  constructor(options: FencedPostgresOptions, runtime: Runtime = systemRuntime) {
    checkOptions(options, ['pool', 'holdMs'], '{ pool: new pg.Pool() }');
    const { pool, holdMs = 10_000 } = options;
    if (
      typeof (pool as Partial<PostgresPool> | undefined)?.connect !== 'function' &&
      !isPostgresJs(pool)
    )
      throw new InvalidArgumentError(
        'pool must be a pg.Pool, a connected pg.Client, or the sql that postgres() of postgres.js returns',
      );
    checkWholeNumber('holdMs', holdMs, 1, LIMIT_MS_MAX);
    this.#connections = new Connections(pool, holdMs, runtime);
  }

  /**
   * Creates or upgrades the schema `fenced`. If it is there already, this does nothing and needs no
   * rights. Several processes may install at once. The role needs `CREATE` on the database and owns
   * the ratchet from then on. Other roles need `SELECT fenced.allow('role')`.
   *
   * @throws {StoreSetupError} the role may not
   */
  async install(): Promise<void> {
    await this.#ask(async (session) => {
      if ((await installedVersion(session)) < SCHEMA_VERSION)
        // Several statements in one text are one transaction, without BEGIN and COMMIT.
        await session.query(schema);
    });
  }

  /**
   * Runs `work` in one transaction that holds the ratchet, and commits. If the server rolls back
   * because of concurrent transactions, `work` runs again with the same token, so it must have no
   * effects elsewhere. Takes two round trips besides those of `work`.
   *
   * @returns the result of `work`, after the commit
   * @throws {StaleTokenError} a higher token was presented before; nothing was written
   * @throws {ConflictError} other transactions held the resource for too long, or conflicted with
   *   each attempt; nothing was written
   * @throws {StoreUnavailableError} the connection was lost, or the server ended it, before COMMIT;
   *   nothing was written
   * @throws {OutcomeUnknownError} the connection was lost after COMMIT was sent, or after `work`
   *   may have sent it; or `work` did send it
   * @throws {StoreSetupError} address, credentials, rights or schema are wrong; nothing was written
   * @throws {InvalidTokenError | InvalidArgumentError} the call is wrong; nothing was sent
   * @throws the errors of `work`, unchanged, and the reason of an aborted signal; nothing was
   *   written
   */
  async transaction<Result, Client = PostgresClient>(
    options: TransactionOptions,
    work: (tx: FencedTransaction<Client>) => Promise<Result>,
  ): Promise<Result> {
    const fence = checkFence(options, this.#connections.holdMs);
    checkFunction('work', work);
    return this.#write('transaction', fence, (session) => runTransaction(session, fence, work));
  }

  /**
   * Runs one statement in a transaction, in one round trip; in four with pg-native, or with the
   * option `pipeline` of pg. Errors as `transaction`. `OutcomeUnknownError` can also mean that the
   * driver could not read the rows of the reply.
   */
  async query<Row = Record<string, unknown>>(
    options: TransactionOptions,
    text: string,
    values?: readonly unknown[],
  ): Promise<PostgresResult<Row>> {
    const fence = checkFence(options, this.#connections.holdMs);
    checkStatement(text, values);
    checkNoCopy(text);
    return this.#write('query', fence, (session) =>
      runQuery<Row>(session, fence, { text, values }),
    );
  }

  /**
   * Presents the token without writing, in one round trip. From then on, lower tokens are refused,
   * so no earlier holder can change what is read next. Claiming again is harmless. Errors as
   * `transaction`.
   */
  async claim(options: Fence): Promise<void> {
    const fence = checkFence(options, this.#connections.holdMs);
    await this.#write('claim', fence, (session) => runClaim(session, fence));
  }

  /**
   * Makes the statement that presents the token in a transaction of another driver or ORM. It must
   * be the first statement of that transaction, which must be READ COMMITTED. The token counts
   * until the transaction ends. Its time limit, from `lease` or `holdMs`, counts from this call:
   * send it at once.
   *
   * Errors are those of the driver; `asFencedError` finds a `StaleTokenError` in them. The library
   * neither repeats the transaction, nor checks that the statement was sent: `guard` the table.
   *
   * @returns the text, and a value for each of its parameters `$1` to `$4`: strings or null
   * @throws {InvalidTokenError | InvalidArgumentError} the call is wrong, or the lease is over
   * @throws the reason of an aborted signal
   */
  presenting(fence: Omit<Fence, 'attemptsMax'>): PresentingStatement {
    const checked = checkFence(fence, this.#connections.holdMs);
    if (checked.isolation !== 'read committed')
      throw new InvalidArgumentError(
        `presenting needs a transaction under READ COMMITTED isolation=${checked.isolation}`,
      );
    checked.signal?.throwIfAborted();
    return presentingStatement(checked);
  }

  /** A new name for a write. Pass it as `writeId`, and to `settle` after an unknown outcome. */
  newWriteId(): string {
    return this.#connections.runtime.timedId();
  }

  /**
   * Reports the outcome of the write with this `writeId`. The answer is final. A write that is
   * under way is waited for, up to `holdMs`. A write that has not reached the server will be
   * refused when it arrives.
   *
   * @returns `applied`, or `not-applied`, now and for ever. `unknown` means one of these:
   * - the write is still under way
   * - the id is older than 23 hours, or its note may be deleted: a wrong clock of the server can
   *   delete notes earlier
   * - the write had no `writeId`, and its error has an id of another kind
   * @throws {StoreUnavailableError} no answer: ask again
   */
  async settle(writeId: string): Promise<Settlement> {
    if (!isNoted(writeId)) return 'unknown';
    const text = 'SELECT fenced.settle($1, $2)';
    const [outcome] = await this.#askInTransaction(text, [writeId, this.#connections.holdMs]);
    return outcome as Settlement;
  }

  /**
   * Forgets names that will not come back, so that the table of ratchets does not grow for ever.
   * Before that, raises a floor to their highest token. A forgotten or new name with the prefix
   * then needs a token that is not below the floor, so no stale write passes. Works in small steps
   * beside all other calls. For the owner of the schema.
   *
   * If a name comes back, the lock service must give it a token that is not below the floor:
   * docs/postgres.md has the conditions. Otherwise each write of the name fails with a
   * `StaleTokenError` that says so, until an operator calls `fenced.reset`.
   *
   * @throws {StoreSetupError} the role may not, or the schema has another version
   * @throws {StoreUnavailableError} the connection was lost; names may be forgotten. Call again.
   * @throws {InvalidArgumentError | InvalidTokenError} nothing was sent
   */
  async prune(options: PruneOptions): Promise<Pruned> {
    checkOptions(options, ['prefix', 'olderThanMs', 'upTo'], '{ prefix: …, olderThanMs: … }');
    const { prefix, olderThanMs, upTo } = options;
    if (prefix !== '') checkName('prefix', prefix);
    checkWholeNumber('olderThanMs', olderThanMs, 0, OLDER_THAN_MS_MAX);
    // Before PostgreSQL 15, an interval as text has at most 2^31 milliseconds.
    const names = [prefix, olderThanMs / 1_000];
    const olderThan = 'pg_catalog.make_interval(secs => $2::pg_catalog.float8)';
    const [floor, heldBackBy = null] = await this.#askInTransaction(
      `SELECT floor::pg_catalog.text, held_back_by
        FROM fenced.raise_floor($1, ${olderThan}, $3::pg_catalog.int8)`,
      [...names, upTo === undefined ? null : String(parseToken(upTo))],
      SCAN_LIMIT_MS,
    );
    let count = 0;
    for (let page: string | null = '0'; page !== null; ) {
      const [pruned, next = null]: (string | null)[] = await this.#askInTransaction(
        `SELECT pruned::pg_catalog.text, next_page::pg_catalog.text
          FROM fenced.prune($1, ${olderThan}, $3::pg_catalog.int8)`,
        [...names, page],
      );
      count += Number(pruned);
      page = next;
    }
    return { names: count, floor: BigInt(floor ?? 0), heldBackBy };
  }

  /**
   * The highest token that was presented for the resource; `0n` if there was none. For a name that
   * was forgotten, the floor.
   */
  async highest(resource: string): Promise<bigint> {
    checkName('resource', resource);
    const text = 'SELECT fenced.highest($1)::pg_catalog.text';
    const result = await this.#ask((session) => session.query(text, [resource]));
    return BigInt(fieldsOf(result)[0]?.[0] ?? 0);
  }

  /**
   * Lets every row of the table be written only in transactions that presented a token for the
   * row's resource, by any client. Others are refused with SQLSTATE UF002, or UF001 if the token is
   * stale. A second call replaces the expression. docs/postgres.md has the effect on each kind of
   * statement. Names in the expression keep the meaning that they have for the caller's connection
   * now. For the owner of the table.
   *
   * @param table as in SQL: `public.invoice`
   * @param expression SQL over a row's columns that gives its resource: `'invoice/' || id`. It may
   *   depend on nothing else, so all its functions are IMMUTABLE.
   * @throws {InvalidArgumentError} there is no such table, or the expression does not fit it, or
   *   depends on more than the row, or uses objects of another role
   * @throws {StoreSetupError} the role may not, or other roles may create triggers on the table
   */
  async guard(table: string, expression: string, options: GuardOptions = {}): Promise<void> {
    checkText('expression', expression);
    checkOptions(options, ['mode'], "{ mode: 'audit' }");
    const { mode = 'refuse' } = options;
    if (mode !== 'refuse' && mode !== 'audit')
      throw new InvalidArgumentError(`mode must be refuse or audit value=${shown(mode)}`);
    const call = 'SELECT fenced.guard($1::pg_catalog.regclass, $2, $3)';
    await this.#govern(table, call, [expression, mode]);
  }

  /** Removes the guard, if there is one. Errors as `guard`. */
  async unguard(table: string): Promise<void> {
    await this.#govern(table, 'SELECT fenced.unguard($1::pg_catalog.regclass)');
  }

  /**
   * The tables of the database that are guarded, or should be, each with the problem of its guard.
   * Other roles with rights on a table, and its owner, can remove a guard. A copy that takes the
   * table's place has none. So ask from time to time. Errors as `guard`.
   */
  async guards(): Promise<Guard[]> {
    const text = `SELECT coalesce(target::pg_catalog.text, recorded), expression, mode, problem
      FROM fenced.guards()`;
    const result = await this.#ask((session) => session.query(text));
    return fieldsOf(result).map(([table, expression = null, mode = null, problem = null]) => ({
      table: table ?? '',
      expression,
      mode: mode as GuardMode | null,
      problem,
    }));
  }

  async #govern(table: string, call: string, values: readonly string[] = []): Promise<void> {
    checkText('table', table);
    await this.#ask(
      (session) => session.query(call, [table, ...values]),
      (error) =>
        [NOT_ALLOWED, '3F000', GUARD_IN_DANGER].includes(error.code) ||
        error.message.includes('function fenced.')
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
    return new FencedRecords(collection, this.#connections);
  }

  /** Runs a fenced transaction, again while the server rolls it back because of concurrent ones. */
  #write<Result>(
    operation: WriteEvent['operation'],
    fence: CheckedFence,
    run: (session: Session) => Promise<Result>,
  ): Promise<Result> {
    const { resources, token, writeId, signal, attemptsMax } = fence;
    const { runtime } = this.#connections;
    const retried = { runtime, signal, attemptsMax, place: { resources } };
    const attempt = (): Promise<Result> =>
      this.#connections.with({ limitMs: fence.limitMs(), signal }, run).catch((error) => {
        const isOurs = isCancellation(error) || isCancellation((error as Error).cause);
        throw signal?.aborted && isOurs ? signal.reason : error;
      });
    return publishOutcome(
      () => untilSerialized(retried, attempt),
      () => ({ store: 'postgres', operation, resources: [...resources], token }),
      () => writeId,
      () => runtime.nowMs(),
    );
  }

  /**
   * Asks in a READ COMMITTED transaction, whatever the session's default is. Returns the columns of
   * one row.
   */
  async #askInTransaction(
    text: string,
    values: readonly unknown[],
    limitMs?: number,
  ): Promise<(string | null)[]> {
    const statements = [begin('read committed'), { text, values }, COMMIT];
    const results = await this.#ask((session) => session.batch(statements, limitMs));
    return fieldsOf(results[1])[0] ?? [];
  }

  /** Sends a question that the caller may repeat, whatever its outcome was. */
  #ask<Answer>(
    question: (session: Session) => Promise<Answer>,
    meaningOf = (error: ServerError): Error => refusal(error, 'fenced'),
  ): Promise<Answer> {
    const lost = (cause: unknown): Error =>
      new StoreUnavailableError('the connection was lost: ask again', { cause });
    return this.#connections.ask(question, meaningOf, lost);
  }
}

/** @throws {InvalidArgumentError} */
function checkText(name: string, value: unknown): void {
  if (typeof value !== 'string' || value === '')
    throw new InvalidArgumentError(`${name} must be a non-empty string value=${shown(value)}`);
}

/**
 * The version of the schema; 0 if there is none. It is read from the source of `fenced.version()`.
 * That function is not called, because another role may have made it.
 */
async function installedVersion(session: Session): Promise<number> {
  const result = await session.query(
    `SELECT pg_catalog.substring(p.prosrc, '[0-9]+') FROM pg_catalog.pg_proc AS p
      WHERE p.oid OPERATOR(pg_catalog.=) pg_catalog.to_regprocedure('fenced.version()')`,
  );
  return Number(fieldsOf(result)[0]?.[0] ?? 0);
}
