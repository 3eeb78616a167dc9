import { describe, expect, test } from 'vitest';
import {
  administer,
  asNewRole,
  closeAfterTest,
  connect,
  openLedger,
} from './harness/postgres-support.js';

const expression = "'invoice/' || id";

async function openInvoice() {
  const ledger = await openLedger();
  await ledger.pool.query('CREATE TABLE invoice (id int PRIMARY KEY, total int DEFAULT 0)');
  await ledger.store.guard('invoice', expression);
  return ledger;
}

/** Puts a copy in the place of the table, as tools for changes without downtime do. */
const SWAP = `CREATE TABLE copied (LIKE invoice INCLUDING ALL);
  INSERT INTO copied TABLE invoice;
  DROP TABLE invoice;
  ALTER TABLE copied RENAME TO invoice`;

const ENFORCE = `CREATE EVENT TRIGGER fenced_guards ON ddl_command_end
  EXECUTE FUNCTION fenced.refuse_unguarded()`;

describe('guards() report a table that should be guarded', () => {
  test.each([
    ['a copy took its place', SWAP, 'its trigger is gone'],
    [
      'another table took its place',
      'ALTER TABLE invoice RENAME TO old; CREATE TABLE invoice (id int)',
      'its trigger is gone',
    ],
    ['it was dropped', 'DROP TABLE invoice', 'there is no such table'],
    ['it was renamed', 'ALTER TABLE invoice RENAME TO bill', 'there is no such table'],
    [
      'it is in another schema',
      'CREATE SCHEMA app; ALTER TABLE invoice SET SCHEMA app',
      'there is no such table',
    ],
  ])('when %s', async (_, change, problem) => {
    const { store, pool } = await openInvoice();
    await pool.query(change);
    const guards = await store.guards();
    expect(guards.find(({ table }) => /^(public\.)?invoice$/.test(table))).toMatchObject({
      expression,
      problem: expect.stringContaining(problem),
    });
  });

  test('until it is guarded again, or its owner takes the record back', async () => {
    const { url, store, pool } = await openInvoice();
    await pool.query(SWAP);
    await store.guard('invoice', expression);
    expect(await store.guards()).toMatchObject([{ table: 'invoice', expression, problem: null }]);
    const write = pool.query('INSERT INTO invoice VALUES (1)');
    await expect(write).rejects.toMatchObject({ code: 'UF002' });
    await pool.query('DROP TABLE invoice');
    const other = connect((await asNewRole(url)).href);
    closeAfterTest(() => administer('SELECT'));
    const forget = "DELETE FROM fenced.guarded WHERE table_name = 'invoice'";
    expect((await other.query(forget)).rowCount).toBe(0);
    const record = `INSERT INTO fenced.guarded (schema_name, table_name, expression, functions, digest)
      VALUES ('public', 'entry', '1', '{}', '')`;
    await expect(other.query(record)).rejects.toMatchObject({ code: '42501' });
    await expect(other.query('UPDATE fenced.guarded SET digest = NULL')).rejects.toMatchObject({
      code: '42501',
    });
    expect((await pool.query(forget)).rowCount).toBe(1);
    expect(await store.guards()).toEqual([]);
  });
});

test('guards() tell which part of a guard holds after DISABLE and ENABLE TRIGGER ALL', async () => {
  const { store, pool } = await openInvoice();
  const problem = async () => (await store.guards())[0]?.problem;
  await pool.query('ALTER TABLE invoice DISABLE TRIGGER ALL');
  expect(await problem()).toBe(
    'rows are not guarded in public.invoice; TRUNCATE is not refused of public.invoice',
  );
  await pool.query('ALTER TABLE invoice ENABLE TRIGGER ALL');
  expect(await problem()).toBe(
    'rows are not guarded under session_replication_role = replica in public.invoice; TRUNCATE is not refused under session_replication_role = replica of public.invoice',
  );
  // The report is true: the guard holds for sessions like this one, and not for a replica.
  const write = 'INSERT INTO invoice VALUES (1)';
  await expect(pool.query(write)).rejects.toMatchObject({ code: 'UF002' });
  await pool.query(
    `SET session_replication_role = replica; ${write}; RESET session_replication_role`,
  );
  await pool.query('ALTER TABLE invoice ENABLE REPLICA TRIGGER fenced_guard');
  expect(await problem()).toContain(
    'rows are guarded only under session_replication_role = replica',
  );
  await store.guard('invoice', expression);
  expect(await problem()).toBeNull();
});

test('an event trigger refuses commands that leave a table without its guard, and no others', async () => {
  const { store, pool } = await openInvoice();
  await pool.query(ENFORCE);
  for (const command of [
    'DROP TRIGGER fenced_guard ON invoice',
    'ALTER TABLE invoice DISABLE TRIGGER ALL',
    'ALTER TABLE invoice DISABLE TRIGGER fenced_guard',
    'ALTER TABLE invoice ENABLE TRIGGER fenced_guard',
    "DO $$ BEGIN EXECUTE format('DROP FUNCTION public.fenced_guard_%s() CASCADE', 'invoice'::regclass::oid); END $$",
    SWAP,
    'ALTER TABLE invoice RENAME TO old; CREATE TABLE invoice (id int)',
    'ALTER TABLE invoice RENAME TO old; CREATE TABLE invoice AS TABLE old',
    'ALTER TABLE invoice RENAME TO old; SELECT * INTO invoice FROM old',
    'CREATE SCHEMA app; CREATE TABLE app.invoice (); ALTER TABLE invoice RENAME TO old; ALTER TABLE app.invoice SET SCHEMA public',
  ])
    await expect(pool.query(command), command).rejects.toMatchObject({ code: 'UF006' });
  expect(await store.guards()).toMatchObject([{ table: 'invoice', expression, problem: null }]);
  // The copy gets its guard before it gets the name.
  await pool.query(`CREATE TABLE copied (LIKE invoice INCLUDING ALL);
    SELECT fenced.guard('copied', $$${expression}$$);
    DROP TABLE invoice; ALTER TABLE copied RENAME TO invoice`);
  await store.guard('invoice', "'bill/' || id");
  await store.unguard('invoice');
  await pool.query('DROP TABLE invoice; CREATE TABLE invoice (id int)');
});

test('a partition that is attached gets the guard, and not the one against TRUNCATE', async () => {
  const { store, pool } = await openLedger();
  await pool.query(`CREATE TABLE part (id int) PARTITION BY RANGE (id);
    CREATE TABLE more (id int)`);
  await store.guard('part', "'part/' || id");
  await pool.query('ALTER TABLE part ATTACH PARTITION more FOR VALUES FROM (0) TO (10)');
  const write = pool.query('INSERT INTO more VALUES (1)');
  await expect(write).rejects.toMatchObject({ code: 'UF002' });
  expect(await store.guards()).toMatchObject([
    { problem: 'TRUNCATE is not refused of public.more' },
  ]);
  await pool.query('ALTER TABLE part DETACH PARTITION more');
  await pool.query('INSERT INTO more VALUES (1)');
});
