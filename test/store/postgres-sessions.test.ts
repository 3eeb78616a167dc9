import { FencedPostgres } from '@fenced/store/postgres';
import { startPgBouncer } from '@fenced/testbed';
import { expect, test } from 'vitest';
import {
  connect,
  INSERT,
  openLedger,
  storeOfOne,
  testOfPg,
  throughProxy,
} from './harness/postgres-support.js';

const resource = 'invoice/42';
const fence = { resource, token: 33 };

async function openOne() {
  const ledger = await openLedger();
  return { ...ledger, ...storeOfOne(ledger.url) };
}

testOfPg('a stale token costs no round trip later', async () => {
  const ledger = await openLedger();
  const { proxy, store } = await throughProxy(ledger, { max: 1 });
  await ledger.store.claim({ resource, token: 34 });
  const stale = store.query(fence, INSERT, ['33']);
  await expect(stale).rejects.toMatchObject({ code: 'stale-token' });
  const before = proxy.roundTrips;
  await store.query({ resource, token: 34 }, INSERT, ['34']);
  expect(proxy.roundTrips - before).toBe(1);
  expect(await ledger.entries()).toEqual(['34']);
});

test.each(['DISCARD ALL', 'DEALLOCATE ALL'])(
  'a session that was reset by %s writes as before, each write once',
  async (reset) => {
    const { store, one, entries } = await openOne();
    const records = store.records('bills');
    for (let i = 0; i < 4; i++) {
      await one.query(reset);
      await store.query(fence, INSERT, [`query ${i}`]);
      await one.query(reset);
      await store.transaction(fence, (tx) => tx.query(INSERT, [`transaction ${i}`]));
      await one.query(reset);
      await records.put('1', i, fence);
    }
    const written = [0, 1, 2, 3].flatMap((i) => [`query ${i}`, `transaction ${i}`]);
    expect(await entries()).toEqual(written);
    expect(await records.get('1')).toMatchObject({
      body: 3,
      version: expect.stringMatching(/^4-/),
    });
  },
);

test('the library leaves no prepared statement in a session', async () => {
  const { store, one } = await openOne();
  for (let i = 0; i < 4; i++) {
    await store.query(fence, INSERT, [`${i}`]);
    await store.transaction(fence, (tx) => tx.query(INSERT, [`${i}`]));
    await store.records('bills').put('1', i, fence);
  }
  expect((await one.query('SELECT FROM pg_prepared_statements')).rowCount).toBe(0);
});

test('after an ALTER TABLE, the same statement returns the new columns', async () => {
  const { store, one } = await openOne();
  const insert = `${INSERT} RETURNING *`;
  for (let i = 0; i < 4; i++) await store.query(fence, insert, [`${i}`]);
  await one.query("ALTER TABLE entry ADD COLUMN note text DEFAULT 'new'");
  for (const id of [5, 6]) {
    const { rows } = await store.query(fence, insert, ['later']);
    expect(rows).toEqual([{ id, text: 'later', note: 'new' }]);
  }
  await one.query('ALTER TABLE entry DROP COLUMN note');
  await store.transaction(fence, async (tx) => {
    const { rows } = await tx.query(insert, ['last']);
    expect(rows).toEqual([{ id: expect.any(Number), text: 'last' }]);
  });
});

test('after a change of the search path, the same statement writes to the other table', async () => {
  const { store, one } = await openOne();
  for (let i = 0; i < 4; i++) await store.query(fence, INSERT, [`${i}`]);
  await one.query('CREATE SCHEMA other; CREATE TABLE other.entry (text text)');
  await one.query('SET search_path = other, public');
  await store.query(fence, INSERT, ['there']);
  expect((await one.query('SELECT text FROM other.entry')).rows).toEqual([{ text: 'there' }]);
});

test('behind PgBouncer, where clients share server connections, each client runs its own statements', async () => {
  const { url, pool } = await openLedger();
  await using bouncer = await startPgBouncer(url.href);
  const far = new URL(bouncer.url);
  far.pathname = url.pathname;
  const write = async (name: string): Promise<void> => {
    const store = new FencedPostgres({ pool: connect(far.href, { max: 2 }) });
    for (let i = 0; i < 10; i++) {
      await Promise.all([
        store.query(fence, `INSERT INTO entry (text) VALUES ('${name} ' || $1)`, [`${i}`]),
        store.records('bills').put(name, i, fence),
        store.transaction(fence, (tx) =>
          tx.query(`INSERT INTO entry (text) VALUES ('${name} again ' || $1)`, [`${i}`]),
        ),
      ]);
    }
  };
  const names = ['a', 'b', 'c', 'd'];
  await Promise.all(names.map(write));
  const { rows } = await pool.query('SELECT text FROM entry ORDER BY text');
  const texts = names.flatMap((name) =>
    Array.from({ length: 20 }, (_, i) => `${name} ${i < 10 ? '' : 'again '}${i % 10}`),
  );
  expect(rows.map((row) => row.text)).toEqual(texts);
});
