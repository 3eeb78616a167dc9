import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { StaleTokenError } from '@fenced/store';
import { FencedPostgres, type FencedTransaction } from '@fenced/store/postgres';
import pg from 'pg';
import { from as copyFrom } from 'pg-copy-streams';
import postgres from 'postgres';
import { describe, expect, test } from 'vitest';
import { forged } from './harness/postgres-attacks.js';
import {
  administer,
  asNewRole,
  closeAfterTest,
  connect,
  createDatabase,
  type Ledger,
  openLedger,
  testOfPg,
  until,
  versionOf,
} from './harness/postgres-support.js';

/** Guarded tables of invoices and of their lines. A line demands the token of its invoice. */
async function openGuarded(): Promise<Ledger & { client: pg.Client; totals(): Promise<number[]> }> {
  const ledger = await openLedger();
  await ledger.pool.query(`
    CREATE TABLE invoice (id int PRIMARY KEY, total int NOT NULL DEFAULT 0);
    CREATE TABLE line (invoice int REFERENCES invoice ON DELETE CASCADE ON UPDATE CASCADE, text text);
    INSERT INTO invoice (id) SELECT generate_series(1, 4);
    INSERT INTO line VALUES (1, 'a'), (2, 'b')`);
  await ledger.store.guard('public.invoice', "'invoice/' || id");
  await ledger.store.guard('line', "'invoice/' || invoice");
  const client = new pg.Client({ connectionString: ledger.url.href });
  client.on('error', () => undefined);
  await client.connect();
  closeAfterTest(() => client.end());
  const totals = async () => {
    const { rows } = await ledger.pool.query('SELECT total FROM invoice ORDER BY id');
    return rows.map(({ total }) => total);
  };
  return { ...ledger, client, totals };
}

const present = (id: number, token: number) => `SELECT fenced.present('invoice/${id}', ${token})`;

/** Statements as psql sends them: simple protocol, one transaction. */
const inTransaction = (...statements: string[]) => ['BEGIN', ...statements, 'COMMIT'].join('; ');

/** Makes the setting that `fenced.present` makes, without a check of the token. */
const forge = forged("ARRAY['invoice/1']", 33);

/** Name, statement, the invoices of its rows, and the first version that knows the statement. */
const writes: [string, string, number[], since?: number][] = [
  ['INSERT', 'INSERT INTO invoice VALUES (9)', [9]],
  ['UPDATE', 'UPDATE invoice SET total = 1 WHERE id = 1', [1]],
  ['DELETE', 'DELETE FROM line WHERE invoice = 1', [1]],
  ['a bulk UPDATE', 'UPDATE invoice SET total = 1', [1, 2, 3, 4]],
  [
    'an UPDATE that moves a row to another resource',
    'UPDATE invoice SET id = 9 WHERE id = 4',
    [4, 9],
  ],
  [
    'INSERT … ON CONFLICT DO UPDATE',
    'INSERT INTO invoice VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET total = EXCLUDED.total',
    [1],
  ],
  [
    'MERGE',
    `MERGE INTO invoice USING (VALUES (1), (9)) AS source (key) ON id = key
       WHEN MATCHED THEN UPDATE SET total = 1 WHEN NOT MATCHED THEN INSERT VALUES (key, 1)`,
    [1, 9],
    150_000,
  ],
  ["a foreign key's cascade", 'DELETE FROM invoice WHERE id = 2', [2]],
  [
    'a writing CTE',
    'WITH w AS (UPDATE invoice SET total = 1 WHERE id = 1 RETURNING id) TABLE w',
    [1],
  ],
  ['a function of somebody', 'DO $$ BEGIN UPDATE invoice SET total = 1 WHERE id = 1; END $$', [1]],
];

/** The SQLSTATE of a statement that only later versions know. */
const SYNTAX_ERROR = '42601';

describe.each(writes)('%s', (_, statement, ids, since = 0) => {
  test('without a token is refused, and nothing changed', async () => {
    const { client, totals } = await openGuarded();
    // An older server does not know the statement, so it refuses it without the guard.
    const code = (await versionOf(client)) >= since ? 'UF002' : SYNTAX_ERROR;
    await expect(client.query(statement)).rejects.toMatchObject({ code });
    expect(await totals()).toEqual([0, 0, 0, 0]);
  });

  test('with a token for all but one of its rows is refused', async () => {
    const { client, totals } = await openGuarded();
    const isKnown = (await versionOf(client)) >= since;
    const some = [7, ...ids.slice(1)].map((id) => present(id, 33));
    const run = client.query(inTransaction(...some, statement));
    const refusal = { code: 'UF002', detail: `{"resource" : "invoice/${ids[0]}"}` };
    await expect(run).rejects.toMatchObject(isKnown ? refusal : { code: SYNTAX_ERROR });
    await client.query('ROLLBACK');
    expect(await totals()).toEqual([0, 0, 0, 0]);
  });

  test('with the token for each of its rows is applied, and with a lower one refused', async () => {
    const { client, store } = await openGuarded();
    const isKnown = (await versionOf(client)) >= since;
    const write = client.query(inTransaction(...ids.map((id) => present(id, 33)), statement));
    if (!isKnown) {
      await expect(write).rejects.toMatchObject({ code: SYNTAX_ERROR });
      return;
    }
    await write;
    for (const id of ids) expect(await store.highest(`invoice/${id}`)).toBe(33n);
    const late = client.query(inTransaction(...ids.map((id) => present(id, 32)), statement));
    await expect(late).rejects.toMatchObject({ code: 'UF001' });
  });
});

test('TRUNCATE is refused even with tokens, and through a foreign key', async () => {
  const { client, totals } = await openGuarded();
  for (const statement of ['TRUNCATE line', 'TRUNCATE invoice CASCADE']) {
    const run = client.query(inTransaction(present(1, 33), statement));
    await expect(run).rejects.toMatchObject({ code: 'UF002' });
    await client.query('ROLLBACK');
  }
  expect(await totals()).toHaveLength(4);
});

test('a statement that changes no row needs no token: DO NOTHING on a conflict, an UPDATE that finds no row', async () => {
  const { client } = await openGuarded();
  await client.query('INSERT INTO invoice VALUES (1, 1) ON CONFLICT DO NOTHING');
  await client.query('UPDATE invoice SET total = 1 WHERE id = 77');
});

testOfPg('COPY FROM needs tokens for its rows', async () => {
  const { client, store, totals } = await openGuarded();
  const copy = (on: pg.ClientBase) =>
    pipeline(Readable.from(['8\t1\n9\t1\n']), on.query(copyFrom('COPY invoice FROM STDIN')));
  await expect(copy(client)).rejects.toMatchObject({ code: 'UF002' });
  const resources = ['invoice/8', 'invoice/9'];
  await store.transaction({ resource: resources, token: 33 }, (tx: FencedTransaction<pg.Client>) =>
    copy(tx.client),
  );
  expect(await totals()).toEqual([0, 0, 0, 0, 1, 1]);
});

test('another driver with prepared statements needs the token', async () => {
  const { url, totals } = await openGuarded();
  const sql = postgres(url.href, { max: 2, onnotice: () => undefined });
  closeAfterTest(() => sql.end());
  await expect(sql`UPDATE invoice SET total = ${1} WHERE id = ${1}`).rejects.toMatchObject({
    code: 'UF002',
    message: expect.stringContaining("call fenced.present('invoice/1', token) before"),
  });
  await sql.begin(async (transaction) => {
    await transaction`SELECT fenced.present(${'invoice/1'}, ${'33'}::bigint)`;
    await transaction`UPDATE invoice SET total = ${1} WHERE id = ${1}`;
  });
  // The token counts until the end of its transaction. The next user of the connection has none.
  for (let i = 0; i < 4; i++) {
    await expect(sql`UPDATE invoice SET total = ${2} WHERE id = ${1}`).rejects.toMatchObject({
      code: 'UF002',
    });
  }
  expect(await totals()).toEqual([1, 0, 0, 0]);
});

test('query and transaction present their token, and a stale one is refused', async () => {
  const { store, totals } = await openGuarded();
  const update = 'UPDATE invoice SET total = total + 1 WHERE id = $1';
  await store.query({ resource: 'invoice/1', token: 33 }, update, [1]);
  await store.transaction({ resource: ['invoice/1', 'invoice/2'], token: 33 }, async (tx) => {
    await tx.query(update, [1]);
    await tx.query(update, [2]);
  });
  const other = store.query({ resource: 'invoice/1', token: 33 }, update, [3]);
  await expect(other).rejects.toMatchObject({ code: 'UF002' });
  await store.claim({ resource: 'invoice/1', token: 34 });
  const late = store.query({ resource: 'invoice/1', token: 33 }, update, [1]);
  await expect(late).rejects.toBeInstanceOf(StaleTokenError);
  expect(await totals()).toEqual([2, 1, 0, 0]);
});

test('rows of many resources are written in one transaction, in a time that grows with their number', async () => {
  const { url, pool, store } = await openLedger();
  await pool.query(`CREATE TABLE many (id int, total int DEFAULT 0);
    INSERT INTO many SELECT generate_series(1, 3000)`);
  await store.guard('many', "'many/' || id");
  // With a search through all tokens for each row, this takes half a minute on an idle machine.
  const patient = new FencedPostgres({ pool: connect(url.href), holdMs: 15_000 });
  const resource = Array.from({ length: 3_000 }, (_, n) => `many/${n + 1}`);
  const result = await patient.query({ resource, token: 33 }, 'UPDATE many SET total = 1');
  expect(result.rowCount).toBe(3_000);
});

test('a forged setting does not help, because the guard asks the ratchet', async () => {
  const { client, store, totals } = await openGuarded();
  await store.claim({ resource: 'invoice/1', token: 34 });
  const run = client.query(inTransaction(forge, 'UPDATE invoice SET total = 1 WHERE id = 1'));
  await expect(run).rejects.toMatchObject({ code: 'UF001' });
  expect(await totals()).toEqual([0, 0, 0, 0]);
});

test('neither session_replication_role nor a search path of the writer passes the guard', async () => {
  const { client } = await openGuarded();
  await client.query(`
    CREATE SCHEMA hostile;
    CREATE FUNCTION hostile.concat(text, int) RETURNS text LANGUAGE sql AS $$ SELECT 'mine' $$;
    CREATE OPERATOR hostile.|| (LEFTARG = text, RIGHTARG = int, FUNCTION = hostile.concat);
    SET search_path = hostile, pg_catalog, public;
    SET session_replication_role = replica`);
  const renamed = inTransaction(
    "SELECT fenced.present('mine', 33)",
    'UPDATE invoice SET total = 1 WHERE id = 1',
  );
  await expect(client.query(renamed)).rejects.toMatchObject({
    code: 'UF002',
    detail: '{"resource" : "invoice/1"}',
  });
});

testOfPg('a role that may write the table and not present tokens is refused', async () => {
  const { url, pool } = await openGuarded();
  const other = await asNewRole(url);
  await pool.query(`GRANT SELECT, UPDATE ON invoice TO ${other.username}`);
  const theirs = connect(other.href);
  const update = 'UPDATE invoice SET total = 1 WHERE id = 1';
  await expect(theirs.query(update)).rejects.toMatchObject({ code: 'UF002' });
  await expect(theirs.query(inTransaction(forge, update))).rejects.toMatchObject({ code: '42501' });
  await pool.query(`SELECT fenced.allow('${other.username}')`);
  await theirs.query('ROLLBACK');
  await theirs.query(inTransaction(present(1, 33), update));
});

test('every path into a partitioned table is guarded, later partitions included', async () => {
  const { client, store } = await openGuarded();
  await client.query(`
    CREATE TABLE part (id int, total int) PARTITION BY RANGE (id);
    CREATE TABLE part_low PARTITION OF part FOR VALUES FROM (0) TO (10)`);
  await store.guard('part', "'invoice/' || id");
  await client.query('CREATE TABLE part_high PARTITION OF part FOR VALUES FROM (10) TO (20)');
  for (const statement of [
    'INSERT INTO part VALUES (1, 1)',
    'INSERT INTO part_low VALUES (1, 1)',
    'INSERT INTO part_high VALUES (11, 1)',
    'TRUNCATE part_low',
    'TRUNCATE part',
  ]) {
    await expect(client.query(statement), statement).rejects.toMatchObject({ code: 'UF002' });
  }
  await client.query(inTransaction(present(1, 3), 'INSERT INTO part VALUES (1, 1)'));
  const move = 'UPDATE part SET id = 11 WHERE id = 1';
  await expect(client.query(inTransaction(present(1, 3), move))).rejects.toMatchObject({
    code: 'UF002',
  });
  await client.query('ROLLBACK');
  await client.query(inTransaction(present(1, 3), present(11, 3), move));
  await client.query('SET session_replication_role = replica');
  await expect(client.query('INSERT INTO part_high VALUES (12, 1)')).rejects.toMatchObject({
    code: 'UF002',
  });
});

/** Replicates a table of the source into the ledger's database, while `run` runs. */
async function replicating(
  source: URL,
  { pool, url }: Ledger,
  table: string,
  run: (untilRefused: () => Promise<void>) => Promise<void>,
): Promise<void> {
  const from = connect(source.href);
  const name = url.pathname.slice(1);
  await from.query(`CREATE PUBLICATION source FOR TABLE ${table}`);
  await from.query(`SELECT pg_create_logical_replication_slot('${name}', 'pgoutput')`);
  await pool.query(
    `CREATE SUBSCRIPTION target CONNECTION '${source.href}' PUBLICATION source
      WITH (create_slot = false, slot_name = '${name}', copy_data = false)`,
  );
  const worker = async () =>
    (await pool.query('SELECT pid FROM pg_stat_subscription')).rows[0]?.pid ?? null;
  // PostgreSQL 14 does not count the errors of a subscription, but each error ends its worker.
  const countsErrors = (await versionOf(pool)) >= 150_000;
  const errors = 'SELECT apply_error_count FROM pg_stat_subscription_stats';
  try {
    await until(async () => (await worker()) !== null);
    const first = await worker();
    await run(() =>
      until(async () =>
        countsErrors
          ? Number((await pool.query(errors)).rows[0]?.apply_error_count) > 0
          : (await worker()) !== first,
      ),
    );
  } finally {
    await pool.query('ALTER SUBSCRIPTION target DISABLE');
    await pool.query('ALTER SUBSCRIPTION target SET (slot_name = NONE)');
    await pool.query('DROP SUBSCRIPTION target');
    await until(async () => {
      const { rows } = await from.query(
        `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '${name}' AND NOT active`,
      );
      return rows.length > 0;
    });
  }
}

test('the apply of logical replication is refused, and goes on when the guard is removed', async () => {
  const source = await createDatabase();
  const from = connect(source.href);
  const ledger = await openLedger();
  const { pool, store } = ledger;
  const table = 'CREATE TABLE invoice (id int PRIMARY KEY)';
  await from.query(table);
  await pool.query(table);
  await store.guard('invoice', "'invoice/' || id");
  const count = async () =>
    (await pool.query('SELECT count(*)::int AS count FROM invoice')).rows[0].count;
  await replicating(source, ledger, 'invoice', async (untilRefused) => {
    await from.query('INSERT INTO invoice VALUES (1)');
    await untilRefused();
    expect(await count()).toBe(0);
    await store.unguard('invoice');
    await pool.query('ALTER SUBSCRIPTION target DISABLE');
    await pool.query('ALTER SUBSCRIPTION target ENABLE');
    await until(async () => (await count()) === 1);
  });
});

test('nothing but a reset lowers a token, and logical replication does not', async () => {
  const source = await openLedger();
  const ledger = await openLedger();
  const { pool, store } = ledger;
  const lower = { resource: 'invoice/42', token: 20 };
  await source.store.claim(lower);
  await store.claim({ ...lower, token: 34 });
  await store.records('bills').put('42', 1, { token: 34 });
  await replicating(source.url, ledger, 'fenced.ratchet', async (untilRefused) => {
    await source.store.claim({ ...lower, token: 21 });
    await untilRefused();
  });
  expect(await store.highest('invoice/42')).toBe(34n);
  for (const table of ['ratchet', 'record'])
    await expect(pool.query(`UPDATE fenced.${table} SET token = 33`)).rejects.toMatchObject({
      code: 'UF001',
      detail: expect.stringMatching(/"(invoice|bills)\/42".*"presented" : "33", "highest" : "34"/),
    });
  const both = `BEGIN; SELECT fenced.reset('invoice/42', 21, 'why');
    UPDATE fenced.ratchet SET token = 20; COMMIT`;
  await expect(pool.query(both)).rejects.toMatchObject({ code: 'UF001' });
});

test('a guard that was restored without its ratchets says so', async () => {
  const { store, pool } = await openLedger();
  await pool.query('CREATE TABLE invoice (id int)');
  await store.guard('invoice', "'invoice/' || id");
  expect(await store.guards()).toMatchObject([{ problem: null }]);
  // `pg_dump -n public`, restored into a database in which the schema was installed anew.
  await pool.query('DROP SCHEMA fenced CASCADE');
  await store.install();
  await pool.query(`CREATE TRIGGER fenced_guard_truncate BEFORE TRUNCATE ON invoice
      EXECUTE FUNCTION fenced.refuse_truncate();
    ALTER TABLE invoice ENABLE ALWAYS TRIGGER fenced_guard_truncate`);
  expect(await store.guards()).toMatchObject([
    { problem: expect.stringMatching(/^it was made for the ratchets of another installation/) },
  ]);
  await store.guard('invoice', "'invoice/' || id");
  expect(await store.guards()).toMatchObject([{ problem: null }]);
});

test('a guard that is removed leaves nothing behind', async () => {
  const { store, pool, client } = await openGuarded();
  await store.guard('invoice', "'other/' || id");
  await client.query(
    inTransaction(
      "SELECT fenced.present('other/1', 1)",
      'UPDATE invoice SET total = 1 WHERE id = 1',
    ),
  );
  await store.unguard('invoice');
  await store.unguard('line');
  await store.unguard('line');
  await client.query('UPDATE invoice SET total = 2; TRUNCATE invoice CASCADE');
  const { rows } = await pool.query(`
    SELECT tgname FROM pg_trigger WHERE tgname LIKE 'fenced%'
    UNION SELECT proname FROM pg_proc WHERE proname LIKE 'fenced_guard%'`);
  expect(rows).toEqual([]);
});

test.each([
  ['a table that is not there', 'absent', 'id', 'invalid-argument'],
  ['a column that is not there', 'entry', 'absent', 'invalid-argument'],
  ['what is no expression', 'entry', 'id) FROM entry; DROP TABLE entry; --', 'invalid-argument'],
  ['a view', 'pg_class_view', 'relname', 'invalid-argument'],
  ['nothing', '', 'id', 'invalid-argument'],
  ['an expression that is none', 'entry', undefined, 'invalid-argument'],
])('a guard for %s is refused', async (_, table, expression, code) => {
  const { store, pool } = await openLedger();
  await pool.query('CREATE VIEW pg_class_view AS SELECT relname FROM pg_class');
  await expect(store.guard(table, expression as string)).rejects.toMatchObject({ code });
  expect((await pool.query('SELECT * FROM entry')).rowCount).toBe(0);
});

test('only the owner of a table can guard it, and must be allowed to present tokens', async () => {
  const { url, pool } = await openLedger();
  const owner = await asNewRole(url);
  await pool.query(`GRANT CREATE ON SCHEMA public TO ${owner.username}`);
  closeAfterTest(() => administer('SELECT'));
  const theirs = connect(owner.href);
  await theirs.query('CREATE TABLE theirs (id int)');
  const store = new FencedPostgres({ pool: theirs });
  await expect(store.guard('entry', 'id')).rejects.toMatchObject({ code: 'store-setup' });
  await expect(store.guard('theirs', 'id')).rejects.toThrow('may not present tokens');
  await pool.query(`SELECT fenced.allow('${owner.username}')`);
  await store.guard('theirs', "'t/' || id");
  await expect(theirs.query('INSERT INTO theirs VALUES (1)')).rejects.toMatchObject({
    code: 'UF002',
  });
  await store.query({ resource: 't/1', token: 1 }, 'INSERT INTO theirs VALUES (1)');
});

describe('guards() and the rights on a table', () => {
  /** Changes of the guard of `invoice`, and what `guards()` reports of them. */
  const changes: [string, string, RegExp][] = [
    [
      'a trigger that is disabled',
      'ALTER TABLE invoice DISABLE TRIGGER fenced_guard',
      /rows are not/,
    ],
    [
      'a trigger that does not fire on a replica',
      'ALTER TABLE invoice ENABLE TRIGGER fenced_guard',
      /^rows are not guarded under session_replication_role = replica in public.invoice$/,
    ],
    ['a trigger that is dropped', 'DROP TRIGGER fenced_guard ON invoice', /its trigger is gone/],
    [
      'TRUNCATE let in',
      'DROP TRIGGER fenced_guard_truncate ON invoice',
      /TRUNCATE is not refused of public.invoice/,
    ],
    ['the right to create triggers', 'GRANT TRIGGER ON invoice TO PUBLIC', /REVOKE TRIGGER ON/],
    [
      'another function',
      `DO $$ BEGIN EXECUTE replace(pg_get_functiondef((SELECT oid FROM pg_proc
        WHERE proname = 'fenced_guard_' || 'invoice'::regclass::oid)), 'invoice/', 'i/'); END $$`,
      /its function was changed/,
    ],
  ];
  test.each(changes)('report %s, and guard() mends it', async (_, change, problem) => {
    const { store, pool } = await openGuarded();
    const intact = {
      table: 'invoice',
      expression: "'invoice/' || id",
      mode: 'refuse',
      problem: null,
    };
    const other = { ...intact, table: 'line', expression: "'invoice/' || invoice" };
    expect(await store.guards()).toEqual([intact, other]);
    await pool.query(change);
    const told = { ...intact, problem: expect.stringMatching(problem) };
    if (change.startsWith('DROP TRIGGER fenced_guard ')) Object.assign(told, { mode: null });
    expect(await store.guards()).toEqual([told, other]);
    if (change.startsWith('GRANT')) await pool.query('REVOKE TRIGGER ON invoice FROM PUBLIC');
    await store.guard('invoice', "'invoice/' || id");
    expect(await store.guards()).toEqual([intact, other]);
  });

  test('report an owner that may not present tokens, and another owner', async () => {
    const { url, store, pool } = await openGuarded();
    const { username } = await asNewRole(url);
    closeAfterTest(() => administer('SELECT'));
    await pool.query(`ALTER TABLE invoice OWNER TO ${username}`);
    const [{ problem } = {}] = await store.guards();
    expect(problem).toBe(
      'its function does not belong to the owner of the table; the owner of the table may not present tokens',
    );
    await pool.query(`ALTER TABLE invoice OWNER TO postgres`);
  });

  test('report partitions', async () => {
    const { client, store } = await openGuarded();
    await client.query(`
      CREATE TABLE part (id int) PARTITION BY RANGE (id);
      CREATE TABLE part_low PARTITION OF part FOR VALUES FROM (0) TO (10)`);
    await store.guard('part', "'part/' || id");
    const problemOf = async () => (await store.guards()).find((g) => g.table === 'part')?.problem;
    expect(await problemOf()).toBeNull();
    await client.query('CREATE TABLE part_high PARTITION OF part FOR VALUES FROM (10) TO (20)');
    expect(await problemOf()).toBe('TRUNCATE is not refused of public.part_high');
    await store.guard('part', "'part/' || id");
    await client.query('ALTER TABLE part_high DISABLE TRIGGER fenced_guard');
    expect(await problemOf()).toBe('rows are not guarded in public.part_high');
  });

  test('a table on which another role may create triggers cannot be guarded', async () => {
    const { url, store, pool } = await openLedger();
    const role = await asNewRole(url);
    await pool.query(`GRANT ALL ON entry TO ${role.username}`);
    await expect(store.guard('entry', 'text')).rejects.toMatchObject({
      code: 'store-setup',
      message: expect.stringContaining(`REVOKE TRIGGER ON public.entry FROM ${role.username}`),
    });
    await pool.query(`REVOKE TRIGGER ON entry FROM ${role.username}`);
    await store.guard('entry', 'text');
  });

  test('the owner of the table owns the function, and no other role can use it', async () => {
    const { url, store, pool } = await openLedger();
    const owner = await asNewRole(url);
    const other = await asNewRole(url);
    await pool.query(`GRANT CREATE ON SCHEMA public TO ${owner.username}, ${other.username};
      SELECT fenced.allow('${owner.username}')`);
    const theirs = connect(owner.href);
    await theirs.query('CREATE TABLE theirs (id int)');
    await store.guard('theirs', "'t/' || id");
    const { rows } = await pool.query(
      "SELECT proname, proowner::regrole::text AS owner FROM pg_proc WHERE proname LIKE 'fenced_guard%'",
    );
    expect(rows).toMatchObject([{ owner: owner.username }]);
    const strangers = connect(other.href);
    await strangers.query('CREATE TABLE mine ()');
    const use = `CREATE TRIGGER mine BEFORE INSERT ON mine EXECUTE FUNCTION ${rows[0].proname}()`;
    await expect(strangers.query(use)).rejects.toMatchObject({ code: '42501' });
    await new FencedPostgres({ pool: theirs }).unguard('theirs');
    expect(await store.guards()).toEqual([]);
  });

  test('a function of another role with the name of a guard is neither used nor dropped', async () => {
    const { url, store, pool } = await openLedger();
    const other = await asNewRole(url);
    await pool.query(`GRANT CREATE ON SCHEMA public TO ${other.username}`);
    const { rows } = await pool.query("SELECT 'fenced_guard_' || 'entry'::regclass::oid AS name");
    const theirs = connect(other.href);
    await theirs.query(
      `CREATE FUNCTION ${rows[0].name}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`,
    );
    await expect(store.guard('entry', 'text')).rejects.toThrow('already exists');
    await store.unguard('entry');
    await theirs.query(`DROP FUNCTION ${rows[0].name}()`);
    await store.guard('entry', 'text');
  });
});

test('a trigger in the place of the guard is reported and replaced, which drops no function of another role', async () => {
  const { store, pool } = await openLedger();
  await pool.query('CREATE TABLE invoice (id int)');
  await store.guard('invoice', "'invoice/' || id");
  await pool.query(`DROP TRIGGER fenced_guard ON invoice;
    CREATE FUNCTION theirs() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
    CREATE TRIGGER fenced_guard AFTER INSERT ON invoice FOR EACH ROW WHEN (false) EXECUTE FUNCTION theirs()`);
  expect(await store.guards()).toMatchObject([
    { problem: expect.stringContaining('somebody else') },
  ]);
  await store.guard('invoice', "'invoice/' || id");
  expect(await store.guards()).toMatchObject([{ problem: null }]);
  await store.unguard('invoice');
  const { rows } = await pool.query(
    "SELECT proname FROM pg_proc WHERE proname ~ '^(theirs|fenced_guard_)'",
  );
  expect(rows).toEqual([{ proname: 'theirs' }]);
});

describe('an expression', () => {
  test.each([
    ['a virtual column', "'v/' || key"],
    ['the row', "to_jsonb(v) ->> 'key'"],
    ['the row as text', 'v::text'],
    ['a function of the row', 'of_row(v)'],
  ])('over %s is refused', async (_, expression) => {
    const { store, pool } = await openLedger();
    const isVirtual = (await versionOf(pool)) >= 180_000;
    await pool.query(`CREATE TABLE v (id int, key int GENERATED ALWAYS AS (id * 2)
      ${isVirtual ? 'VIRTUAL' : 'STORED'}, stored int GENERATED ALWAYS AS (id * 3) STORED)`);
    await pool.query(
      "CREATE FUNCTION of_row(v) RETURNS text LANGUAGE sql IMMUTABLE RETURN 'v/' || ($1).key",
    );
    // A trigger sees generated columns that are stored, as all are before PostgreSQL 18.
    if (isVirtual || !expression.startsWith("'v/'"))
      await expect(store.guard('v', expression)).rejects.toMatchObject({
        code: 'invalid-argument',
      });
    else await store.guard('v', expression);
    await store.guard('v', "'v/' || stored || v.id");
    await store.query({ resource: 'v/31', token: 1 }, 'INSERT INTO v VALUES (1)');
  });

  test('may use functions of the owner whose body PostgreSQL knows', async () => {
    const { store, pool } = await openLedger();
    await pool.query(`CREATE SCHEMA app; SET search_path = app, public;
      CREATE FUNCTION app.named(text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'entry/' || $1 $$`);
    await expect(store.guard('entry', 'app.named(text)')).rejects.toThrow(
      'does not know on what its body depends',
    );
    await pool.query(
      "CREATE OR REPLACE FUNCTION app.named(text) RETURNS text LANGUAGE sql IMMUTABLE RETURN 'entry/' || $1",
    );
    await store.guard('entry', 'app.named(text)');
    await store.query({ resource: 'entry/a', token: 1 }, "INSERT INTO entry (text) VALUES ('a')");
  });

  test('keeps its meaning when another search path would give its names another one', async () => {
    const { store, url, pool } = await openLedger();
    const options = '-c search_path=app,public';
    const theirs = new FencedPostgres({ pool: connect(url.href, { options }) });
    const named = (schema: string, prefix: string) =>
      pool.query(`CREATE FUNCTION ${schema}.named(text) RETURNS text LANGUAGE sql IMMUTABLE
        RETURN '${prefix}/' || $1`);
    await pool.query('CREATE SCHEMA app');
    await named('app', 'k');
    await theirs.guard('entry', 'named(text)');
    await named('public', 'other');
    await store.query({ resource: 'k/a', token: 1 }, "INSERT INTO entry (text) VALUES ('a')");
    expect((await store.guards())[0]?.expression).toBe('named(text)');
  });
});
