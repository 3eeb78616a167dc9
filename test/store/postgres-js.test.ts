import { OutcomeUnknownError, StoreUnavailableError } from '@fenced/store';
import { FencedPostgres, type FencedTransaction } from '@fenced/store/postgres';
import postgres from 'postgres';
import { expect, test } from 'vitest';
import {
  closeAfterTest,
  holdCommits,
  INSERT,
  openLedger,
  rejectionOf,
  throughProxy,
  until,
  usePostgresJs,
} from './harness/postgres-support.js';

usePostgresJs();

// Guards and pruning are functions of the server, and look the same to every driver.
await import('./postgres.test.js');
await import('./postgres-again.test.js');
await import('./postgres-faults.test.js');
await import('./postgres-outcomes.test.js');
await import('./postgres-query.test.js');
await import('./postgres-records.test.js');
await import('./postgres-sessions.test.js');
await import('./postgres-turn.test.js');

const fence = { resource: 'invoice/42', token: 33 };

/** A client of the ledger's database with one connection. */
function openOne(url: URL, options: postgres.Options<Record<string, never>> = {}) {
  const sql = postgres(url.href, { max: 1, backoff: () => 0.02, ...options });
  closeAfterTest(() => sql.end({ timeout: 1 }));
  return { sql, store: new FencedPostgres({ pool: sql, holdMs: 2_000 }) };
}

test('the sql of a fenced transaction takes tagged templates and savepoints', async () => {
  const { url, entries } = await openLedger();
  const { sql, store } = openOne(url);
  const written = await store.transaction(
    fence,
    async ({ client }: FencedTransaction<postgres.TransactionSql>) => {
      await client`INSERT INTO entry ${client({ text: 'kept' })}`;
      const undone = client.savepoint(async (inner) => {
        await inner`INSERT INTO entry ${inner({ text: 'undone' })}`;
        throw new Error('mine');
      });
      await expect(undone).rejects.toThrow('mine');
      return client`SELECT text FROM entry`;
    },
  );
  expect([...written]).toEqual([{ text: 'kept' }]);
  expect(await entries()).toEqual(['kept']);
  // The store has given the only connection back.
  expect((await sql`SELECT 1 AS one`)[0]).toEqual({ one: 1 });
});

test('after a connection is lost in a transaction, its later statements do not run on another connection', async () => {
  const { url, entries, pool } = await openLedger();
  const { sql, store } = openOne(url);
  const run = store.transaction(fence, async (tx) => {
    const { rows } = await tx.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
    await pool.query('SELECT pg_terminate_backend($1)', [rows[0]?.pid]);
    // Another statement opens the connection anew, and leaves a transaction of its own open.
    await until(() =>
      sql`SELECT 1`.then(
        () => true,
        () => false,
      ),
    );
    await tx.query(INSERT, ['late']);
  });
  expect(await rejectionOf(run)).toBeInstanceOf(StoreUnavailableError);
  expect(await entries()).toEqual([]);
  await store.query(fence, INSERT, ['next']);
  expect(await entries()).toEqual(['next']);
});

test('a lost reply to COMMIT leaves the outcome unknown, and it can be settled', async () => {
  const ledger = await openLedger();
  const pass = await holdCommits(ledger, 'entry');
  const { proxy, store } = await throughProxy(ledger);
  const writeId = store.newWriteId();
  const run = rejectionOf(store.query({ ...fence, writeId }, INSERT, ['once']));
  await ledger.untilWaiting(1);
  proxy.swallow('toClient');
  await pass();
  await proxy.untilSwallowed('toClient');
  proxy.cut();
  const error = await run;
  expect(error).toBeInstanceOf(OutcomeUnknownError);
  expect(error).toMatchObject({ writeId, canSettle: true });
  proxy.heal();
  expect(await store.settle(writeId)).toBe('applied');
  expect(await ledger.entries()).toEqual(['once']);
});

test('an aborted signal cancels the statement, and the connection serves the next caller', async () => {
  const { url, entries, untilWaiting, store: other } = await openLedger();
  const { sql, store } = openOne(url);
  const controller = new AbortController();
  await other.transaction(fence, async (tx) => {
    await tx.query(INSERT, ['first']);
    const waiting = rejectionOf(
      store.query({ ...fence, token: 34, signal: controller.signal }, INSERT, ['never']),
    );
    await untilWaiting(1);
    controller.abort(new Error('enough'));
    expect(await waiting).toBe(controller.signal.reason);
  });
  expect((await sql`SELECT 1 AS one`)[0]).toEqual({ one: 1 });
  expect(await entries()).toEqual(['first']);
});

test('options that rename columns and replace null affect only the rows of the caller, not those of the store', async () => {
  const { url } = await openLedger();
  const { store } = openOne(url, {
    transform: {
      ...postgres.toPascal,
      column: postgres.toPascal,
      value: (value) => value ?? undefined,
    },
  });
  const { rows } = await store.query(fence, 'SELECT 1 AS first_column, NULL AS second_column');
  expect(rows).toEqual([{ FirstColumn: 1, SecondColumn: undefined }]);
  const bills = store.records('bills');
  expect(await bills.get('1')).toBeNull();
  await bills.put('1', { total_sum: null }, { token: 33 });
  expect(await bills.get('1')).toMatchObject({ body: { total_sum: null }, token: 33n });
  expect(await store.prune({ prefix: '', olderThanMs: 0 })).toMatchObject({ heldBackBy: null });
});

test('values of every kind arrive', async () => {
  const { url } = await openLedger();
  const { store } = openOne(url);
  const { rows } = await store.query(
    fence,
    'SELECT $1::jsonb AS j, $2::int[] AS a, $3::bytea AS b, $4::int8 AS n, $5::text AS u',
    [{ a: [1] }, [1, 2], Buffer.from([0, 255]), 2n ** 62n, undefined],
  );
  const bytes = Buffer.from([0, 255]);
  expect(rows).toEqual([{ j: { a: [1] }, a: [1, 2], b: bytes, n: String(2n ** 62n), u: null }]);
});

test('a value that cannot be encoded fails with its own error, and nothing was written', async () => {
  const { url, entries } = await openLedger();
  const { store } = openOne(url);
  const bad = store.query(fence, 'INSERT INTO entry (text) VALUES ($1::date)', [
    new Date(Number.NaN),
  ]);
  await expect(bad).rejects.toThrow(RangeError);
  expect(await store.highest('invoice/42')).toBe(0n);
  await store.query(fence, INSERT, ['next']);
  expect(await entries()).toEqual(['next']);
});

test('round trips', async () => {
  const ledger = await openLedger();
  const { proxy, store } = await throughProxy(ledger, { max: 1 });
  await store.highest('x');
  const count = async (call: () => Promise<unknown>): Promise<number> => {
    const before = proxy.roundTrips;
    await call();
    return proxy.roundTrips - before;
  };
  const bills = store.records('bills');
  expect({
    query: await count(() => store.query(fence, INSERT, ['1'])),
    claim: await count(() => store.claim(fence)),
    transaction: await count(() => store.transaction(fence, (tx) => tx.query(INSERT, ['2']))),
    put: await count(() => bills.put('1', 1, { token: 33 })),
  }).toEqual({ query: 7, claim: 5, transaction: 9, put: 5 });
});

test('a value in place of the sql of a pool is refused', async () => {
  const sql = postgres();
  const reserved = { unsafe: sql.unsafe, savepoint: () => undefined };
  for (const pool of [postgres, reserved, 'postgres://'])
    expect(() => new FencedPostgres({ pool: pool as never })).toThrow(/sql that postgres\(\) of/);
});
