import { readFile } from 'node:fs/promises';
import { PostgresLock } from '@fenced/lock/postgres';
import type pg from 'pg';
import { expect, test } from 'vitest';
import {
  administer,
  connectPg,
  createDatabase,
  versionOf,
} from '../store/harness/postgres-support.js';

const names = Array.from({ length: 40 }, (_, at) => `job-${at}`);

const schema3 = (): Promise<string> =>
  readFile(new URL('./harness/postgres-lock-schema-3.sql', import.meta.url), 'utf8');

async function openDatabase() {
  const icu = "TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en' LOCALE 'C'";
  const url = await createDatabase(icu);
  return { url, pool: connectPg(url.href, { max: 4 }) };
}

/** As an upgrade of the operating system may do: digits are now compared as numbers. */
async function changeOrder(url: URL, pool: pg.Pool): Promise<pg.Pool> {
  const column = (await versionOf(pool)) >= 170_000 ? 'datlocale' : 'daticulocale';
  const name = url.pathname.slice(1);
  await administer(`UPDATE pg_database SET ${column} = 'en-u-kn-true' WHERE datname = '${name}'`);
  const later = connectPg(url.href, { max: 4 });
  expect((await later.query("SELECT '9' < '10' AS changed")).rows).toEqual([{ changed: true }]);
  return later;
}

const ACQUIRE = "SELECT token FROM fenced_lock.acquire(ARRAY[$1::text], 'owner', 60000)";

test('held leases stay held if the default order of names changes', async () => {
  const { url, pool } = await openDatabase();
  const lock = new PostgresLock({ pool });
  await lock.install();
  for (const name of names) await lock.acquire(name, { ttlMs: 60_000 });
  const later = new PostgresLock({ pool: await changeOrder(url, pool) });
  for (const name of names)
    expect(await later.tryAcquire(name, { ttlMs: 20_000 })).toMatchObject({ reason: 'held' });
});

test('an upgrade keeps the last lease of each name, if an index in another order had two of it', async () => {
  const { url, pool } = await openDatabase();
  await pool.query(await schema3());
  for (const name of names) await pool.query(ACQUIRE, [name]);
  const later = await changeOrder(url, pool);
  const last = new Map<string, bigint>();
  for (const name of names) {
    const granted = await later.query(ACQUIRE, [name]).catch((error) => {
      // Some searches for a row fail in one direction only.
      expect(error).toMatchObject({ code: '40001' });
    });
    const token = granted?.rows[0].token;
    if (typeof token === 'string') last.set(name, BigInt(token));
  }
  // Version 3 granted held leases again. So this test sees the fault that the upgrade mends.
  expect(last.size).toBeGreaterThan(0);
  const lock = new PostgresLock({ pool: later });
  await Promise.all([lock.install(), new PostgresLock({ pool: later }).install()]);
  const { rows } = await later.query('SELECT resource, token FROM fenced_lock.lease');
  expect(rows.map(({ resource }) => resource).toSorted()).toEqual(names.toSorted());
  for (const { resource, token } of rows)
    expect(BigInt(token)).toBe(last.get(resource) ?? BigInt(token));
  for (const name of names)
    expect(await lock.tryAcquire(name, { ttlMs: 20_000 })).toMatchObject({ reason: 'held' });
});

test('names that are equal only in the collation of a caller are different locks', async () => {
  const { pool } = await openDatabase();
  const lock = new PostgresLock({ pool });
  await lock.install();
  await pool.query(
    "CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
  );
  await using _ = await lock.acquire('A', { ttlMs: 60_000 });
  const call = (text: string) => pool.query(`SELECT * FROM fenced_lock.${text}`);
  const small = "ARRAY['a' COLLATE blind, 'á' COLLATE blind], 'owner' COLLATE blind";
  const { rows } = await call(`acquire(${small}, 60000)`);
  expect(rows).toMatchObject([{ token: expect.any(String) }]);
  const large = small.replace("'owner'", "'OWNER'");
  expect((await call(`extend(${large}, 1)`)).rows).toEqual([{ extend: false }]);
  expect((await call(`release(${large})`)).rows).toEqual([{ release: false }]);
  expect((await call(`release(${small})`)).rows).toEqual([{ release: true }]);
});
