import type { DatabaseClient, Value } from './client.js';
import { schema } from './schema.generated.js';
import { type BeginLimit, StatementQueue } from './statement-queue.js';

/** The outcome of one acquisition: a token, or the milliseconds for which others hold the lock. */
export type AcquireRow = readonly [token: string | null, heldMs: string | null];

/** The number of forgotten names, and the next page of the table; null after the last. */
export type ForgetRow = readonly [forgotten: string, nextPage: string | null];

/** A list of names, in a parameter of the type that all clients send alike. */
const NAMES = '$1::pg_catalog.text::pg_catalog.text[]';

/** Pages of the table for one statement: about 1,500 names, a few milliseconds. */
const PAGES = 32;

/** SQLSTATEs of a transaction that was rolled back because of concurrent transactions. */
const SERIALIZATION_FAILURES: readonly unknown[] = ['40001', '40P01'];
const TRIES_MAX = 10;

/** The functions of schema.sql. */
export class Database {
  readonly #client: DatabaseClient;
  readonly #queue: StatementQueue;

  constructor(client: DatabaseClient) {
    this.#client = client;
    this.#queue = new StatementQueue(client.connections);
  }

  /**
   * @param waits true if the release is to be notified, because the caller waits for it
   * @throws {NotSentError} the limit was over before a connection was free
   */
  acquire(
    resources: readonly string[],
    owner: string,
    ttlMs: number,
    firstToken: bigint | null,
    waits: boolean,
    limit: BeginLimit,
  ): Promise<AcquireRow> {
    return this.#row<AcquireRow>(
      `SELECT token::pg_catalog.text, held_ms::pg_catalog.text
        FROM fenced_lock.acquire(${NAMES}, $2, $3::integer, $4::bigint, $5::boolean)`,
      [arrayOf(resources), owner, ttlMs, firstToken === null ? null : String(firstToken), waits],
      limit,
    );
  }

  /**
   * Does not wait behind acquisitions, nor for the owner's transactions: the transactions of the
   * holders may use all connections for longer than the lease lasts.
   */
  async extend(resources: readonly string[], owner: string, ttlMs: number): Promise<boolean> {
    const text = `SELECT fenced_lock.extend(${NAMES}, $2, $3::integer)`;
    const values = [arrayOf(resources), owner, ttlMs];
    const rows = await again(() => this.#client.queryAtOnce(text, values));
    return (rows[0] as [boolean])[0];
  }

  async release(resources: readonly string[], owner: string): Promise<boolean> {
    const text = `SELECT fenced_lock.release(${NAMES}, $2)`;
    const [held] = await this.#row<[boolean]>(text, [arrayOf(resources), owner]);
    return held;
  }

  /** Begins a round of forgetting. False if the last one began less than `everyMs` ago. */
  async raiseFloor(everyMs: number): Promise<boolean> {
    const [raised] = await this.#readCommitted<[boolean]>(
      `SELECT fenced_lock.raise_floor(${everyMs})`,
    );
    return raised;
  }

  /** Forgets the names in some pages of the table that are old enough. */
  forget(olderThanMs: number, page: string): Promise<ForgetRow> {
    return this.#readCommitted<ForgetRow>(
      `SELECT forgotten::text, next_page::text
        FROM fenced_lock.forget(${olderThanMs}, ${page}, ${PAGES})`,
    );
  }

  async install(): Promise<void> {
    // Suppresses the notices about parts that exist already.
    await this.#query(`SET LOCAL client_min_messages = warning; ${schema}`);
  }

  /** On other levels, a statement that reads the whole table would conflict again and again. */
  #readCommitted<Row>(text: string): Promise<Row> {
    return this.#row(`SET TRANSACTION ISOLATION LEVEL READ COMMITTED; ${text}`);
  }

  async #row<Row>(text: string, values?: Value[], limit: BeginLimit | null = null): Promise<Row> {
    return (await this.#query(text, values, limit))[0] as Row;
  }

  #query(text: string, values?: Value[], limit: BeginLimit | null = null): Promise<unknown[][]> {
    return again(() => this.#queue.run(() => this.#client.query(text, values), limit));
  }
}

/** Sends a statement again if concurrent transactions were in its way. */
async function again<Result>(send: () => Promise<Result>): Promise<Result> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await send();
    } catch (error) {
      const { code } = error as { code?: unknown };
      if (tries >= TRIES_MAX || !SERIALIZATION_FAILURES.includes(code)) throw error;
    }
  }
}

function arrayOf(names: readonly string[]): string {
  return `{${names.map((name) => `"${name.replace(/["\\]/g, '\\$&')}"`)}}`;
}
