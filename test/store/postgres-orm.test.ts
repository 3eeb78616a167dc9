import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { promisify } from 'node:util';
import {
  ConflictError,
  InvalidArgumentError,
  InvalidTokenError,
  StaleTokenError,
  StoreSetupError,
  StoreUnavailableError,
} from '@fenced/store';
import { asFencedError, FencedPostgres, type PresentingStatement } from '@fenced/store/postgres';
import { PrismaPg } from '@prisma/adapter-pg';
import { sql as drizzleSql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/node-postgres';
import { CompiledQuery, Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import postgres from 'postgres';
import { DataSource } from 'typeorm';
import { describe, expect, test } from 'vitest';
import {
  asNewRole,
  closeAfterTest,
  connect,
  createDatabase,
  evictionOf,
  gate,
  type Ledger,
  openLedger,
  rejectionOf,
} from './harness/postgres-support.js';

const resource = 'invoice/"42", {a}';
const guarded = '\'invoice/"42", {a}\'';

/** Presents the statement and adds an entry, in one transaction. */
type Write = (presenting: PresentingStatement, text: string) => Promise<unknown>;

/** The recipes of docs/postgres.md. */
const recipes: Record<string, (ledger: Ledger) => Promise<Write>> = {
  pg: async ({ pool }) => {
    return async ({ text, values }, entry) => {
      const client = await pool.connect();
      try {
        await client.query('BEGIN');
        await client.query(text, values);
        await client.query('INSERT INTO entry (text) VALUES ($1)', [entry]);
        await client.query('COMMIT');
      } catch (error) {
        await client.query('ROLLBACK');
        throw error;
      } finally {
        client.release();
      }
    };
  },
  Kysely: async ({ url }) => {
    const pool = connect(url.href);
    const db = new Kysely<{ entry: { text: string } }>({ dialect: new PostgresDialect({ pool }) });
    return ({ text, values }, entry) =>
      db.transaction().execute(async (tx) => {
        await tx.executeQuery(CompiledQuery.raw(text, values));
        await tx.insertInto('entry').values({ text: entry }).execute();
      });
  },
  Drizzle: async ({ pool }) => {
    const db = drizzle(pool);
    return ({ text, values }, entry) =>
      db.transaction(async (tx) => {
        const parts = text.split(/\$\d/).map((part) => drizzleSql.raw(part));
        const all = parts.flatMap((part, at) =>
          at ? [drizzleSql`${values[at - 1]}`, part] : part,
        );
        await tx.execute(drizzleSql.join(all));
        await tx.execute(drizzleSql`INSERT INTO entry (text) VALUES (${entry})`);
      });
  },
  TypeORM: async ({ url }) => {
    const source = new DataSource({ type: 'postgres', url: url.href });
    await source.initialize();
    closeAfterTest(() => source.destroy());
    return ({ text, values }, entry) =>
      source.transaction(async (manager) => {
        await manager.query(text, values);
        await manager.query('INSERT INTO entry (text) VALUES ($1)', [entry]);
      });
  },
  Prisma: async ({ url }) => {
    const prisma = new (await prismaClient())({
      adapter: new PrismaPg({ connectionString: url.href }),
    });
    closeAfterTest(() => prisma.$disconnect());
    return ({ text, values }, entry) =>
      prisma.$transaction(async (tx) => {
        await tx.$executeRawUnsafe(text, ...values);
        await tx.entry.create({ data: { text: entry } });
      });
  },
  'postgres.js': async ({ url }) => {
    const sql = postgres(url.href, { onnotice: () => undefined });
    closeAfterTest(() => sql.end());
    return ({ text, values }, entry) =>
      sql.begin(async (tx) => {
        await tx.unsafe(text, values);
        await tx`INSERT INTO entry (text) VALUES (${entry})`;
      });
  },
};

interface PrismaTransaction {
  $executeRawUnsafe(text: string, ...values: unknown[]): Promise<number>;
  readonly entry: { create(row: { data: { text: string } }): Promise<unknown> };
}

interface PrismaClient {
  $transaction(run: (tx: PrismaTransaction) => Promise<void>): Promise<void>;
  $disconnect(): Promise<void>;
}

/** Lets Prisma generate a client, in a folder in which its imports are found. */
async function prismaClient(): Promise<new (options: { adapter: PrismaPg }) => PrismaClient> {
  const folder = await mkdtemp(join(import.meta.dirname, '../node_modules/.prisma-'));
  closeAfterTest(() => rm(folder, { recursive: true }));
  const schema = join(folder, 'schema.prisma');
  await writeFile(schema, PRISMA_SCHEMA);
  const cli = createRequire(import.meta.url).resolve('prisma/build/index.js');
  // To generate needs no schema engine. Without this variable, Prisma would download one.
  const env = { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: process.execPath };
  await promisify(execFile)(process.execPath, [cli, 'generate', '--schema', schema], { env });
  return (await import(join(folder, 'client/index.js'))).PrismaClient;
}

const PRISMA_SCHEMA = `
generator client {
  provider = "prisma-client-js"
  output   = "./client"
}
datasource db {
  provider = "postgresql"
}
model entry {
  text String @id
}`;

describe.each(Object.entries(recipes))('in a transaction of %s', (_, open) => {
  test('a fenced write is applied, and a stale one is refused and leaves nothing', async () => {
    const ledger = await openLedger();
    const { store } = ledger;
    await store.guard('entry', guarded);
    const write = await open(ledger);
    const fence = { resource, token: 33, lease: { remainingMs: () => 5_000 } };
    const writeId = store.newWriteId();
    await write(store.presenting({ ...fence, writeId }), '33');
    await write(store.presenting(fence), '33 again');
    await store.claim({ resource, token: 34 });
    const error = await rejectionOf(write(store.presenting(fence), 'late'));
    const stale = asFencedError(error);
    expect(stale).toBeInstanceOf(StaleTokenError);
    expect(stale).toMatchObject({ resource, presented: 33n, highest: 34n });
    await write(store.presenting({ resource: [resource, 'other'], token: 34 }), '34');
    expect(await ledger.entries()).toEqual(['33', '33 again', '34']);
    expect(await store.settle(writeId)).toBe('applied');
    expect(await store.highest('other')).toBe(34n);
  });
});

describe('presenting', () => {
  test('checks its arguments and the lease before anything is sent', async () => {
    const store = new FencedPostgres({ pool: new pg.Pool() });
    const lease = { remainingMs: () => 0 };
    const bad: [object, new (...of: never[]) => Error][] = [
      [{ resource: '', token: 33 }, InvalidArgumentError],
      [{ resource: [], token: 33 }, InvalidArgumentError],
      [{ resource, token: 0 }, InvalidTokenError],
      [{ resource, token: 33, lease }, InvalidArgumentError],
      [{ resource, token: 33, writeId: 'x' }, InvalidArgumentError],
      [{ resource, token: 33, isolation: 'serializable' }, InvalidArgumentError],
    ];
    for (const [fence, kind] of bad)
      expect(() => store.presenting(fence as never)).toThrow(kind as never);
    const reason = new Error('the lease was lost');
    const signal = AbortSignal.abort(reason);
    expect(() => store.presenting({ resource, token: 33, signal })).toThrow(reason);
  });

  test.each(['REPEATABLE READ', 'SERIALIZABLE', 'READ COMMITTED READ ONLY'])(
    'is refused under %s, whose snapshot may be too old, or which may not write',
    async (level) => {
      const { store, pool } = await openLedger();
      await store.claim({ resource, token: 33 });
      const error = await failureOf(pool, store.presenting({ resource, token: 33 }), level);
      expect(asFencedError(error)).toBeInstanceOf(InvalidArgumentError);
    },
  );

  test('lets the server end the transaction with the lease', async () => {
    const { store, pool, url } = await openLedger();
    const client = new pg.Client({ connectionString: url.href });
    const ended = new Promise<unknown>((resolve) => client.on('error', resolve));
    await client.connect();
    closeAfterTest(() => client.end());
    const lease = { remainingMs: () => 200 };
    const { text, values } = store.presenting({ resource, token: 33, lease });
    await client.query('BEGIN');
    await client.query(text, values);
    await store.claim({ resource, token: 34 });
    expect(await ended).toMatchObject({ code: await evictionOf(pool) });
    expect(asFencedError(await ended)).toBeInstanceOf(StoreUnavailableError);
  });

  test('waits for another holder no longer than the lease, and then gives a conflict', async () => {
    const { store, pool } = await openLedger();
    const [started, end] = [gate(), gate()];
    const first = store.transaction({ resource, token: 33 }, async () => {
      started.open();
      await end.passed;
    });
    await started.passed;
    const lease = { remainingMs: () => 200 };
    const error = await failureOf(pool, store.presenting({ resource, token: 34, lease }));
    end.open();
    await first;
    expect(asFencedError(error)).toBeInstanceOf(ConflictError);
    expect(await store.highest(resource)).toBe(33n);
  });
});

describe('asFencedError', () => {
  test('makes a conflict of a serialization failure that Drizzle wraps', async () => {
    const { pool } = await openLedger();
    await pool.query("INSERT INTO entry (text) VALUES ('first')");
    const update = drizzleSql`UPDATE entry SET text = 'second'`;
    const run = drizzle(pool).transaction(
      async (tx) => {
        await tx.execute(drizzleSql`SELECT FROM entry`);
        await pool.query("UPDATE entry SET text = 'other'");
        await tx.execute(update);
      },
      { isolationLevel: 'repeatable read' },
    );
    const error = await rejectionOf(run);
    expect(error).not.toHaveProperty('code');
    expect(asFencedError(error)).toMatchObject({ code: 'conflict', cause: { code: '40001' } });
  });

  test('recognises a write without a token to a guarded row, a role without rights, and a database without the schema', async () => {
    const { store, pool, url } = await openLedger();
    await store.guard('entry', guarded);
    const statement = store.presenting({ resource, token: 33 });
    const unfenced = await rejectionOf(pool.query("INSERT INTO entry (text) VALUES ('x')"));
    expect(asFencedError(unfenced)).toBeInstanceOf(InvalidArgumentError);
    const stranger = connect((await asNewRole(url)).href);
    const notAllowed = await failureOf(stranger, statement);
    expect(asFencedError(notAllowed)).toBeInstanceOf(StoreSetupError);
    expect(asFencedError(notAllowed)?.message).toContain('fenced.allow');
    const bare = connect((await createDatabase()).href);
    expect(asFencedError(await failureOf(bare, statement))).toBeInstanceOf(StoreSetupError);
  });

  test.each(["SELECT 'x'::int", 'SELECT FROM missing', 'SELECT missing()', 'SELECT 1 / 0'])(
    'is null for a mistake of the caller in %s',
    async (text) => {
      const { pool } = await openLedger();
      expect(asFencedError(await failureOf(pool, { text, values: [] }))).toBeNull();
    },
  );

  test('finds the error in every wrapper', () => {
    const detail = JSON.stringify({ resource, presented: '33', highest: '34' });
    const said = { code: 'UF001', severity: 'ERROR', message: 'stale fencing token', detail };
    const server = Object.assign(new Error(said.message), said);
    const cyclic = new Error('cyclic', { cause: server });
    Object.assign(server, { cause: cyclic });
    const wrapped: unknown[] = [
      server,
      cyclic,
      new Error('1', { cause: new Error('2', { cause: server }) }),
      new AggregateError([new Error('other'), new Error('1', { cause: server })]),
      Object.assign(new Error('QueryFailedError'), { driverError: server }),
      Object.assign(new Error('DatabaseError'), { originalError: server }),
      Object.assign(new Error('P2010'), { meta: { driverAdapterError: { cause: said } } }),
      new Error('1', { cause: new StaleTokenError({ resource, presented: 33n, highest: 34n }) }),
    ];
    for (const error of wrapped)
      expect(asFencedError(error)).toMatchObject({ code: 'stale-token', highest: 34n });
    const others: unknown[] = [
      undefined,
      null,
      'UF001',
      new Error('UF001'),
      { code: 'UF001', severity: 'ERROR', message: 'of somebody else' },
      { ...said, detail: '{}' },
      { ...said, detail: 'null' },
    ];
    for (const error of others) expect(asFencedError(error)).toBeNull();
  });
});

/** The error of a statement in a transaction of its own. */
async function failureOf(
  pool: pg.Pool,
  { text, values }: PresentingStatement,
  level = 'READ COMMITTED',
): Promise<unknown> {
  const client = await pool.connect();
  try {
    await client.query(`BEGIN ISOLATION LEVEL ${level}`);
    return await rejectionOf(client.query(text, values));
  } finally {
    await client.query('ROLLBACK');
    client.release();
  }
}
