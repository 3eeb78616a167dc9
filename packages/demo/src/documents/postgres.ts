import { ConflictError } from '@fenced/store';
import { FencedPostgres } from '@fenced/store/postgres';
import pg from 'pg';
import type { Lines } from '../history.js';
import type { StoreAddress } from '../job.js';
import type { FencedDocument, PlainDocument } from './document.js';
import { recordDocument } from './record.js';

type PostgresAddress = Extract<StoreAddress, { readonly kind: 'postgres' }>;

const UPDATE_ATTEMPTS_MAX = 5;

const READ = 'SELECT lines, version FROM demo.document WHERE id = $1';
const WRITE = 'UPDATE demo.document SET lines = $2, version = version + 1 WHERE id = $1';
const COMPARE_AND_SET = `${WRITE} AND version = $3`;

export const TABLE = `
  CREATE SCHEMA IF NOT EXISTS demo;
  CREATE TABLE IF NOT EXISTS demo.document (
    id text PRIMARY KEY, lines jsonb NOT NULL DEFAULT '[]', version bigint NOT NULL DEFAULT 1)`;

export function connect(url: string): pg.Pool {
  const pool = new pg.Pool({ connectionString: url });
  // The pool replaces a broken idle connection. Without a listener, the event ends the process.
  pool.on('error', () => {});
  return pool;
}

export function openPlain({ url, id }: PostgresAddress): PlainDocument {
  const pool = connect(url);
  return {
    read: async () => (await read(pool, id)).lines,
    async write(lines) {
      await pool.query(WRITE, [id, JSON.stringify(lines)]);
    },
    [Symbol.asyncDispose]: () => pool.end(),
  };
}

export function openFenced({ url, id }: PostgresAddress): FencedDocument {
  const pool = connect(url);
  const documents = new FencedPostgres({ pool });
  const resource = `document/${id}`;
  return {
    async prepare() {
      await documents.highest(resource);
    },
    read: async () => (await read(pool, id)).lines,
    async put(lines, token) {
      await documents.query({ resource, token }, WRITE, [id, JSON.stringify(lines)]);
    },
    async update(token, edit) {
      for (let attempts = 1; attempts <= UPDATE_ATTEMPTS_MAX; attempts += 1) {
        const { lines, version } = await read(pool, id);
        const values = [id, JSON.stringify(edit(lines)), version];
        const { rowCount } = await documents.query({ resource, token }, COMPARE_AND_SET, values);
        if (rowCount === 1) return;
      }
      throw new ConflictError({ resource, attempts: UPDATE_ATTEMPTS_MAX });
    },
    async claim(token) {
      await documents.claim({ resource, token });
    },
    highest: () => documents.highest(resource),
    [Symbol.asyncDispose]: () => pool.end(),
  };
}

/** Opens the record that gateways write to. */
export function openRecord({ url, id }: PostgresAddress): FencedDocument {
  const pool = connect(url);
  const document = recordDocument(new FencedPostgres({ pool }), id);
  return {
    ...document,
    async prepare() {
      await document.highest();
    },
    [Symbol.asyncDispose]: () => pool.end(),
  };
}

async function read(pool: pg.Pool, id: string): Promise<{ lines: Lines; version: string }> {
  const { rows } = await pool.query(READ, [id]);
  const [row] = rows;
  if (!row) throw new Error(`no such document: id=${id}`);
  return row;
}
