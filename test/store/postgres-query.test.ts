import { InvalidArgumentError, OutcomeUnknownError } from '@fenced/store';
import { FencedPostgres } from '@fenced/store/postgres';
import pg from 'pg';
import { expect, test } from 'vitest';
import {
  connect,
  INSERT,
  openLedger,
  rejectionOf,
  testOfPg,
  throughProxy,
} from './harness/postgres-support.js';

const resource = 'invoice/42';
const fence = { resource, token: 33 };

test.each([
  ['a procedure', 'CALL twice()'],
  ['a block', "DO $$ BEGIN INSERT INTO entry (text) VALUES ('1'); COMMIT; END $$"],
])('%s that commits by itself cannot release the ratchet', async (_, statement) => {
  const { store, pool, entries } = await openLedger();
  await pool.query(`CREATE PROCEDURE twice() LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO entry (text) VALUES ('1'); COMMIT; INSERT INTO entry (text) VALUES ('2'); END $$`);
  await expect(store.query(fence, statement)).rejects.toMatchObject({ code: '2D000' });
  expect(await entries()).toEqual([]);
  expect(await store.highest(resource)).toBe(0n);
});

testOfPg.each(['default_transaction_isolation=serializable', 'default_transaction_read_only=on'])(
  'a session with %s has no effect on the level or the round trips of a query',
  async (setting) => {
    const ledger = await openLedger();
    const { proxy, store } = await throughProxy(ledger, { max: 1, options: `-c ${setting}` });
    const show = "SELECT current_setting('transaction_isolation') AS level";
    expect((await store.query(fence, show)).rows).toEqual([{ level: 'read committed' }]);
    const before = proxy.roundTrips;
    await store.query(fence, INSERT, ['written']);
    expect(proxy.roundTrips - before).toBe(1);
    expect(await ledger.entries()).toEqual(['written']);
  },
);

test('two statements in one text are refused by the server, and nothing was written', async () => {
  const { store, entries } = await openLedger();
  const both = "INSERT INTO entry (text) VALUES ('1'); INSERT INTO entry (text) VALUES ('2')";
  await expect(store.query(fence, both)).rejects.toMatchObject({ code: '42601' });
  expect(await entries()).toEqual([]);
});

test('COPY is refused before it is sent, because its data would take the place of COMMIT', async () => {
  const { url, entries } = await openLedger();
  const store = new FencedPostgres({ pool: connect(url.href, { max: 1 }) });
  for (const copy of ['COPY entry FROM STDIN', ' /* all */ copy entry TO STDOUT'])
    await expect(store.query(fence, copy)).rejects.toBeInstanceOf(InvalidArgumentError);
  await store.query(fence, INSERT, ['next']);
  expect(await entries()).toEqual(['next']);
});

testOfPg(
  'a value that cannot be encoded fails with its own error, and nothing was sent',
  async () => {
    const { store, entries } = await openLedger();
    const mine = new RangeError('mine');
    const value = {
      toPostgres: () => {
        throw mine;
      },
    };
    expect(await rejectionOf(store.query(fence, INSERT, [value]))).toBe(mine);
    expect(await entries()).toEqual([]);
    expect(await store.highest(resource)).toBe(0n);
  },
);

testOfPg('rows that cannot be read leave the outcome unknown, and it can be settled', async () => {
  const { url, entries, store: judge } = await openLedger();
  const types = {
    getTypeParser: () => () => {
      throw new Error('unreadable');
    },
  };
  const pool = connect(url.href, { types: types as unknown as pg.CustomTypesConfig });
  const store = new FencedPostgres({ pool });
  const writeId = store.newWriteId();
  const run = rejectionOf(store.query({ ...fence, writeId }, `${INSERT} RETURNING id`, ['1']));
  expect(await run).toBeInstanceOf(OutcomeUnknownError);
  expect(await judge.settle(writeId)).toBe('applied');
  expect(await entries()).toEqual(['1']);
});

testOfPg('values of every kind arrive, and none is SQL', async () => {
  const { store, entries } = await openLedger();
  for (const text of ["'; DROP TABLE entry; --", '$1', '\\', 'é\u{1f512}', ''])
    await store.query(fence, INSERT, [text]);
  expect((await entries()).slice(0, 2)).toEqual(["'; DROP TABLE entry; --", '$1']);
  const { rows } = await store.query(
    fence,
    'SELECT $1::jsonb AS j, $2::int[] AS a, $3::bytea AS b',
    [{ a: [1] }, [1, 2], Buffer.from([0, 255])],
  );
  expect(rows).toEqual([{ j: { a: [1] }, a: [1, 2], b: Buffer.from([0, 255]) }]);
});

test('a pipelining client is sent one statement after the other', async () => {
  const ledger = await openLedger();
  const client = new pg.Client({ connectionString: ledger.url.href, pipeline: true });
  client.on('error', () => undefined);
  await client.connect();
  const store = new FencedPostgres({ pool: client });
  await store.query(fence, INSERT, ['1']);
  await store.claim({ resource, token: 34 });
  const late = store.query(fence, INSERT, ['2']);
  await expect(late).rejects.toMatchObject({ code: 'stale-token' });
  expect(await ledger.entries()).toEqual(['1']);
  // Sent as one simple query, the statements after the COMMIT would run without the fence.
  const several = `INSERT INTO entry (text) VALUES ('2'); COMMIT; INSERT INTO entry (text) VALUES ('3')`;
  const refused = store.query({ resource, token: 35 }, several);
  await expect(refused).rejects.toMatchObject({ code: '42601' });
  expect(await ledger.entries()).toEqual(['1']);
  await client.end();
});

testOfPg(
  'a token that was accepted before writes nothing to the log under READ COMMITTED',
  async () => {
    const { pool, store } = await openLedger();
    await store.claim(fence);
    const client = await pool.connect();
    const logged = async (isolation: string) => {
      const lsn = async () =>
        (await client.query('SELECT pg_current_wal_insert_lsn() AS lsn')).rows[0].lsn;
      const before = await lsn();
      await client.query(`BEGIN ISOLATION LEVEL ${isolation}`);
      await client.query('SELECT fenced.present($1, 33::bigint)', [resource]);
      await client.query('COMMIT');
      const { rows } = await client.query('SELECT ($1::pg_lsn - $2::pg_lsn)::int AS bytes', [
        await lsn(),
        before,
      ]);
      return rows[0].bytes;
    };
    try {
      // The server itself writes to the log now and then, so the least of some tries counts.
      const least = async (isolation: string) => {
        const tries = [];
        for (let i = 0; i < 5; i++) tries.push(await logged(isolation));
        return Math.min(...tries);
      };
      expect(await least('READ COMMITTED')).toBe(0);
      // At this level, the store locks the row, which writes to the log.
      expect(await least('REPEATABLE READ')).toBeGreaterThan(0);
    } finally {
      client.release();
    }
  },
);

test('resources in another order cannot deadlock with other programs', async () => {
  const { store, pool } = await openLedger();
  // JavaScript would sort these names in another order than PostgreSQL, which compares bytes.
  const names = ['\u{1f512}', '\uffee', 'a'];
  for (let round = 1; round <= 20; round++) {
    await Promise.all([
      store.claim({ resource: names, token: round * 2, attemptsMax: 1 }).catch(ignoreStale),
      pool
        .query('SELECT fenced.present($1::text[], $2::bigint)', [names.toReversed(), round * 2 + 1])
        .catch(ignoreStale),
    ]);
  }
});

function ignoreStale(error: { code: string }): void {
  if (error.code !== 'stale-token' && error.code !== 'UF001') throw error;
}

test('a writeId that newWriteId did not make is refused before anything is sent', async () => {
  const store = new FencedPostgres({ pool: connect('postgres://127.0.0.1:1/absent') });
  for (const writeId of ['', 'x', 5, null, '0190a6b0-0000-4000-8000-000000000000']) {
    const run = store.query({ ...fence, writeId: writeId as string }, 'SELECT 1');
    await expect(run).rejects.toBeInstanceOf(InvalidArgumentError);
  }
});
