import { FencedPostgres } from '@fenced/store/postgres';
import { describe, expect, test } from 'vitest';
import {
  administer,
  asNewRole,
  closeAfterTest,
  connectPg,
  openLedger,
} from './harness/postgres-support.js';

const expression = "'invoice/' || id";
const AUDIT =
  'SELECT role, application, statement, reason, transactions, last_resource FROM fenced.audit';

/** A table with a guard in audit mode, and a role that may write the table. */
async function openAudited() {
  const ledger = await openLedger();
  const { url } = ledger;
  const owner = await asNewRole(url);
  await ledger.pool.query(`GRANT CREATE ON SCHEMA public TO ${owner.username};
    SELECT fenced.allow('${owner.username}')`);
  const pool = connectPg(owner.href);
  const store = new FencedPostgres({ pool });
  await pool.query(`CREATE TABLE invoice (id int PRIMARY KEY, total int DEFAULT 0);
    INSERT INTO invoice SELECT generate_series(1, 100)`);
  await store.guard('invoice', expression, { mode: 'audit' });
  const role = await asNewRole(url);
  closeAfterTest(() => administer('SELECT'));
  await pool.query(`GRANT SELECT, INSERT, UPDATE, TRUNCATE ON invoice TO ${role.username}`);
  const writer = connectPg(role.href, { max: 1, application_name: 'billing' });
  const notices: string[] = [];
  const client = await writer.connect();
  client.on('notice', ({ message }) => notices.push(message ?? ''));
  client.release();
  const seen = async () =>
    (await pool.query(`${AUDIT} ORDER BY reason COLLATE "C" DESC, statement COLLATE "C"`)).rows;
  const audited = { role: role.username, application: 'billing', transactions: '1' };
  const names = { role: role.username, owner: owner.username };
  return { admin: ledger.pool, pool, store, ...names, writer, notices, seen, audited };
}

describe('a guard in audit mode', () => {
  test('lets writes pass, warns their clients, and shows who sent what', async () => {
    const { store, admin, role, writer, notices, seen, audited } = await openAudited();
    await store.claim({ resource: 'invoice/2', token: 34 });
    const all = 'UPDATE invoice SET total = total + 1';
    expect((await writer.query(all)).rowCount).toBe(100);
    expect(notices).toEqual(['the guard of public.invoice will refuse this write: no token']);
    await writer.query(all);
    await admin.query(`SELECT fenced.allow('${role}')`);
    await store.query({ resource: 'invoice/1', token: 7 }, `${all} WHERE id = 1`);
    await writer.query('INSERT INTO invoice VALUES ($1)', [101]);
    await writer.query('TRUNCATE invoice');
    expect(await seen()).toEqual([
      {
        ...audited,
        statement: 'INSERT INTO invoice VALUES ($1)',
        reason: 'no token',
        last_resource: 'invoice/101',
      },
      {
        ...audited,
        statement: all,
        reason: 'no token',
        transactions: '2',
        last_resource: 'invoice/1',
      },
      { ...audited, statement: 'TRUNCATE invoice', reason: 'TRUNCATE', last_resource: null },
    ]);
    expect(await store.guards()).toEqual([
      { table: 'invoice', expression, mode: 'audit', problem: null },
    ]);
  });

  test('shows a token that is stale, or that its role may not present, and an expression that fails', async () => {
    const { store, admin, role, writer, seen, audited } = await openAudited();
    const forged = `BEGIN; SELECT set_config(fenced.slot('invoice/1'), extract(epoch FROM now()) || E'\\n"invoice/1" 33\\n', true);
      UPDATE invoice SET total = 1 WHERE id = 1; COMMIT`;
    await writer.query(forged);
    await admin.query(`SELECT fenced.allow('${role}')`);
    await writer.query(forged);
    await store.claim({ resource: 'invoice/1', token: 34 });
    await writer.query(forged);
    await store.guard('invoice', "'invoice/' || 1 / (id - 7)", { mode: 'audit' });
    await writer.query('UPDATE invoice SET total = 1 WHERE id = 7');
    expect((await seen()).map(({ reason }) => reason)).toEqual([
      'the role may not present tokens',
      'stale token',
      'division by zero',
    ]);
    expect(await seen()).toMatchObject([audited, audited, { ...audited, last_resource: null }]);
  });

  test('refuses after one call without the mode', async () => {
    const { store, writer } = await openAudited();
    await store.guard('invoice', expression);
    const write = writer.query('UPDATE invoice SET total = 1');
    await expect(write).rejects.toMatchObject({ code: 'UF002' });
    await expect(writer.query('TRUNCATE invoice')).rejects.toMatchObject({ code: 'UF002' });
    expect(await store.guards()).toMatchObject([{ mode: 'refuse', problem: null }]);
  });

  test('keeps records that writers can neither forge, read, delete nor prevent', async () => {
    const { admin, owner, role, writer, seen, audited } = await openAudited();
    for (const statement of [
      `INSERT INTO fenced.audit_log (owner, schema_name, table_name, role, application, statement, reason, digest)
        VALUES ('${owner}', 'public', 'invoice', 'innocent', '', '', 'no token', '')`,
      "UPDATE fenced.audit_log SET role = 'innocent'",
      'TRUNCATE fenced.audit_log',
      "INSERT INTO fenced.guarded (schema_name, table_name, expression, functions, digest) VALUES ('public', 'invoice', '', '{}', '')",
    ])
      await expect(writer.query(statement), statement).rejects.toMatchObject({ code: '42501' });
    // Notes under a role's own name are not shown to the owner of the table.
    await writer.query("SELECT fenced.note_unfenced('public', 'invoice', 'invoice/1', 'forged')");
    expect(await seen()).toEqual([]);
    const write = 'UPDATE invoice SET total = 1 WHERE id = 1';
    await writer.query(`SET row_security = off; SET search_path = pg_temp; SET client_min_messages = error;
      ${write.replace('invoice', 'public.invoice')}`);
    expect(await seen()).toMatchObject([audited]);
    expect((await writer.query('SELECT FROM fenced.audit')).rowCount).toBe(0);
    await writer.query('SET row_security = on');
    expect(
      (await writer.query(`DELETE FROM fenced.audit_log WHERE owner = '${owner}'`)).rowCount,
    ).toBe(0);
    // The session's role counts, not the role that logged in.
    await admin.query(
      `BEGIN; SET LOCAL ROLE ${role}; ${write.replace('invoice', 'public.invoice')}; COMMIT`,
    );
    expect((await seen()).map((row) => row.role)).toEqual([role, role]);
  });

  test('lets writers of one resource write at once', async () => {
    const { writer, pool } = await openAudited();
    const other = await pool.connect();
    await other.query('BEGIN; UPDATE invoice SET total = 1 WHERE id = 1');
    await writer.query("SET lock_timeout = '2s'; UPDATE invoice SET total = 1 WHERE id = 2");
    await other.query('COMMIT');
    other.release();
  });

  test.each([{ mode: 'Audit' }, { mode: null }, { modes: 'audit' }])(
    'is not made by %j',
    async (options) => {
      const { store } = await openAudited();
      const guarded = store.guard('invoice', expression, options as never);
      await expect(guarded).rejects.toMatchObject({ code: 'invalid-argument' });
    },
  );
});
