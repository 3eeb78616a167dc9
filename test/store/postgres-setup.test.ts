import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { InvalidArgumentError, InvalidTokenError, StoreSetupError } from '@fenced/store';
import { FencedPostgres, type TransactionOptions } from '@fenced/store/postgres';
import pg from 'pg';
import { describe, expect, test } from 'vitest';
import {
  administer,
  asNewRole,
  closeAfterTest,
  connect,
  createDatabase,
  openLedger,
  rejectionOf,
} from './harness/postgres-support.js';

const resource = 'invoice/42';

describe('install', () => {
  test('succeeds for many processes at once', async () => {
    const url = await createDatabase();
    const pool = connect(url.href);
    const installs = Array.from({ length: 8 }, () => new FencedPostgres({ pool }).install());
    await Promise.all(installs);
    await new FencedPostgres({ pool }).claim({ resource, token: 1 });
  });

  test('changes nothing the second time, and neither does schema.sql', async () => {
    const { store, pool } = await openLedger();
    await store.claim({ resource, token: 34 });
    await store.install();
    const file = new URL(import.meta.resolve('@fenced/store/postgres/schema.sql'));
    await pool.query(await readFile(file, 'utf8'));
    expect(await store.highest(resource)).toBe(34n);
    const { rows } = await pool.query('SELECT fenced.version() AS version');
    expect(rows).toEqual([{ version: 7 }]);
  });
});

describe.each([5, 6])('an upgrade from version %i', (from) => {
  async function openEarlier() {
    const url = await createDatabase();
    const pool = connect(url.href);
    const file = new URL(`./harness/postgres-schema-${from}.sql`, import.meta.url);
    await pool.query(await readFile(file, 'utf8'));
    const role = await asNewRole(url);
    const theirs = new FencedPostgres({ pool: connect(role.href) });
    await pool.query(`SELECT fenced.allow('${role.username}')`);
    return { url, pool, role, theirs, store: new FencedPostgres({ pool }) };
  }

  test('keeps tokens, documents and the right to present tokens', async () => {
    const { pool, store, theirs } = await openEarlier();
    await pool.query("SELECT fenced.present('invoice/42', 34)");
    await pool.query(
      "SELECT fenced.put_record('bills', '1', '7', 34, '0190a6b0-0000-4000-8000-000000000000')",
    );
    const put = store.records('bills').put('1', 7, { token: 34 });
    if (from === 5)
      await expect(put).rejects.toMatchObject({
        code: 'store-setup',
        message: expect.stringContaining('run install()'),
      });
    else await put;
    const earlier = store.newWriteId();
    await store.install();
    // Version 5 may have deleted its note.
    expect(await store.settle(earlier)).toBe(from === 5 ? 'unknown' : 'not-applied');
    await expect(theirs.claim({ resource, token: 33 })).rejects.toMatchObject({ highest: 34n });
    await theirs.claim({ resource, token: 35 });
    const bill = await theirs.records('bills').claimAndGet('1', { token: 35 });
    expect(bill).toMatchObject({ body: 7 });
    const { version } = bill ?? {};
    await theirs.records('bills').put('1', 8, { token: 35, expected: version ?? '' });
    expect(await theirs.settle(theirs.newWriteId())).toBe('not-applied');
  });

  test('keeps guards, and reports that their expressions were not checked', async () => {
    const { pool, store } = await openEarlier();
    await pool.query(
      "CREATE TABLE invoice (id int); SELECT fenced.guard('invoice', $$'invoice/' || id$$)",
    );
    await store.install();
    expect(await store.guards()).toMatchObject([
      { table: 'invoice', problem: expect.stringMatching(/^an earlier version made it/) },
    ]);
    const write = 'INSERT INTO invoice VALUES (42)';
    await expect(pool.query(write)).rejects.toMatchObject({ code: 'UF002' });
    await store.query({ resource, token: 34 }, write);
    await store.guard('invoice', "'invoice/' || id");
    expect(await store.guards()).toMatchObject([{ table: 'invoice', problem: null }]);
  });

  test('leaves the functions, columns and indexes of a new installation', async () => {
    const { pool, store } = await openEarlier();
    const parts = async (somewhere: pg.Pool) => {
      const { rows } = await somewhere.query(
        `SELECT oid::regprocedure::text AS part FROM pg_proc WHERE pronamespace = 'fenced'::regnamespace
         UNION SELECT pg_get_triggerdef(t.oid) || tgenabled::text FROM pg_trigger t
           JOIN pg_class c ON c.oid = tgrelid WHERE relnamespace = 'fenced'::regnamespace
         UNION SELECT concat_ws(' ', attrelid::regclass, attname, atttypid::regtype, attcollation::regcollation)
           FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
           WHERE relnamespace = 'fenced'::regnamespace AND attnum > 0 ORDER BY 1`,
      );
      return rows;
    };
    await store.install();
    expect(await parts(pool)).toEqual(await parts((await openLedger()).pool));
  });

  test('does not give back a right that was taken away', async () => {
    const { pool, role, store, theirs } = await openEarlier();
    await pool.query(`SELECT fenced.disallow('${role.username}')`);
    await store.install();
    await expect(theirs.claim({ resource, token: 35 })).rejects.toMatchObject({
      code: 'store-setup',
    });
  });

  test('happens once if several processes install at once', async () => {
    const { url, store } = await openEarlier();
    const others = Array.from({ length: 4 }, () => new FencedPostgres({ pool: connect(url.href) }));
    await Promise.all(others.map((other) => other.install()));
    await store.claim({ resource, token: 41 });
  });

  test('is the only one: schema.sql refuses the versions 4 and 8, and install leaves version 8 as it is', async () => {
    const { store, pool } = await openLedger();
    const file = new URL(import.meta.resolve('@fenced/store/postgres/schema.sql'));
    for (const version of [4, 8]) {
      await pool.query(
        `CREATE OR REPLACE FUNCTION fenced.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT ${version}'`,
      );
      const run = pool.query(await readFile(file, 'utf8'));
      await expect(run).rejects.toThrow(`has version ${version}`);
      if (version === 8) await store.install();
      else await expect(store.install()).rejects.toThrow('Run the schema.sql of version 5');
    }
  });
});

test('install stops at a schema of another role, and calls none of its functions', async () => {
  const url = await createDatabase();
  const pool = connect(url.href);
  const other = await asNewRole(url);
  await pool.query(`GRANT CREATE ON DATABASE ${url.pathname.slice(1)} TO ${other.username}`);
  closeAfterTest(() => administer('SELECT'));
  await connect(other.href).query(
    `CREATE SCHEMA fenced; CREATE FUNCTION fenced.version() RETURNS integer LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'called as %', current_user; END 1 $$`.replace('END 1', 'END'),
  );
  const store = new FencedPostgres({ pool });
  await expect(store.install()).rejects.toMatchObject({
    code: 'store-setup',
    message: expect.stringContaining(`belongs to the role ${other.username}`),
  });
});

describe('an operator', () => {
  test('lowers a ratchet with a reason, and the log names the role', async () => {
    const { store, pool } = await openLedger();
    await store.claim({ resource, token: 2n ** 63n - 1n });
    await pool.query("SELECT fenced.reset($1, 40, 'a hostile token')", [resource]);
    expect(await store.highest(resource)).toBe(40n);
    await store.claim({ resource, token: 41 });
    const { rows } = await pool.query(
      'SELECT resource, token_before, token_after, reason, by_role FROM fenced.reset_log',
    );
    expect(rows).toEqual([
      {
        resource,
        token_before: `${2n ** 63n - 1n}`,
        token_after: '40',
        reason: 'a hostile token',
        by_role: 'postgres',
      },
    ]);
    await expect(pool.query("SELECT fenced.reset('x', 1, '')")).rejects.toMatchObject({
      code: '23514',
    });
    expect(await store.highest('x')).toBe(0n);
  });

  test('waits for the holder of the resource', async () => {
    const { store, pool, untilWaiting } = await openLedger();
    let reset: Promise<unknown> = Promise.resolve();
    await store.transaction({ resource, token: 34 }, async (tx) => {
      await tx.query('SELECT 1');
      reset = pool.query("SELECT fenced.reset($1, 33, 'too early')", [resource]);
      await untilWaiting(1);
    });
    await reset;
    expect(await store.highest(resource)).toBe(33n);
  });

  test('gives rights and takes them away; other roles have none before', async () => {
    const { url, pool } = await openLedger();
    const role = await asNewRole(url);
    const theirs = connect(role.href);
    const store = new FencedPostgres({ pool: theirs });
    const calls = [
      () => store.claim({ resource, token: 1 }),
      () => store.highest(resource),
      () => theirs.query('SELECT fenced.present($1, 1)', [resource]),
    ];
    for (const call of calls) await expect(call()).rejects.toThrow('permission denied');
    for (const call of calls.slice(0, 2))
      await expect(call()).rejects.toThrow("SELECT fenced.allow('role')");
    await pool.query(`SELECT fenced.allow('${role.username}')`);
    for (const call of calls) await call();
    for (const call of [
      "SELECT fenced.reset('invoice/42', 1, 'because')",
      'SELECT fenced.forget_writes()',
      'TABLE fenced.write',
      'TABLE fenced.reset_log',
      `SELECT fenced.allow('${role.username}')`,
    ])
      await expect(theirs.query(call)).rejects.toMatchObject({ code: '42501' });
    await pool.query(`SELECT fenced.disallow('${role.username}')`);
    for (const call of calls) await expect(call()).rejects.toThrow('permission denied');
  });
});

describe('the lock of a resource, taken by another program,', () => {
  const squat = 'SELECT pg_advisory_lock(hashtextextended($1, 112585829737828))';

  test('is a conflict after holdMs, and its session can be found', async () => {
    const { url, pool } = await openLedger();
    const role = await asNewRole(url);
    const theirs = connect(role.href);
    await theirs.query(squat, [resource]);
    const store = new FencedPostgres({ pool, holdMs: 300 });
    const claim = () => store.claim({ resource, token: 1 });
    await expect(claim()).rejects.toMatchObject({ code: 'conflict' });
    const { rows } = await pool.query(
      `SELECT a.usename FROM pg_locks l JOIN pg_stat_activity a USING (pid)
        WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
          AND (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended($1, 112585829737828)`,
      [resource],
    );
    expect(rows).toEqual([{ usename: role.username }]);
    await theirs.query('SELECT pg_advisory_unlock_all()');
    await claim();
  });

  test('is impossible once the right to take such locks is revoked', async () => {
    const { url, pool } = await openLedger();
    const role = await asNewRole(url);
    await pool.query(`SELECT fenced.allow('${role.username}');
      DO $$
      DECLARE
        routine regprocedure;
      BEGIN
        FOR routine IN SELECT oid FROM pg_proc
            WHERE proname ~ '^pg_(try_)?advisory_(xact_)?lock(_shared)?$' AND pronargs = 1 LOOP
          EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', routine);
        END LOOP;
      END
      $$`);
    const theirs = connect(role.href);
    await expect(theirs.query(squat, [resource])).rejects.toMatchObject({ code: '42501' });
    const store = new FencedPostgres({ pool: theirs });
    for (let i = 0; i < 3; i++) await store.query({ resource, token: 34 }, 'SELECT 1');
    await store.transaction({ resource, token: 34 }, (tx) => tx.query('SELECT 1'));
    expect(await store.highest(resource)).toBe(34n);
  });
});

describe('an ordinary role', () => {
  async function asOrdinaryRole() {
    const ledger = await openLedger();
    const url = await asNewRole(ledger.url);
    await ledger.pool.query(
      `GRANT SELECT, INSERT ON entry TO ${url.username}; GRANT USAGE ON SEQUENCE entry_id_seq TO ${url.username};
       SELECT fenced.allow('${url.username}')`,
    );
    const pool = connect(url.href);
    return { ...ledger, pool, store: new FencedPostgres({ pool }) };
  }

  test('writes, claims and reads the ratchet; install finds nothing to do', async () => {
    const { store, entries } = await asOrdinaryRole();
    await store.install();
    await store.query({ resource, token: 34 }, 'INSERT INTO entry (text) VALUES ($1)', ['34']);
    await expect(store.claim({ resource, token: 33 })).rejects.toMatchObject({ highest: 34n });
    expect(await store.highest(resource)).toBe(34n);
    expect(await entries()).toEqual(['34']);
  });

  test.each([
    'UPDATE fenced.ratchet SET token = 1',
    'DELETE FROM fenced.ratchet',
    'TRUNCATE fenced.ratchet',
    "INSERT INTO fenced.ratchet (resource, token) VALUES ('other', 1)",
    'SELECT * FROM fenced.ratchet FOR UPDATE',
    'DROP TABLE fenced.ratchet',
    'ALTER TABLE fenced.ratchet DISABLE TRIGGER ALL',
    'DROP FUNCTION fenced.advance',
    "CREATE OR REPLACE FUNCTION fenced.advance(resource text, token bigint) RETURNS void LANGUAGE sql AS ''",
  ])('cannot lower or forget a token: %s', async (statement) => {
    const { pool, store } = await asOrdinaryRole();
    await store.claim({ resource, token: 34 });
    await expect(pool.query(statement)).rejects.toMatchObject({ code: '42501' });
    expect(await store.highest(resource)).toBe(34n);
  });

  test('cannot put its own objects in the way of the functions', async () => {
    const { pool, store } = await asOrdinaryRole();
    const client = await pool.connect();
    await client.query('CREATE TEMP TABLE ratchet (resource text, token bigint)');
    await client.query('SET search_path = pg_temp, public');
    client.release();
    await store.claim({ resource, token: 34 });
    expect((await pool.query('SELECT * FROM pg_temp.ratchet')).rowCount).toBe(0);
  });

  test('that may not install gets a set-up error', async () => {
    const url = await asNewRole(await createDatabase());
    const store = new FencedPostgres({ pool: connect(url.href) });
    const error = await rejectionOf(store.install());
    expect(error).toBeInstanceOf(StoreSetupError);
    expect(error).toMatchObject({ message: expect.stringContaining('permission denied') });
  });
});

describe('set-up errors', () => {
  test('a database without the schema', async () => {
    const pool = connect((await createDatabase()).href);
    const store = new FencedPostgres({ pool });
    const calls = [
      store.query({ resource, token: 1 }, 'SELECT 1'),
      store.claim({ resource, token: 1 }),
      store.highest(resource),
    ];
    for (const outcome of await Promise.allSettled(calls)) {
      expect(outcome).toMatchObject({ reason: { code: 'store-setup' } });
      expect(outcome).toMatchObject({ reason: { message: expect.stringContaining('install()') } });
    }
  });

  test.each([
    ['a database that does not exist', 'store-setup', { pathname: '/absent' }],
    ['a role that does not exist', 'store-setup', { username: 'absent' }],
    ['a host that does not exist', 'store-setup', { hostname: 'absent.invalid' }],
    ['TLS that the server does not speak', 'store-setup', { search: '?sslmode=verify-full' }],
    ['a port without a listener', 'unavailable', { port: '1' }],
  ])('%s', async (_, code, change) => {
    const url = Object.assign(await createDatabase(), change);
    const store = new FencedPostgres({ pool: connect(url.href) });
    await expect(store.claim({ resource, token: 1 })).rejects.toMatchObject({ code });
    await expect(store.install()).rejects.toMatchObject({ code });
  });

  test.each([
    ['says something else', '-ERR unknown command\r\n'],
    ['says nothing', ''],
  ])('a server that is no PostgreSQL and %s', async (_, greeting) => {
    const server = createServer((socket) => {
      socket.on('error', () => undefined);
      socket.on('data', () => socket.write(greeting));
      closeAfterTest(async () => socket.destroy());
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    closeAfterTest(async () => server.close());
    const { port } = server.address() as AddressInfo;
    const pool = new pg.Pool({ host: '127.0.0.1', port });
    const store = new FencedPostgres({ pool, holdMs: 200 });
    const call = store.claim({ resource, token: 1 });
    await expect(call).rejects.toMatchObject({ code: 'unavailable' });
    await expect(call).rejects.toThrow('is it a PostgreSQL server');
  });

  test('a database whose encoding lacks a character', async () => {
    const url = await createDatabase("ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'");
    const store = new FencedPostgres({ pool: connect(url.href) });
    await store.install();
    const claim = store.claim({ resource: '\u{1f512}', token: 1 });
    await expect(claim).rejects.toMatchObject({ code: 'store-setup' });
    await expect(claim).rejects.toThrow('LATIN1');
  });

  test('a pool whose connections are all in use', async () => {
    const { url } = await openLedger();
    const pool = connect(url.href, { max: 1 });
    const busy = await pool.connect();
    const store = new FencedPostgres({ pool, holdMs: 500 });
    await expect(store.highest(resource)).rejects.toMatchObject({ code: 'unavailable' });
    busy.release();
    expect(await store.highest(resource)).toBe(0n);
  });

  test('a pool that lends a connection in the middle of a transaction', async () => {
    const { url } = await openLedger();
    const pool = connect(url.href, { max: 1 });
    await pool.query('BEGIN');
    const store = new FencedPostgres({ pool });
    await expect(store.highest(resource)).rejects.toMatchObject({ code: 'store-setup' });
    expect(await store.highest(resource)).toBe(0n);
  });
});

describe('bad input is refused before anything is sent', () => {
  const good = { resource, token: 1 };
  const both = { resource: [resource, 'b'], token: 1 };
  const leaseOf = (name: string, token: bigint) => {
    return { remainingMs: () => 5_000, resources: [name], token };
  };
  const calls: [string, object, new (...args: never[]) => Error][] = [
    ['no resource', { token: 1 }, InvalidArgumentError],
    ['an empty resource', { ...good, resource: '' }, InvalidArgumentError],
    ['no resources', { ...good, resource: [] }, InvalidArgumentError],
    ['an empty resource among others', { ...good, resource: ['a', ''] }, InvalidArgumentError],
    ['a number as resource', { ...good, resource: 42 }, InvalidArgumentError],
    ['a NUL', { ...good, resource: 'a\0b' }, InvalidArgumentError],
    ['half a surrogate pair', { ...good, resource: 'a\ud800' }, InvalidArgumentError],
    ['1025 bytes', { ...good, resource: `a${'é'.repeat(512)}` }, InvalidArgumentError],
    ['no token', { resource }, InvalidTokenError],
    ['token 0', { ...good, token: 0 }, InvalidTokenError],
    ['a token above 2^63-1', { ...good, token: 2n ** 63n }, InvalidTokenError],
    ['SQL as token', { ...good, token: '1); DROP TABLE entry; --' }, InvalidTokenError],
    ['an unknown isolation level', { ...good, isolation: 'chaos' }, InvalidArgumentError],
    ['no attempt', { ...good, attemptsMax: 0 }, InvalidArgumentError],
    ['half an attempt', { ...good, attemptsMax: 1.5 }, InvalidArgumentError],
    ['a signal that is none', { ...good, signal: {} }, InvalidArgumentError],
    ['null as signal', { ...good, signal: null }, InvalidArgumentError],
    ['an empty lease', { ...good, lease: {} }, InvalidArgumentError],
    ['null as lease', { ...good, lease: null }, InvalidArgumentError],
    ['the lease of another resource', { ...good, lease: leaseOf('b', 1n) }, InvalidArgumentError],
    ['the lease of one of two', { ...both, lease: leaseOf(resource, 1n) }, InvalidArgumentError],
    ['the lease of another token', { ...good, lease: leaseOf(resource, 2n) }, InvalidArgumentError],
    ['a symbol as isolation', { ...good, isolation: Symbol('x') }, InvalidArgumentError],
    ['an object as token', { ...good, token: Object.create(null) }, InvalidTokenError],
    ['no time left', { ...good, lease: { remainingMs: () => Number.NaN } }, InvalidArgumentError],
  ];
  test.each(calls)('%s', async (_, options, expected) => {
    const pool = connect('postgres://127.0.0.1:1/absent');
    const store = new FencedPostgres({ pool });
    const run = store.transaction(options as TransactionOptions, async () => undefined);
    await expect(run).rejects.toBeInstanceOf(expected);
    await expect(store.claim(options as TransactionOptions)).rejects.toBeInstanceOf(expected);
    expect(pool.totalCount).toBe(0);
  });

  const without: [string, (store: FencedPostgres) => Promise<unknown>][] = [
    ['nothing', (store) => store.transaction(undefined as never, async () => undefined)],
    ['no work', (store) => store.transaction(good, undefined as never)],
    ['nothing to claim', (store) => store.claim(undefined as never)],
    ['no statement', (store) => store.query(good, undefined as never)],
    ['an object as statement', (store) => store.query(good, { text: 'SELECT 1' } as never)],
    ['values that are no list', (store) => store.query(good, 'SELECT $1', 5 as never)],
    ['several resources to highest', (store) => store.highest(['a', 'z'] as never)],
  ];
  test.each(without)('%s', async (_, call) => {
    const pool = connect('postgres://127.0.0.1:1/absent');
    await expect(call(new FencedPostgres({ pool }))).rejects.toThrow(InvalidArgumentError);
    expect(pool.totalCount).toBe(0);
  });

  test('a statement in an object, within a transaction', async () => {
    const { store } = await openLedger();
    const run = store.transaction(good, (tx) => tx.query({ text: 'COMMIT' } as never));
    await expect(run).rejects.toThrow('the statement must be a string');
    expect(await store.highest(resource)).toBe(0n);
  });

  test.each([undefined, null, {}, { pool: null }, { pool: {} }, { pool: 'postgres://' }])(
    'options %j',
    (options) => {
      expect(() => new FencedPostgres(options as never)).toThrow(InvalidArgumentError);
    },
  );

  test.each([0, -1, 1.5, Number.NaN, 2 ** 31])('holdMs %d', (holdMs) => {
    const pool = connect('postgres://127.0.0.1:1/absent');
    expect(() => new FencedPostgres({ pool, holdMs })).toThrow(InvalidArgumentError);
  });

  test('a resource is only ever a name', async () => {
    const { store, entries } = await openLedger();
    const names = [
      "'; DROP TABLE entry; --",
      'a\\',
      "\\' OR 1=1",
      '\u{1f512}',
      '$1 %s {}',
      'é'.repeat(512),
    ];
    for (const name of names) {
      await store.query({ resource: name, token: 5 }, 'SELECT 1');
      expect(await store.highest(name)).toBe(5n);
      const late = store.claim({ resource: name, token: 4 });
      await expect(late).rejects.toMatchObject({ resource: name });
    }
    expect(await entries()).toEqual([]);
  });
});
