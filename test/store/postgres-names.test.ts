import { FencedPostgres, type FencedTransaction } from '@fenced/store/postgres';
import { startPgBouncer } from '@fenced/testbed';
import pg from 'pg';
import { expect, test } from 'vitest';
import {
  closeAfterTest,
  connect,
  INSERT,
  type Ledger,
  openLedger,
  storeOfOne,
  throughProxy,
} from './harness/postgres-support.js';

const resource = 'invoice/42';
const fence = { resource, token: 33 };

/** As often as it takes until the server keeps a statement, and once more. */
const OFTEN = 4;

/** The statement that presents a token. */
const presenting = [expect.stringContaining('fenced.enter')];

async function openOne(): Promise<Ledger & { readonly one: pg.Pool }> {
  const ledger = await openLedger();
  return { ...ledger, ...storeOfOne(ledger.url) };
}

async function kept(pool: pg.Pool): Promise<string[]> {
  const { rows } = await pool.query<{ statement: string }>(
    'SELECT statement FROM pg_prepared_statements ORDER BY prepare_time',
  );
  return rows.map((row) => row.statement);
}

test('the server keeps what is sent again and again, and a bounded number of statements', async () => {
  const { store, one } = await openOne();
  for (let i = 0; i < OFTEN; i++) {
    await store.query(fence, INSERT, [`${i}`]);
    await store.query(fence, `INSERT INTO entry (text) VALUES ('never again ${i}')`);
  }
  expect(await kept(one)).toEqual([...presenting, INSERT]);
  for (let i = 0; i < 150; i++)
    for (let use = 0; use < OFTEN; use++) await store.query(fence, `SELECT ${i} AS i`);
  expect((await kept(one)).length).toBeLessThanOrEqual(100 + presenting.length);
  expect((await store.query(fence, 'SELECT 149 AS i')).rows).toEqual([{ i: 149 }]);
});

test('one name is one text, on whichever connection: PgBouncer passes servers on', async () => {
  const { url } = await openOne();
  const namesAfter = async (texts: readonly string[]) => {
    const { one, store } = storeOfOne(url);
    for (const text of texts) for (let use = 0; use < OFTEN; use++) await store.query(fence, text);
    const { rows } = await one.query(
      'SELECT name, statement FROM pg_prepared_statements ORDER BY statement',
    );
    return rows;
  };
  const there = await namesAfter(['SELECT 1 AS n', 'SELECT 2 AS n']);
  expect(there).toHaveLength(2 + presenting.length);
  expect(await namesAfter(['SELECT 2 AS n', 'SELECT 1 AS n'])).toEqual(there);
});

test('a stale token, the first time of all, costs no name and no round trip later', async () => {
  const ledger = await openLedger();
  const { proxy, pool, store } = await throughProxy(ledger, { max: 1 });
  await ledger.store.claim({ resource, token: 34 });
  const stale = store.query(fence, INSERT, ['33']);
  await expect(stale).rejects.toMatchObject({ code: 'stale-token' });
  const before = proxy.roundTrips;
  await store.query({ resource, token: 34 }, INSERT, ['34']);
  expect(proxy.roundTrips - before).toBe(1);
  expect(await kept(pool)).toEqual([expect.stringContaining('fenced.enter')]);
  expect(await ledger.entries()).toEqual(['34']);
});

test.each([
  ['DISCARD ALL', 'query'],
  ['DEALLOCATE ALL', 'query'],
  ['DEALLOCATE ALL', 'transaction'],
  ['DEALLOCATE ALL', 'put'],
] as const)(
  'after %s everything is written, and once, by %s to begin with',
  async (forget, first) => {
    const { store, one, entries } = await openOne();
    const records = store.records('bills');
    const calls = {
      query: (i: number) => store.query(fence, INSERT, [`query ${i}`]),
      transaction: (i: number) =>
        store.transaction(fence, (tx) => tx.query(INSERT, [`transaction ${i}`])),
      put: (i: number) => records.put('1', i, fence),
    };
    for (let i = 0; i < 2 * OFTEN; i++) {
      if (i >= OFTEN) await one.query(forget);
      await calls[first](i);
      for (const call of Object.values(calls)) await call(i);
    }
    const written = await entries();
    for (const name of ['query', 'transaction'] as const) {
      const times = first === name ? 2 : 1;
      for (let i = 0; i < 2 * OFTEN; i++)
        expect(written.filter((text) => text === `${name} ${i}`)).toHaveLength(times);
    }
    const version = BigInt(first === 'put' ? 4 * OFTEN : 2 * OFTEN);
    expect(await records.get('1')).toMatchObject({ body: 2 * OFTEN - 1, version });
  },
);

test('the server keeps the statements of a transaction, too, but for those of a client that was lent', async () => {
  const { store, one } = await openOne();
  for (let i = 0; i < OFTEN; i++) {
    await store.transaction(fence, async (tx) => {
      await tx.query(INSERT, [`${i}`]);
      if (i === 0) await tx.query('SELECT 1; SELECT 2');
    });
    await store.transaction(fence, async (tx: FencedTransaction<pg.PoolClient>) => {
      await tx.client.query('SAVEPOINT lent');
      await tx.query('SELECT $1 AS lent', [i]);
    });
  }
  const statements = await kept(one);
  expect(statements).toHaveLength(4 + presenting.length);
  for (const text of ['', 'BEGIN ISOLATION LEVEL read committed READ WRITE', 'COMMIT', INSERT])
    expect(statements).toContain(text);
  for (const text of presenting) expect(statements).toContainEqual(text);
});

/** What a caller may make of a failure within its transaction. */
const reactions = {
  'passes on': async (write: () => Promise<unknown>) => void (await write()),
  'answers with one of its own': async (write: () => Promise<unknown>) => {
    await write().catch(() => {
      throw new Error('it did not work');
    });
  },
  'goes back behind': async (write: () => Promise<unknown>, tx: FencedTransaction) => {
    await tx.query('SAVEPOINT before');
    await write().catch(() => tx.query('ROLLBACK TO before'));
  },
};

test.each(Object.entries(reactions))(
  'a name that is lost within a transaction, whose failure the caller %s: run again, and written once',
  async (_, react) => {
    const { store, entries } = await openOne();
    let runs = 0;
    const write = (i: number, forget?: string) =>
      store.transaction(fence, async (tx) => {
        runs += 1;
        if (forget) await tx.query(forget);
        await react(() => tx.query(INSERT, [`${i}`]), tx);
      });
    for (let i = 0; i < OFTEN; i++) await write(i);
    await write(OFTEN, 'DEALLOCATE ALL');
    expect(runs).toBe(OFTEN + 2);
    await write(OFTEN + 1, 'DEALLOCATE ALL');
    expect(await entries()).toEqual(Array.from({ length: OFTEN + 2 }, (_, i) => `${i}`));
  },
);

test('a name that is lost, and a caller who goes on by another way: nothing is written, since nobody knows what that did', async () => {
  const { store, entries } = await openOne();
  for (let i = 0; i < OFTEN; i++) await store.query(fence, INSERT, [`${i}`]);
  let runs = 0;
  const write = store.transaction(fence, async (tx: FencedTransaction<pg.PoolClient>) => {
    runs += 1;
    await tx.query('DEALLOCATE ALL');
    await tx.query('SAVEPOINT before');
    await tx.query(INSERT, ['lost']).catch(() => tx.client.query('ROLLBACK TO before'));
    await tx.client.query("INSERT INTO entry (text) VALUES ('by another way')");
  });
  await expect(write).rejects.toMatchObject({
    code: 'unavailable',
    cause: { code: '26000' },
  });
  expect(runs).toBe(1);
  expect(await entries()).toHaveLength(OFTEN);
});

test('the name of COMMIT that is lost: run again, and written once', async () => {
  const { store, entries } = await openOne();
  for (let i = 0; i < OFTEN; i++)
    await store.transaction({ ...fence, attemptsMax: 1 }, async (tx) => {
      await tx.query(INSERT, [`${i}`]);
      if (i === OFTEN - 1) await tx.query('DEALLOCATE ALL');
    });
  expect(await entries()).toEqual(Array.from({ length: OFTEN }, (_, i) => `${i}`));
});

test('a signal that aborts while a name is lost: not run again', async () => {
  const { url, entries } = await openLedger();
  // Of a pool it would be closed.
  const client = new pg.Client(url.href);
  // Its database is dropped before it is closed.
  client.on('error', () => undefined);
  await client.connect();
  closeAfterTest(() => client.end());
  const store = new FencedPostgres({ pool: client });
  for (let i = 0; i < OFTEN; i++) await store.query(fence, INSERT, [`${i}`]);
  const abort = new AbortController();
  const reason = new Error('enough');
  let runs = 0;
  const write = store.transaction({ ...fence, signal: abort.signal }, async (tx) => {
    runs += 1;
    await tx.query('DEALLOCATE ALL');
    await tx.query(INSERT, ['again']).finally(() => abort.abort(reason));
  });
  await expect(write).rejects.toBe(reason);
  expect(runs).toBe(1);
  expect(await entries()).toHaveLength(OFTEN);
});

test('a table that has changed: the columns it has now', async () => {
  const { store, one } = await openOne();
  const insert = `${INSERT} RETURNING *`;
  for (let i = 0; i < OFTEN; i++) await store.query(fence, insert, [`${i}`]);
  await one.query("ALTER TABLE entry ADD COLUMN note text DEFAULT 'new'");
  for (const id of [OFTEN + 1, OFTEN + 2]) {
    const { rows } = await store.query(fence, insert, ['later']);
    expect(rows).toEqual([{ id, text: 'later', note: 'new' }]);
  }
  await one.query('ALTER TABLE entry DROP COLUMN note');
  await store.transaction(fence, async (tx) => {
    const { rows } = await tx.query(insert, ['last']);
    expect(rows).toEqual([{ id: expect.any(Number), text: 'last' }]);
  });
});

test('another search path: the table that it leads to', async () => {
  const { store, one } = await openOne();
  for (let i = 0; i < OFTEN; i++) await store.query(fence, INSERT, [`${i}`]);
  await one.query('CREATE SCHEMA other; CREATE TABLE other.entry (text text)');
  await one.query('SET search_path = other, public');
  await store.query(fence, INSERT, ['there']);
  expect((await one.query('SELECT text FROM other.entry')).rows).toEqual([{ text: 'there' }]);
});

test('behind PgBouncer, where another server may come next, nobody runs the statements of others', async () => {
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
