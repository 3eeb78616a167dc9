import type { EventEmitter } from 'node:events';

/** What is used of a connection of a `pg.Pool`: LISTEN, and the events `notification`, `error` and `end`. */
export interface PostgresConnection extends Pick<EventEmitter, 'on'> {
  query(text: string): Promise<unknown>;
  release(error?: Error | boolean): void;
}

/** The calls used of a `pg.Pool`. */
export interface PostgresPool {
  /** Where the pool has only one connection, none is kept for listening. */
  readonly options?: { readonly max?: number };
  connect(lend: (error: Error | undefined, connection?: PostgresConnection) => void): void;
  query(text: string, values?: unknown[]): Promise<{ readonly rows: unknown[] }>;
}

/** What one attempt to acquire ended with on the server: a token, or how long somebody else holds it. */
export interface Answer {
  readonly token: string | null;
  readonly held_ms: string | null;
}

/** The number of names that were forgotten, and the page of the table to go on with; null at its end. */
export interface Forgotten {
  readonly forgotten: string;
  readonly next_page: string | null;
}

/** Pages of the table that one statement looks through: some 1,500 names, a few milliseconds. */
const PAGES = 32;

/** SQLSTATE: the transaction was rolled back because of others, under stricter defaults than READ COMMITTED. */
const SERIALIZATION_FAILURES: readonly unknown[] = ['40001', '40P01'];
const TRIES_MAX = 10;

/** The functions of schema.sql. */
export class Database {
  readonly #pool: PostgresPool;

  constructor(pool: PostgresPool) {
    this.#pool = pool;
  }

  /** @param waits whether the caller goes on to wait if others hold it, and wants to hear of the release */
  async acquire(
    resources: readonly string[],
    owner: string,
    ttlMs: number,
    firstToken: bigint | null,
    waits: boolean,
  ): Promise<Answer> {
    const routine = waits ? 'acquire_or_await' : 'acquire';
    const values = [resources, owner, ttlMs, firstToken === null ? null : String(firstToken)];
    const [answer] = await this.#ask<Answer>(
      `SELECT token::pg_catalog.text, held_ms::pg_catalog.text
        FROM fenced_lock.${routine}($1::pg_catalog.text[], $2, $3::integer, $4::bigint)`,
      values,
    );
    if (answer) return answer;
    throw new Error('fenced_lock.acquire gave no row');
  }

  async extend(resources: readonly string[], owner: string, ttlMs: number): Promise<boolean> {
    const [answer] = await this.#ask<{ held: boolean }>(
      'SELECT fenced_lock.extend($1::pg_catalog.text[], $2, $3::integer) AS held',
      [resources, owner, ttlMs],
    );
    return answer?.held ?? false;
  }

  async release(resources: readonly string[], owner: string): Promise<boolean> {
    const [answer] = await this.#ask<{ held: boolean }>(
      'SELECT fenced_lock.release($1::pg_catalog.text[], $2) AS held',
      [resources, owner],
    );
    return answer?.held ?? false;
  }

  /** Begins a round of forgetting. False if the last one began less than `everyMs` ago. */
  async raiseFloor(everyMs: number): Promise<boolean> {
    const [answer] = await this.#askCommitted<{ raised: boolean }>(
      `SELECT fenced_lock.raise_floor(${everyMs}) AS raised`,
    );
    return answer?.raised ?? false;
  }

  /** Forgets what is old enough in some pages of the table. */
  async forget(olderThanMs: number, page: string): Promise<Forgotten> {
    const [answer] = await this.#askCommitted<Forgotten>(
      `SELECT forgotten::text, next_page::text FROM fenced_lock.forget(${olderThanMs}, ${page}, ${PAGES})`,
    );
    if (answer) return answer;
    throw new Error('fenced_lock.forget gave no row');
  }

  async install(schema: string): Promise<void> {
    await this.#ask(`BEGIN; ${schema}; COMMIT`);
  }

  async #ask<Row>(text: string, values?: unknown[]): Promise<Row[]> {
    return (await this.#query(text, values)).rows as Row[];
  }

  /** Under READ COMMITTED, whatever the default is: what reads the whole table would else fail because of others, again and again. */
  async #askCommitted<Row>(text: string): Promise<Row[]> {
    const results: unknown = await this.#query(
      `BEGIN ISOLATION LEVEL READ COMMITTED; ${text}; COMMIT`,
    );
    return Array.isArray(results) ? results[1].rows : [];
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
