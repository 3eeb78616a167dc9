import { readFile } from 'node:fs/promises';
import { StaleTokenError } from '@fenced/store';
import { asFencedError, FencedPostgres, type IsolationLevel } from '@fenced/store/postgres';
import pg from 'pg';
import { describe, expect, test } from 'vitest';
import { forged } from './harness/postgres-attacks.js';
import {
  asNewRole,
  connect,
  gate,
  INSERT,
  type Ledger,
  openLedger,
  rejectionOf,
  testOfPg,
  until,
} from './harness/postgres-support.js';

const LEVELS: readonly IsolationLevel[] = ['read committed', 'repeatable read', 'serializable'];
const DAY_MS = 86_400_000;
const month = { prefix: 'order/', olderThanMs: 30 * DAY_MS };
const resource = 'order/1';

/** Adds names that were last written long ago, with tokens from 1,001 on. */
async function addOld({ pool }: Pick<Ledger, 'pool'>, count: number): Promise<void> {
  await pool.query(
    `INSERT INTO fenced.ratchet SELECT 'order/' || n, 1000 + n, now() - interval '40 days' FROM generate_series(1, $1::int) n`,
    [count],
  );
}

/** Makes the last write of a name 40 days old. */
async function age({ pool }: Ledger, name = resource): Promise<void> {
  await pool.query(
    "UPDATE fenced.ratchet SET advanced_at = now() - interval '40 days' WHERE resource = $1",
    [name],
  );
}

async function namesOf({ pool }: Ledger): Promise<string[]> {
  const { rows } = await pool.query('SELECT resource FROM fenced.ratchet ORDER BY 1');
  return rows.map((row) => row.resource);
}

/** A connection of its own, which the test ends. */
async function session({ url }: Ledger): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url.href });
  client.on('error', () => undefined);
  await client.connect();
  return client;
}

test('old names with the prefix are forgotten, and all others stay', async () => {
  const ledger = await openLedger();
  await addOld(ledger, 3_000);
  await ledger.pool.query(
    "INSERT INTO fenced.ratchet VALUES ('invoice/1', 5, now() - interval '40 days')",
  );
  await ledger.store.claim({ resource: 'order/fresh', token: 6_000 });
  expect(await ledger.store.prune(month)).toEqual({
    names: 3_000,
    floor: 4_000n,
    heldBackBy: null,
  });
  expect(await namesOf(ledger)).toEqual(['invoice/1', 'order/fresh']);
  expect(await ledger.store.highest(resource)).toBe(4_000n);
  expect(await ledger.store.highest('invoice/2')).toBe(0n);
  // Other names are as before.
  await ledger.store.query({ resource: 'invoice/1', token: 5 }, INSERT, ['known']);
  await ledger.store.query({ resource: 'invoice/2', token: 1 }, INSERT, ['new']);
  // A second run has nothing to do, and the floor stays.
  expect(await ledger.store.prune(month)).toEqual({ names: 0, floor: 4_000n, heldBackBy: null });
  // A token equal to the floor is accepted, because no forgotten token is above the floor.
  await ledger.store.query({ resource, token: 4_000 }, INSERT, ['at the floor']);
  expect(await ledger.entries()).toEqual(['known', 'new', 'at the floor']);
});

test('the commands of docs/postgres.md forget the same in psql', async () => {
  const ledger = await openLedger();
  await addOld(ledger, 3_000);
  const docs = await readFile(new URL('../../docs/postgres.md', import.meta.url), 'utf8');
  const [, raise, prune] =
    /^(SELECT \* FROM fenced\.raise_floor[^\n]*;)\n(DO .*?\$\$;)$/ms.exec(docs) ?? [];
  const { rows } = await ledger.pool.query(String(raise));
  expect(rows).toEqual([{ floor: '4000', held_back_by: null }]);
  await ledger.pool.query(String(prune));
  expect(await namesOf(ledger)).toEqual([]);
});

describe('a token below the floor of a forgotten name is refused', () => {
  testOfPg('by each call of the library', async () => {
    const ledger = await openLedger();
    const { store, pool } = ledger;
    await addOld(ledger, 100);
    await store.prune(month);
    const stale = { resource, token: 1_099 };
    const late = [
      ...LEVELS.flatMap((isolation) => [
        store.query({ ...stale, isolation }, INSERT, ['late']),
        store.transaction({ ...stale, isolation }, (tx) => tx.query(INSERT, ['late'])),
      ]),
      store.query({ ...stale, resource: ['order/2', 'order/new'] }, INSERT, ['late']),
      store.claim(stale),
    ];
    for (const error of await Promise.all(late.map(rejectionOf))) {
      expect(error).toBeInstanceOf(StaleTokenError);
      expect(error).toMatchObject({ presented: 1_099n, highest: 1_100n });
      expect((error as Error).message).toMatch(/pruned or is new.*below the floor.*fenced\.reset/);
    }
    const { text, values } = store.presenting(stale);
    const client = await pool.connect();
    await client.query('BEGIN');
    const failure = await rejectionOf(client.query(text, values));
    await client.query('ROLLBACK');
    client.release();
    expect(asFencedError(failure)).toBeInstanceOf(StaleTokenError);
    expect(await ledger.entries()).toEqual([]);
    await store.transaction({ ...stale, token: 1_100, isolation: 'serializable' }, (tx) =>
      tx.query(INSERT, ['in time']),
    );
    expect(await ledger.entries()).toEqual(['in time']);
  });

  test.each(LEVELS)('by psql and by guarded tables, under %s', async (isolation) => {
    const ledger = await openLedger();
    await addOld(ledger, 100);
    await ledger.pool.query('CREATE TABLE orders (id int)');
    await ledger.store.guard('orders', "'order/' || id");
    await ledger.store.prune(month);
    const client = await session(ledger);
    const begin = `BEGIN ISOLATION LEVEL ${isolation}`;
    for (const write of [
      `SELECT fenced.present('${resource}', 1099)`,
      `SELECT fenced.present('{order/new,${resource}}'::text[], 1099)`,
      `SELECT fenced.advance('${resource}', 1099)`,
      `${forged(`ARRAY['${resource}']`, 1099)}; INSERT INTO orders VALUES (1)`,
    ]) {
      await client.query(begin);
      await expect(client.query(write)).rejects.toMatchObject({
        code: 'UF001',
        hint: expect.stringContaining('fenced.reset'),
      });
      await client.query('ROLLBACK');
    }
    await client.query(`${begin}; SELECT fenced.present('${resource}', 1100);
      INSERT INTO orders VALUES (1); COMMIT`);
    await client.end();
    expect((await ledger.pool.query('TABLE orders')).rows).toEqual([{ id: 1 }]);
  });
});

test('names that stay hold the floor back, unless the operator gives upTo', async () => {
  const ledger = await openLedger();
  await addOld(ledger, 3_000);
  await ledger.store.claim({ resource: 'order/busy', token: 1_500 });
  expect(await ledger.store.prune(month)).toEqual({
    names: 500,
    floor: 1_500n,
    heldBackBy: 'order/busy',
  });
  expect(await ledger.store.prune({ ...month, upTo: 2_000n })).toEqual({
    names: 500,
    floor: 2_000n,
    heldBackBy: null,
  });
  // A name that is not forgotten has its own row, and the floor does not count for it.
  await ledger.store.query({ resource: 'order/busy', token: 1_501 }, INSERT, ['busy']);
  expect(await ledger.entries()).toEqual(['busy']);
});

test('an operator lets in a name that only the floor refuses', async () => {
  const ledger = await openLedger();
  await addOld(ledger, 100);
  await ledger.store.prune(month);
  const other = { resource: 'order/of another service', token: 12 };
  const refused = await rejectionOf(ledger.store.query(other, INSERT, ['refused']));
  const { hint } = (refused as StaleTokenError).cause as { hint: string };
  expect(hint).toContain(`SELECT fenced.reset('order/of another service', 12, 'why')`);
  await ledger.pool.query(hint.slice(hint.indexOf('SELECT')));
  await ledger.store.query(other, INSERT, ['let in']);
  const late = ledger.store.query({ ...other, token: 11 }, INSERT, ['late']);
  await expect(late).rejects.toBeInstanceOf(StaleTokenError);
  expect(await ledger.entries()).toEqual(['let in']);
});

test('prune skips a name with an open write', async () => {
  const ledger = await openLedger();
  await addOld(ledger, 2);
  const written = gate();
  const begun = gate();
  const writer = ledger.store.transaction({ resource, token: 1_001 }, async (tx) => {
    begun.open();
    await written.passed;
    await tx.query(INSERT, ['in time']);
  });
  await begun.passed;
  const pruned = await ledger.store.prune(month).finally(written.open);
  expect(pruned.names).toBe(1);
  expect(await namesOf(ledger)).toEqual([resource]);
  await writer;
  expect((await ledger.store.prune(month)).names).toBe(1);
  expect(await ledger.entries()).toEqual(['in time']);
});

/** Number of an advisory lock that only this file uses. */
const GATE = 7;

/** Makes sessions wait between their read of the ratchet and their lock, as on a slow server. */
async function closeGate({ pool, url }: Ledger): Promise<() => Promise<unknown>> {
  const { rows } = await pool.query<{ text: string }>(
    "SELECT pg_get_functiondef('fenced.advance(text, bigint)'::regprocedure) AS text",
  );
  const text = rows[0]?.text ?? '';
  expect(text).toContain('PERFORM pg_advisory_xact_lock(key)');
  expect(text).toContain('PERFORM pg_advisory_xact_lock_shared(key)');
  const wait = `PERFORM pg_advisory_lock_shared(${GATE}), pg_advisory_unlock_shared(${GATE});`;
  await pool.query(
    text.replaceAll('PERFORM pg_advisory_xact_lock', `${wait} PERFORM pg_advisory_xact_lock`),
  );
  const keeper = connect(url.href, { max: 1 });
  await keeper.query(`SELECT pg_advisory_lock(${GATE})`);
  return () => keeper.query(`SELECT pg_advisory_unlock(${GATE})`);
}

describe.each(LEVELS)('under %s', (isolation) => {
  // With one snapshot for a whole transaction, PostgreSQL itself reports a conflict: 40001.
  const refusal = isolation === 'read committed' ? 'UF001' : '40001';

  /** Presents the token; `happens` comes between its look at the ratchet and its lock. */
  async function presentMeanwhile(
    ledger: Ledger,
    token: number,
    happens: () => Promise<unknown>,
  ): Promise<unknown> {
    const client = await session(ledger);
    await client.query(`BEGIN ISOLATION LEVEL ${isolation}`);
    const open = await closeGate(ledger);
    const presented = client
      .query(`SELECT fenced.present('${resource}', ${token})`)
      .then(() => client.query('COMMIT'))
      .then(({ command }) => command)
      .catch((error) => error.code);
    await ledger.untilWaiting(1);
    await happens().finally(open);
    const result = await presented;
    await client.end();
    return result;
  }

  test('a late writer is refused if a newer holder wrote before its lock, and the name was forgotten', async () => {
    const ledger = await openLedger();
    const result = await presentMeanwhile(ledger, 33, async () => {
      await ledger.pool.query(
        `INSERT INTO fenced.ratchet VALUES ('${resource}', 34, now() - interval '40 days')`,
      );
      expect(await ledger.store.prune(month)).toMatchObject({ names: 1, floor: 34n });
    });
    expect(result).toBe(refusal);
    expect(await ledger.store.highest(resource)).toBe(34n);
  });

  test('the latest holder passes if its name was forgotten before its lock', async () => {
    const ledger = await openLedger();
    await addOld(ledger, 1);
    const result = await presentMeanwhile(ledger, 1_001, () => ledger.store.prune(month));
    expect(result).toBe(isolation === 'read committed' ? 'COMMIT' : '40001');
  });

  test('an old holder is refused if its name was forgotten with higher ones before its lock', async () => {
    const ledger = await openLedger();
    await addOld(ledger, 2);
    const result = await presentMeanwhile(ledger, 1_001, () => ledger.store.prune(month));
    expect(result).toBe(refusal);
    expect(await ledger.store.highest(resource)).toBe(1_002n);
  });

  test('a waiting holder passes once an operator lets its name in below the floor', async () => {
    const ledger = await openLedger();
    await addOld(ledger, 2);
    await ledger.store.prune(month);
    const result = await presentMeanwhile(ledger, 13, () =>
      ledger.pool.query(`SELECT fenced.reset('${resource}', 12, 'a drill')`),
    );
    // A snapshot of a whole transaction does not see what the operator did.
    expect(result).toBe(isolation === 'read committed' ? 'COMMIT' : 'UF001');
  });

  test('a snapshot from before a name was written and forgotten presents no lower token', async () => {
    const ledger = await openLedger();
    const client = await session(ledger);
    await client.query(`BEGIN ISOLATION LEVEL ${isolation}; TABLE entry`);
    await ledger.store.claim({ resource, token: 34 });
    await age(ledger);
    expect(await ledger.store.prune(month)).toMatchObject({ names: 1, floor: 34n });
    const late = client.query(`SELECT fenced.present('${resource}', 33)`);
    await expect(late).rejects.toMatchObject({ code: refusal });
    await client.end();
  });
});

test('no stale write passes while two processes prune without a pause', {
  timeout: 60_000,
}, async () => {
  const ledger = await openLedger();
  await ledger.pool.query('CREATE TABLE history (at serial, resource text, token bigint)');
  const stop = new AbortController();
  let last = 0;
  const counts = { applied: 0, refused: 0, forgotten: 0, failed: 0 };
  const write = async (isolation: IsolationLevel, how: 'query' | 'transaction') => {
    const store = new FencedPostgres({ pool: connect(ledger.url.href, { max: 1 }) });
    while (!stop.signal.aborted) {
      const name = `order/${Math.floor(Math.random() * 4)}`;
      // A third of the writes are those of holders whose lease is over.
      const token = Math.random() < 1 / 3 ? Math.max(1, last - 3) : ++last;
      const fence = { resource: name, token, isolation, attemptsMax: 100 };
      const text = 'INSERT INTO history (resource, token) VALUES ($1, $2)';
      try {
        if (how === 'query') await store.query(fence, text, [name, token]);
        else await store.transaction(fence, (tx) => tx.query(text, [name, token]));
        counts.applied += 1;
      } catch (error) {
        if (!(error instanceof StaleTokenError)) throw error;
        counts.refused += 1;
      }
    }
  };
  const prune = async () => {
    const store = new FencedPostgres({ pool: connect(ledger.url.href, { max: 1 }) });
    while (!stop.signal.aborted)
      counts.forgotten += (await store.prune({ prefix: 'order/', olderThanMs: 0 })).names;
  };
  const work = [
    ...LEVELS.flatMap((level) => [write(level, 'query'), write(level, 'transaction')]),
    prune(),
    prune(),
  ];
  const all = Promise.all(work).finally(() => stop.abort());
  const enough = async () =>
    stop.signal.aborted || (counts.applied > 400 && counts.refused > 100 && counts.forgotten > 50);
  await Promise.race([all, until(enough)]);
  stop.abort();
  await all;
  const { rows } = await ledger.pool.query<{ stale: string; rows: string }>(
    `SELECT count(*) AS rows, count(*) FILTER (WHERE token < before) AS stale FROM (
      SELECT token, max(token) OVER (PARTITION BY resource ORDER BY at) AS before FROM history) h`,
  );
  expect(rows).toEqual([{ stale: '0', rows: String(counts.applied) }]);
});

test('only the owner of the schema, and roles with the right, can prune', async () => {
  const ledger = await openLedger();
  await addOld(ledger, 1);
  const role = await asNewRole(ledger.url);
  const theirs = new FencedPostgres({ pool: connect(role.href) });
  await ledger.pool.query(`SELECT fenced.allow('${role.username}')`);
  await expect(theirs.prune(month)).rejects.toMatchObject({
    code: 'store-setup',
    message: expect.stringContaining('permission denied for function raise_floor'),
  });
  await ledger.pool.query(
    `GRANT EXECUTE ON FUNCTION fenced.raise_floor, fenced.prune TO ${role.username}`,
  );
  expect((await theirs.prune(month)).names).toBe(1);
  await ledger.pool.query(`DROP OWNED BY ${role.username}`);
});

test.each([
  ['no options', undefined],
  ['no prefix', { olderThanMs: 1 }],
  ['a prefix that cannot begin a name', { prefix: 'a\0', olderThanMs: 1 }],
  ['a negative time', { prefix: '', olderThanMs: -1 }],
  ['more than a century', { prefix: '', olderThanMs: 1e15 }],
])('%s is refused before anything is sent', async (_, options) => {
  const store = new FencedPostgres({ pool: connect('postgres://127.0.0.1:1/absent') });
  await expect(store.prune(options as never)).rejects.toMatchObject({ code: 'invalid-argument' });
});
