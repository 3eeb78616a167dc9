import { StaleTokenError } from '@fenced/store';
import type { FencedPostgres } from '@fenced/store/postgres';
import type pg from 'pg';
import { beforeEach, describe, expect, test } from 'vitest';
import { forged } from './harness/postgres-attacks.js';
import {
  gate,
  INSERT,
  type Ledger,
  limitsTransactions,
  openLedger,
  rejectionOf,
  storeOfOne,
  testOfPg,
  throughProxy,
} from './harness/postgres-support.js';

const resource = 'invoice/42';
const fence = { resource, token: 33 };

const writes = {
  query: (store: FencedPostgres, text: string) => store.query(fence, INSERT, [text]),
  transaction: (store: FencedPostgres, text: string) =>
    store.transaction(fence, (tx) => tx.query(INSERT, [text])),
};
const writesOfEachKind = Object.entries(writes).map(([kind, write]) => ({ kind, write }));

let ledger: Ledger;
/** A second store, with a single connection. */
let store: FencedPostgres;
let one: pg.Pool;

beforeEach(async () => {
  ledger = await openLedger();
  ({ one, store } = storeOfOne(ledger.url));
});

/** A time limit of 9 s or a little less, as PostgreSQL shows it. */
const NINE_SECONDS = /^(9s|8\d\d\dms)$/;

/** The server's limit for a transaction of this token, as it shows it. */
async function limitWithin(store: FencedPostgres): Promise<string> {
  const { rows } = await store.transaction(fence, (tx) =>
    tx.query<{ transaction_timeout: string }>('SHOW transaction_timeout'),
  );
  return rows[0]?.transaction_timeout ?? '';
}

/** True if the server has a limit for whole transactions. */
const hasLimit = (): Promise<boolean> => limitsTransactions(one);

describe.each(writesOfEachKind)('$kind', ({ kind, write }) => {
  testOfPg('a token that was accepted before takes the same number of round trips', async () => {
    const far = await throughProxy(ledger, { max: 1 });
    await write(far.store, 'first');
    for (const text of ['second', 'third']) {
      const before = far.proxy.roundTrips;
      await write(far.store, text);
      expect(far.proxy.roundTrips - before).toBe(kind === 'query' ? 1 : 3);
    }
    expect(await ledger.entries()).toEqual(['first', 'second', 'third']);
  });

  test('a token below a higher one is refused with both tokens, and the connection stays usable', async () => {
    await write(store, 'in time');
    await ledger.store.claim({ resource, token: 34 });
    const late = rejectionOf(write(store, 'late'));
    expect(await late).toBeInstanceOf(StaleTokenError);
    expect(await late).toMatchObject({ resource, presented: 33n, highest: 34n });
    await store.query({ resource, token: 34 }, INSERT, ['newer']);
    expect(await ledger.entries()).toEqual(['in time', 'newer']);
  });

  test('a write waits for a higher token that is not committed yet, and then is refused', async () => {
    const newer = gate();
    await write(store, 'in time');
    const begun = gate();
    const other = ledger.store.transaction({ resource, token: 34 }, async (tx) => {
      begun.open();
      await newer.passed;
      await tx.query(INSERT, ['newer']);
    });
    await begun.passed;
    const late = rejectionOf(write(store, 'late'));
    await ledger.untilWaiting(1).finally(newer.open);
    await other;
    expect(await late).toBeInstanceOf(StaleTokenError);
    expect(await ledger.entries()).toEqual(['in time', 'newer']);
  });

  test('a write does not overtake a waiting write with a higher token', async () => {
    const first = gate();
    const begun = gate();
    await write(store, 'in time');
    const holder = ledger.store.transaction(fence, async (tx) => {
      begun.open();
      await first.passed;
      await tx.query(INSERT, ['first']);
    });
    await begun.passed;
    const newer = ledger.store.query({ resource, token: 34 }, INSERT, ['newer']);
    await ledger.untilWaiting(1).catch(first.open);
    const late = rejectionOf(write(store, 'late'));
    await ledger.untilWaiting(2).finally(first.open);
    await Promise.all([holder, newer]);
    expect(await late).toBeInstanceOf(StaleTokenError);
    expect(await ledger.entries()).toEqual(['in time', 'first', 'newer']);
  });

  test.each([
    "default_transaction_isolation = 'repeatable read'",
    'default_transaction_read_only = on',
  ])('%s has no effect if it is set between two writes', async (setting) => {
    await write(store, 'first');
    await one.query(`SET ${setting}`);
    for (const text of ['second', 'third']) await write(store, text);
    const { rows } = await store.query(
      fence,
      "SELECT current_setting('transaction_isolation') AS level",
    );
    expect(rows).toEqual([{ level: 'read committed' }]);
    expect(await ledger.entries()).toEqual(['first', 'second', 'third']);
  });

  test("the session's own limit is kept if it is stricter", async () => {
    await write(store, 'first');
    await write(store, 'second');
    if (!(await hasLimit())) return;
    await one.query("SET transaction_timeout = '9s'");
    const limits = await Promise.all([1, 2].map(() => limitWithin(store)));
    expect(limits).toEqual([
      expect.stringMatching(NINE_SECONDS),
      expect.stringMatching(NINE_SECONDS),
    ]);
    await write(store, 'third');
    expect(await ledger.entries()).toEqual(['first', 'second', 'third']);
  });

  test('a session that makes the settings of fenced.present by itself gets nothing by it', async () => {
    await write(store, 'in time');
    const begun = gate();
    const newer = gate();
    const other = ledger.store.transaction({ resource, token: 34 }, async () => {
      begun.open();
      await newer.passed;
    });
    await begun.passed;
    await one.query(forged(`ARRAY['${resource}']`, 33).replace(', true)', ', false)'));
    const late = rejectionOf(write(store, 'late'));
    await ledger.untilWaiting(1).finally(newer.open);
    await other;
    expect(await late).toBeInstanceOf(StaleTokenError);
    expect(await ledger.entries()).toEqual(['in time']);
  });
});

test("an extended lease raises the limits of its transaction again, but not above the session's own", async () => {
  const settings = (await hasLimit())
    ? ['transaction_timeout', 'tcp_user_timeout']
    : ['idle_in_transaction_session_timeout', 'statement_timeout', 'tcp_user_timeout'];
  const limitsMs = async (ownMs: number): Promise<readonly number[]> => {
    for (const setting of settings) await one.query(`SET ${setting} = ${ownMs}`);
    let remainingMs = 2_000;
    return store.transaction(
      { ...fence, lease: { remainingMs: () => remainingMs } },
      async (tx) => {
        remainingMs = 50_000;
        await tx.query('SELECT 1');
        const { rows } = await tx.query<{ name: string; setting: string }>(
          "SELECT name, setting FROM pg_settings WHERE name LIKE '%_timeout'",
        );
        return settings.map((name) => Number(rows.find((row) => row.name === name)?.setting));
      },
    );
  };
  for (const limitMs of await limitsMs(0)) expect(limitMs).toBeGreaterThan(40_000);
  for (const limitMs of await limitsMs(9_000)) expect(limitMs).toBeLessThanOrEqual(9_000);
});

test('a query that only reads takes no transaction id', async () => {
  await ledger.store.claim(fence);
  for (let i = 0; i < 3; i++) {
    const { rows } = await store.query(fence, 'SELECT pg_current_xact_id_if_assigned() AS id');
    expect(rows).toEqual([{ id: null }]);
  }
});

test('on a pipelining client the limit is sent once if the server limits whole transactions', async () => {
  const far = await throughProxy(ledger, { max: 1, pipeline: true } as pg.PoolConfig);
  const lease = { remainingMs: () => 5_000 - performance.now() + startMs };
  const startMs = performance.now();
  const trips = await far.store.transaction({ ...fence, lease }, async (tx) => {
    await tx.query('SELECT pg_sleep(0.1)');
    const before = far.proxy.roundTrips;
    await tx.query('SELECT 1');
    return far.proxy.roundTrips - before;
  });
  expect(trips).toBe((await hasLimit()) ? 1 : 2);
});

test('a paused holder of a token that was accepted before is evicted when its lease ends', async () => {
  await store.claim(fence);
  const lease = { remainingMs: () => 300 };
  const paused = gate();
  const begun = gate();
  const holder = rejectionOf(
    store.transaction({ ...fence, lease }, async (tx) => {
      begun.open();
      await paused.passed;
      await tx.query(INSERT, ['late']);
    }),
  );
  await begun.passed;
  await ledger.store.query({ resource, token: 34 }, INSERT, ['newer']).finally(paused.open);
  expect(await holder).toMatchObject({ code: 'unavailable' });
  expect(await ledger.entries()).toEqual(['newer']);
});

test('a token that was accepted before opens the guarded rows of its resource, and no others', async () => {
  await store.claim(fence);
  await ledger.pool.query(
    'CREATE TABLE invoice (id int PRIMARY KEY, total int NOT NULL DEFAULT 0)',
  );
  await ledger.store.guard('invoice', "'invoice/' || id");
  const insert = (id: number) => store.query(fence, 'INSERT INTO invoice (id) VALUES ($1)', [id]);
  await insert(42);
  await expect(insert(43)).rejects.toMatchObject({ code: 'UF002' });
  expect((await ledger.pool.query('SELECT id FROM invoice')).rows).toEqual([{ id: 42 }]);
});
