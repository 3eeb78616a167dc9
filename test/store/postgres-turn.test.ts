import { StaleTokenError } from '@fenced/store';
import type { FencedPostgres, IsolationLevel } from '@fenced/store/postgres';
import type pg from 'pg';
import { expect, test } from 'vitest';
import {
  connectPg,
  INSERT,
  type Ledger,
  openLedger,
  rejectionOf,
} from './harness/postgres-support.js';

const resource = 'invoice/42';
const LEVELS: readonly IsolationLevel[] = ['read committed', 'repeatable read', 'serializable'];

/** Number of an advisory lock that only this file uses. */
const GATE = 7;

/**
 * Makes sessions that present the highest token wait between their read of the ratchet and its
 * lock.
 */
async function closeGate({ pool, url }: Ledger, isolation: IsolationLevel): Promise<pg.Pool> {
  await pool.query(`
    CREATE FUNCTION at_gate() RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
      IF current_setting('transaction_isolation') = '${isolation}' THEN
        PERFORM pg_advisory_lock_shared(${GATE}), pg_advisory_unlock_shared(${GATE});
      END IF;
    END $$;
    CREATE FUNCTION gated_lock(key bigint) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN PERFORM public.at_gate(), pg_advisory_xact_lock_shared(key); END $$`);
  const { rows } = await pool.query<{ text: string }>(
    "SELECT pg_get_functiondef('fenced.advance(text, bigint)'::regprocedure) AS text",
  );
  const [{ text } = { text: '' }] = rows;
  expect(text).toContain('pg_advisory_xact_lock_shared(');
  await pool.query(text.replace('pg_advisory_xact_lock_shared(', 'public.gated_lock('));
  const keeper = connectPg(url.href, { max: 1 });
  await keeper.query(`SELECT pg_advisory_lock(${GATE})`);
  return keeper;
}

const writers = {
  query: (store: FencedPostgres, isolation: IsolationLevel) =>
    store.query({ resource, token: 33, isolation }, INSERT, ['33']),
  transaction: (store: FencedPostgres, isolation: IsolationLevel) =>
    store.transaction({ resource, token: 33, isolation }, (tx) => tx.query(INSERT, ['33'])),
};

test.each(
  LEVELS.flatMap((isolation) =>
    Object.entries(writers).map(([name, write]) => ({ isolation, name, write })),
  ),
)(
  'a newer holder commits between the read of the ratchet and its lock, and a $name under $isolation is refused',
  async ({ isolation, write }) => {
    const ledger = await openLedger();
    const { store, pool, entries, untilWaiting } = ledger;
    await pool.query(`SELECT fenced.advance('${resource}', 33)`);
    const gate = await closeGate(ledger, isolation);
    const late = rejectionOf(write(store, isolation));
    await untilWaiting(1);
    await pool.query(
      `SELECT fenced.present('${resource}', 34); INSERT INTO entry (text) VALUES ('34')`,
    );
    await gate.query(`SELECT pg_advisory_unlock(${GATE})`);
    expect(await late).toBeInstanceOf(StaleTokenError);
    expect(await entries()).toEqual(['34']);
  },
);

test('each of several resources is checked, even if the first has the token already', async () => {
  const { store, entries } = await openLedger();
  await store.claim({ resource: 'a', token: 33 });
  await store.claim({ resource: 'b', token: 34 });
  const late = store.query({ resource: ['a', 'b'], token: 33 }, INSERT, ['late']);
  await expect(late).rejects.toMatchObject({ resource: 'b', presented: 33n, highest: 34n });
  await store.query({ resource: ['a', 'c'], token: 33 }, INSERT, ['in time']);
  expect(await store.highest('c')).toBe(33n);
  expect(await entries()).toEqual(['in time']);
});
