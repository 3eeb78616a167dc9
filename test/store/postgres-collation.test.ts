import { readFile } from 'node:fs/promises';
import { FencedPostgres } from '@fenced/store/postgres';
import { type LocalPostgres, startLocalPostgres } from '@fenced/testbed';
import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connect, until } from './harness/postgres-support.js';

/** Version 18, because databases of version 14 have no ICU. */
let server: LocalPostgres;
beforeAll(async () => {
  server = await startLocalPostgres();
}, 60_000);
afterAll(() => server.stop());

let databases = 0;

async function versionOf(pool: pg.Pool): Promise<number> {
  return (await pool.query('SELECT fenced.version() AS version')).rows[0]?.version;
}

/** A new database whose default order of texts is that of English. */
async function openEnglish() {
  const name = `english_${databases++}`;
  await connect(server.url).query(
    `CREATE DATABASE ${name} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'`,
  );
  const url = new URL(server.url);
  url.pathname = `/${name}`;
  const open = () => {
    const pool = connect(url.href);
    return { pool, store: new FencedPostgres({ pool }) };
  };
  return {
    ...open(),
    /** Changes the order of texts, as an upgrade of ICU or of the C library may do. */
    changeOrder: async () => {
      await connect(server.url).query(
        `UPDATE pg_database SET datlocale = 'en-US-u-ka-shifted-kf-upper' WHERE datname = '${name}'`,
      );
      // Sessions that are open keep the earlier order.
      return open();
    },
  };
}

/** Names whose order depends on the locale. */
const NAMES = ['a b', 'ab', 'a-b', 'A b', 'AB', 'a_b'].flatMap((name) =>
  Array.from({ length: 100 }, (_, i) => `${name}${i}`),
);
const PRESENT = 'SELECT fenced.present(name, $2) FROM unnest($1::text[]) AS name';

describe('names in a nondeterministic collation of the caller', () => {
  async function openLoose() {
    const english = await openEnglish();
    await english.store.install();
    await english.pool.query(`
      CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false);
      CREATE TABLE invoice (id text COLLATE loose);
      INSERT INTO invoice VALUES ('invoice/a')`);
    return english;
  }

  test('a token presented for such a column waits for an earlier holder', async () => {
    const { pool, store } = await openLoose();
    let later: Promise<unknown> = Promise.resolve();
    await store.transaction({ resource: 'invoice/a', token: 33 }, async (tx) => {
      await tx.query('SELECT 1');
      later = pool.query('SELECT fenced.present(id, 34) FROM invoice');
      await until(async () => {
        const { rowCount } = await pool.query(
          `SELECT FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'`,
        );
        return rowCount === 1;
      });
    });
    await later;
    expect(await store.highest('invoice/a')).toBe(34n);
  });

  test('every function takes names byte by byte', async () => {
    const { pool, store } = await openLoose();
    const records = store.records('Invoice/A');
    await store.claim({ resource: 'Invoice/A', token: 30 });
    await records.put('Invoice/A', 1, { token: 30 });
    for (const [call, expected] of [
      ['fenced.highest(id)', '0'],
      ['fenced.present(id, 34)', ''],
      ['fenced.present(ARRAY[id, upper(id)], 35)', ''],
      ['fenced.highest(id)', '35'],
      [`(fenced.put_record(id, id, '1', 34, gen_random_uuid(), 'none')) LIKE '1-%'`, 'true'],
      ['(fenced.get_record(id, id)).token', '34'],
      ['(fenced.claim_record(id, id, 35)).token', '35'],
      [`fenced.reset(id, 31, 'why')`, ''],
      ['fenced.raise_floor(id, interval $$0$$)', '(31,)'],
      ['(fenced.prune(id, interval $$0$$)).pruned', '1'],
      ['fenced.highest(id)', '31'],
    ] as const) {
      const { rows } = await pool.query({
        text: `SELECT (${call})::text FROM invoice`,
        rowMode: 'array',
      });
      expect(rows, call).toEqual([[expected]]);
    }
    expect(await store.highest('Invoice/A')).toBe(30n);
    expect(await store.highest('INVOICE/A')).toBe(35n);
    expect(await records.get('Invoice/A')).toMatchObject({ token: 30n });
  });
});

describe('after an upgrade that changes the order of texts', () => {
  test('every ratchet and record is found', async () => {
    const { pool, store, changeOrder } = await openEnglish();
    await store.install();
    await pool.query(PRESENT, [NAMES, 34]);
    for (const name of NAMES.slice(0, 200)) await store.records(name).put(name, 1, { token: 34 });
    const after = await changeOrder();
    const lost: string[] = [];
    for (const name of NAMES) if ((await after.store.highest(name)) !== 34n) lost.push(name);
    for (const name of NAMES.slice(0, 200))
      if ((await after.store.records(name).get(name)) === null) lost.push(name);
    expect(lost).toEqual([]);
  });

  test('install repairs the index of version 5, and the higher token of a name counts', async () => {
    const { pool, changeOrder } = await openEnglish();
    const file = new URL('./harness/postgres-schema-5.sql', import.meta.url);
    await pool.query(await readFile(file, 'utf8'));
    await pool.query(PRESENT, [NAMES, 34]);
    const put = `SELECT fenced.put_record('bills', name, '"a"', 34, gen_random_uuid())
      FROM unnest($1::text[]) AS name`;
    await pool.query(put, [NAMES]);
    const after = await changeOrder();
    const stale = NAMES.map((resource) => after.store.claim({ resource, token: 33 }));
    const outcomes = await Promise.allSettled(stale);
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).not.toEqual([]);
    await after.pool.query(put.replace('"a"', '"b"'), [NAMES]);
    // Of two documents, only their owner can say which is right.
    const install = after.store.install();
    await expect(install).rejects.toMatchObject({
      code: 'store-setup',
      message: expect.stringMatching(/the record bills\/\S+ is stored twice.*Look at both/),
    });
    expect(await versionOf(after.pool)).toBe(5);
    await after.pool.query(`DELETE FROM fenced.record WHERE body = '"a"' AND id COLLATE "C" IN (
      SELECT min(id) FROM fenced.record GROUP BY id COLLATE "C" HAVING count(*) > 1)`);
    await after.store.install();
    for (const name of NAMES) expect(await after.store.highest(name)).toBe(34n);
    const { rows } = await after.pool.query('SELECT count(*)::int AS count FROM fenced.ratchet');
    expect(rows).toEqual([{ count: NAMES.length }]);
  });
});
