import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { FencedPostgres, type FencedPostgresOptions } from '@fenced/store/postgres';
import { type PostgresService, startPostgres, TcpProxy } from '@fenced/testbed';
import pg from 'pg';
import postgres from 'postgres';
import { afterAll, afterEach, describe, test, vi } from 'vitest';

let server: Promise<PostgresService> | undefined;
let administrator: Promise<pg.Client> | undefined;
let template: Promise<string> | undefined;
let names = 0;
const closers: (() => Promise<unknown>)[] = [];

// Closes in the order in which things were opened: first the database is dropped, with its
// sessions.
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

afterAll(async () => {
  await (await administrator)?.end();
  await (await server)?.stop();
});

export function closeAfterTest(close: () => Promise<unknown>): void {
  closers.push(close);
}

let driver: 'pg' | 'postgres.js' = 'pg';

/** A test that runs with pg only: postgres.js lacks the feature or the case. */
export let testOfPg = test;
export let describeOfPg = describe;

/** Lets `connect` open clients of postgres.js. Called before the tests are defined. */
export function usePostgresJs(): void {
  driver = 'postgres.js';
  const none = Object.assign(() => undefined, { each: () => () => undefined });
  testOfPg = none as unknown as typeof test;
  describeOfPg = none as unknown as typeof describe;
}

/** Opens a pool of the driver under test. */
export function connect(url: string, options: pg.PoolConfig = {}): pg.Pool {
  return driver === 'pg'
    ? connectPg(url, options)
    : (connectPostgresJs(url, options) as unknown as pg.Pool);
}

export function connectPg(url: string, options: pg.PoolConfig = {}): pg.Pool {
  const pool = new pg.Pool({ connectionString: url, ...options });
  // Without a listener, pg throws if an idle connection is lost, which these tests provoke.
  pool.on('error', () => undefined);
  closeAfterTest(() => pool.end());
  return pool;
}

/** The `sql` of postgres.js, with the method `query` of a `pg.Pool`, which the tests use. */
function connectPostgresJs(url: string, { max = 10, options }: pg.PoolConfig) {
  const sql = postgres(url, {
    max,
    // If postgres.js fetches types, the loss of a new connection is an unhandled rejection.
    fetch_types: false,
    onnotice: () => undefined,
    backoff: () => 0.02,
    ...(options && { connection: { options } }),
  });
  closeAfterTest(() => sql.end({ timeout: 1 }));
  return Object.assign(sql, {
    query: async (text: string, values: readonly unknown[] = []) => {
      const sent = values.map((value) => (Array.isArray(value) ? arrayOf(value) : value));
      const rows = await sql.unsafe(text, sent as never[]);
      return { rows: [...rows], rowCount: rows.count };
    },
  });
}

function arrayOf(values: readonly unknown[]): string {
  return JSON.stringify(values).replace('[', '{').replace(/]$/, '}');
}

/** The address of a new and empty database, which is dropped after the test with its sessions. */
export async function createDatabase(options = ''): Promise<URL> {
  const name = uniqueName();
  await administer(`CREATE DATABASE ${name} ${options}`);
  closeAfterTest(() => administer(`DROP DATABASE ${name} WITH (FORCE)`));
  const url = await serverUrl();
  url.pathname = `/${name}`;
  return url;
}

/** Returns the address of the same database for a new role, which has no rights. */
export async function asNewRole(database: URL): Promise<URL> {
  const url = new URL(database);
  url.username = uniqueName();
  url.password = 'secret';
  await administer(`CREATE ROLE ${url.username} LOGIN PASSWORD '${url.password}'`);
  closeAfterTest(() => administer(`DROP ROLE ${url.username}`));
  return url;
}

function uniqueName(): string {
  return `fenced_${process.pid}_${names++}`;
}

async function serverUrl(): Promise<URL> {
  server ??= startPostgres({ settings: { wal_level: 'logical' } });
  return new URL((await server).url);
}

export async function administer(statement: string): Promise<void> {
  administrator ??= (async () => {
    const client = new pg.Client({ connectionString: (await serverUrl()).href });
    await client.connect();
    return client;
  })();
  await (await administrator).query(statement);
}

export interface Ledger {
  readonly url: URL;
  readonly pool: pg.Pool;
  readonly store: FencedPostgres;
  /** The written entries, in order. */
  entries(): Promise<string[]>;
  /** Resolves as soon as that many sessions of this database wait for a lock. */
  untilWaiting(sessions: number): Promise<void>;
}

export const INSERT = 'INSERT INTO entry (text) VALUES ($1)';

/** Makes the database that each ledger is copied from: an installation takes longer than a copy. */
async function makeTemplate(): Promise<string> {
  const name = uniqueName();
  await administer(`CREATE DATABASE ${name}`);
  const url = await serverUrl();
  url.pathname = `/${name}`;
  const pool = connect(url.href, { max: 1 });
  await new FencedPostgres({ pool }).install();
  await pool.query('CREATE TABLE entry (id serial PRIMARY KEY, text text NOT NULL)');
  // A database with sessions cannot be copied.
  await administer(`ALTER DATABASE ${name} ALLOW_CONNECTIONS false`);
  await administer(
    `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '${name}'`,
  );
  return name;
}

/** Makes a new database, with the schema and one table to write to. */
export async function openLedger(
  options: Omit<FencedPostgresOptions, 'pool'> = {},
): Promise<Ledger> {
  template ??= makeTemplate();
  const url = await createDatabase(`TEMPLATE ${await template}`);
  const pool = connect(url.href, { max: 20 });
  const store = new FencedPostgres({ pool, ...options });
  return {
    url,
    pool,
    store,
    entries: async () => {
      const { rows } = await pool.query<{ text: string }>('SELECT text FROM entry ORDER BY id');
      return rows.map((row) => row.text);
    },
    untilWaiting: (sessions) =>
      until(async () => {
        const { rows } = await pool.query<{ count: string }>(
          `SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'`,
        );
        return Number(rows[0]?.count) === sessions;
      }),
  };
}

/** Lets each COMMIT that has changed the table wait, until the returned function is called. */
export async function holdCommits({ url }: Ledger, table: string): Promise<() => Promise<unknown>> {
  const keeper = connectPg(url.href, { max: 1 });
  await keeper.query(`
    CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER gate AFTER INSERT ON ${table} DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW EXECUTE FUNCTION gate();
    SELECT pg_advisory_lock(7)`);
  return () => keeper.query('SELECT pg_advisory_unlock(7)');
}

/**
 * The server's version as a number: 170004 is 17.4. `transaction_timeout` came with 17, `MERGE`
 * with 15.
 */
export async function versionOf(connection: pg.Pool | pg.Client): Promise<number> {
  const { rows } = await connection.query<{ server_version_num: string }>(
    'SHOW server_version_num',
  );
  return Number(rows[0]?.server_version_num);
}

/** True if the server has a limit for whole transactions. */
export async function limitsTransactions(connection: pg.Pool | pg.Client): Promise<boolean> {
  return (await versionOf(connection)) >= 170_000;
}

/** The SQLSTATE with which the server ends a transaction that is idle for too long. */
export async function evictionOf(pool: pg.Pool): Promise<'25P03' | '25P04'> {
  return (await limitsTransactions(pool)) ? '25P04' : '25P03';
}

/** A store with one connection, so that calls share a session. */
export function storeOfOne(url: URL): { readonly one: pg.Pool; readonly store: FencedPostgres } {
  const one = connect(url.href, { max: 1 });
  return { one, store: new FencedPostgres({ pool: one }) };
}

export async function until(condition: () => Promise<boolean>): Promise<void> {
  await vi.waitUntil(condition, { timeout: 10_000, interval: 5 });
}

/** A gate: one part of a test waits at it until another part opens it. */
export function gate(): { readonly passed: Promise<void>; readonly open: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { passed: promise, open: resolve };
}

/** The reason of a promise's rejection. */
export async function rejectionOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    (value) => {
      throw new Error(`expected a rejection, got ${String(value)}`);
    },
    (error: unknown) => error,
  );
}

/** Opens a store over the same database, through a proxy that can break the connection. */
export async function throughProxy(
  { url }: Ledger,
  { holdMs = 5_000, ...options }: pg.PoolConfig & { holdMs?: number } = {},
) {
  const proxy = await TcpProxy.start({ host: url.hostname, port: Number(url.port || 5432) });
  const far = new URL(url);
  far.host = `${proxy.host}:${proxy.port}`;
  const pool = connect(far.href, options);
  closeAfterTest(() => proxy.stop());
  return { proxy, far, pool, store: new FencedPostgres({ pool, holdMs }) };
}

/** The address of a server that greets and says goodbye in one packet, as in a shutdown. */
export async function startGoodbyeServer(): Promise<string> {
  const message = (type: string, body: Buffer): Buffer => {
    const head = Buffer.alloc(5);
    head.write(type);
    head.writeInt32BE(body.length + 4, 1);
    return Buffer.concat([head, body]);
  };
  const goodbye = 'SFATAL\0VFATAL\0C57P01\0Mterminating connection\0\0';
  const packet = Buffer.concat([
    message('R', Buffer.alloc(4)),
    message('Z', Buffer.from('I')),
    message('E', Buffer.from(goodbye)),
  ]);
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => socket.end(packet));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  closeAfterTest(async () => server.close());
  const { port } = server.address() as AddressInfo;
  return `postgres://a:b@127.0.0.1:${port}/c`;
}
