import type { EventEmitter } from 'node:events';
import { schema } from './schema.generated.js';

/** The part of a `pg.Pool`'s connection that LISTEN needs. */
export interface PostgresConnection extends Pick<EventEmitter, 'on'> {
  query(text: string): Promise<unknown>;
  release(error?: Error | boolean): void;
}

/** The calls used of a `pg.Pool`. */
export interface PostgresPool {
  /** If the pool has only one connection, none is kept for LISTEN. */
  readonly options?: { readonly max?: number };
  connect(lend: (error: Error | undefined, connection?: PostgresConnection) => void): void;
  query(text: string, values?: unknown[]): Promise<{ readonly rows: unknown[] }>;
}

/** The end of one acquisition: a token, or the milliseconds for which others hold the lock. */
export interface AcquireRow {
  readonly token: string | null;
  readonly held_ms: string | null;
}

/** The number of forgotten names, and the next page of the table; null after the last. */
export interface ForgetRow {
  readonly forgotten: string;
  readonly next_page: string | null;
}

/** Pages of the table for one statement: about 1,500 names, a few milliseconds. */
const PAGES = 32;

/** SQLSTATEs of a transaction that was rolled back because of others. */
const SERIALIZATION_FAILURES: readonly unknown[] = ['40001', '40P01'];
const TRIES_MAX = 10;

/** The functions of schema.sql. */
export class Database {
  readonly #pool: PostgresPool;

  constructor(pool: PostgresPool) {
    this.#pool = pool;
  }

  /** @param waits true if the release is to be notified, because the caller waits for it */
  acquire(
    resources: readonly string[],
    owner: string,
    ttlMs: number,
    firstToken: bigint | null,
    waits: boolean,
  ): Promise<AcquireRow> {
    return this.#row<AcquireRow>(
      `SELECT token::pg_catalog.text, held_ms::pg_catalog.text
        FROM fenced_lock.acquire($1::pg_catalog.text[], $2, $3::integer, $4::bigint, $5::boolean)`,
      [resources, owner, ttlMs, firstToken === null ? null : String(firstToken), waits],
    );
  }

  async extend(resources: readonly string[], owner: string, ttlMs: number): Promise<boolean> {
    const text = 'SELECT fenced_lock.extend($1::pg_catalog.text[], $2, $3::integer) AS held';
    return (await this.#row<{ held: boolean }>(text, [resources, owner, ttlMs])).held;
  }

  async release(resources: readonly string[], owner: string): Promise<boolean> {
    const text = 'SELECT fenced_lock.release($1::pg_catalog.text[], $2) AS held';
    return (await this.#row<{ held: boolean }>(text, [resources, owner])).held;
  }

  /** Begins a round of forgetting. False if the last one began less than `everyMs` ago. */
  async raiseFloor(everyMs: number): Promise<boolean> {
    const call = `fenced_lock.raise_floor(${everyMs}) AS raised`;
    return (await this.#readCommitted<{ raised: boolean }>(call)).raised;
  }

  /** Forgets the names in some pages of the table that are old enough. */
  forget(olderThanMs: number, page: string): Promise<ForgetRow> {
    return this.#readCommitted<ForgetRow>(
      `forgotten::text, next_page::text FROM fenced_lock.forget(${olderThanMs}, ${page}, ${PAGES})`,
    );
  }

  async install(): Promise<void> {
    await this.#query(`BEGIN; ${schema}; COMMIT`);
  }

  async #row<Row>(text: string, values: unknown[]): Promise<Row> {
    return (await this.#query(text, values)).rows[0] as Row;
  }

  /** Other levels would fail again and again for a statement that reads the whole table. */
  async #readCommitted<Row>(columns: string): Promise<Row> {
    const text = `BEGIN ISOLATION LEVEL READ COMMITTED; SELECT ${columns}; COMMIT`;
    const results = (await this.#query(text)) as unknown as { readonly rows: Row[] }[];
    return results[1]?.rows[0] as Row;
  }

  async #query(text: string, values?: unknown[]): Promise<{ readonly rows: unknown[] }> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.#pool.query(text, values);
      } catch (error) {
        const { code } = error as { code?: unknown };
        if (tries >= TRIES_MAX || !SERIALIZATION_FAILURES.includes(code)) throw error;
      }
    }
  }
}
