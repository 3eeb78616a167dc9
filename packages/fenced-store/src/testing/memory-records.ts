import '../node-version.js';
import type { PostgresPoolClient } from '../postgres/client.js';
import { Connections } from '../postgres/connections.js';
import { STALE } from '../postgres/failures.js';
import { FencedRecords, type Row, STATEMENTS } from '../postgres/records.js';
import { systemRuntime } from '../postgres/runtime.js';

const HOLD_MS = 5_000;
const NO_ROW: Row = [null, '0', '0-', null];
/** NUL and halves of surrogate pairs, as `JSON.stringify` writes them. PostgreSQL refuses both. */
const NOT_STORABLE = /(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f])/;

/**
 * JSON documents in the memory of this process, for tests of programs that use `records` of
 * `FencedPostgres`. They pass the contract suite of the real ones. There is no SQL besides: for
 * transactions, start a Postgres.
 */
export class MemoryRecords {
  /** By collection and id. */
  readonly #rows = new Map<string, Row>();

  /** As `records` of `FencedPostgres`. @throws {InvalidArgumentError} */
  records(collection: string): FencedRecords {
    const client = {
      query: async (text: string, values: unknown[] = []) => {
        const row = this.#answer(text, values as Values);
        return { rows: row ? [{ ...row }] : [] };
      },
      on: () => undefined,
      removeListener: () => undefined,
      release: () => undefined,
    };
    const pool = { connect: async () => client as unknown as PostgresPoolClient };
    return new FencedRecords(collection, new Connections(pool, HOLD_MS, systemRuntime));
  }

  /** Answers as the functions of schema.sql do. */
  #answer(text: string, [collection, id, ...values]: Values): Row | [string | null] | undefined {
    const key = JSON.stringify([collection, id]);
    const row = this.#rows.get(key);
    const refuseLower = (presented = ''): void => {
      if (row === undefined || BigInt(row[1]) <= BigInt(presented)) return;
      const detail = { resource: `${collection}/${id}`, presented, highest: row[1] };
      throw serverError(STALE, 'stale fencing token', JSON.stringify(detail));
    };
    switch (text) {
      case STATEMENTS.put: {
        const [body, token, writeId, expected] = values as [string | null, string, string, string];
        if (body !== null && NOT_STORABLE.test(body))
          throw serverError('22P05', 'unsupported Unicode escape sequence');
        refuseLower(token);
        const [present, , version] = row ?? NO_ROW;
        const found = present === null ? 'none' : version;
        if (expected !== null && expected !== found) return [null];
        const next = `${Number.parseInt(version, 10) + 1}-${writeId}`;
        this.#rows.set(key, [body, token, next, writeId]);
        return [next];
      }
      case STATEMENTS.claim:
      case STATEMENTS.claimAndGet: {
        const [token] = values as [string];
        refuseLower(token);
        const [body, , version, writeId] = row ?? NO_ROW;
        this.#rows.set(key, [body, token, version, writeId]);
        return this.#rows.get(key);
      }
      default:
        return row;
    }
  }
}

type Values = [collection: string, id: string, ...rest: (string | null)[]];

/** An error as the server sends it. */
function serverError(code: string, message: string, detail?: string): Error {
  return Object.assign(new Error(message), { severity: 'ERROR', code, detail });
}
