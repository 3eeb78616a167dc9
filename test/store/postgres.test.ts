import { setTimeout } from 'node:timers/promises';
import {
  ConflictError,
  InvalidArgumentError,
  OutcomeUnknownError,
  StaleTokenError,
} from '@fenced/store';
import {
  FencedPostgres,
  type FencedTransaction,
  type IsolationLevel,
} from '@fenced/store/postgres';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { gate, INSERT, openLedger, rejectionOf } from './harness/postgres-support.js';

const levels: IsolationLevel[] = ['read committed', 'repeatable read', 'serializable'];
const resource = 'invoice/42';

describe.each(levels)('%s', (isolation) => {
  test("a paused holder's write arrives after the next holder's, and is refused", async () => {
    const { store, entries } = await openLedger();
    await store.query({ resource, token: 34, isolation }, INSERT, ['34']);

    const late = store.query({ resource, token: 33, isolation }, INSERT, ['33']);

    const error = await rejectionOf(late);
    expect(error).toBeInstanceOf(StaleTokenError);
    expect(error).toMatchObject({ resource, presented: 33n, highest: 34n, code: 'stale-token' });
    expect(await entries()).toEqual(['34']);
    expect(await store.highest(resource)).toBe(34n);
  });

  test('a late write waits for a newer one that has not committed, and is refused', async () => {
    const { store, entries, untilWaiting } = await openLedger();
    await store.claim({ resource, token: 33 });
    const end = gate();
    const started = gate();
    const newer = store.transaction({ resource, token: 34, isolation }, async (tx) => {
      await tx.query(INSERT, ['34']);
      started.open();
      await end.passed;
    });
    await started.passed;
    const late = rejectionOf(store.query({ resource, token: 33, isolation }, INSERT, ['33']));
    // With one snapshot for a whole transaction, the late write fails at once: it does not wait.
    if (isolation === 'read committed') await untilWaiting(1);
    else await late;
    end.open();
    await newer;
    expect(await late).toBeInstanceOf(StaleTokenError);
    expect(await entries()).toEqual(['34']);
  });

  test('a newer transaction that rolls back does not stop the older holder', async () => {
    const { store, entries, untilWaiting } = await openLedger();
    const end = gate();
    const started = gate();
    const newer = store.transaction({ resource, token: 34 }, async () => {
      started.open();
      await end.passed;
      throw new Error('changed my mind');
    });
    await started.passed;
    const older = store.query({ resource, token: 33, isolation }, INSERT, ['33']);
    await untilWaiting(1);
    end.open();
    await expect(newer).rejects.toThrow('changed my mind');
    await older;
    expect(await entries()).toEqual(['33']);
    expect(await store.highest(resource)).toBe(33n);
  });

  test('a newer holder waits for the older one, and then sees its writes', async () => {
    const { store, untilWaiting } = await openLedger();
    await store.claim({ resource, token: 33 });
    const end = gate();
    const started = gate();
    const older = store.transaction({ resource, token: 33, isolation }, async (tx) => {
      started.open();
      await end.passed;
      await tx.query(INSERT, ['33']);
    });
    await started.passed;
    const seen = store.transaction({ resource, token: 34, isolation }, async (tx) => {
      return (await tx.query('SELECT text FROM entry')).rows;
    });
    await untilWaiting(1);
    end.open();
    await older;
    expect(await seen).toEqual([{ text: '33' }]);
  });

  test.each(['first', 'second'])(
    'writers of one token run side by side, and a newer one waits for both (%s ends last)',
    async (last) => {
      const { store, entries, untilWaiting } = await openLedger();
      await store.claim({ resource, token: 33 });
      const ends = { first: gate(), second: gate() };
      const started = { first: gate(), second: gate() };
      const run = (name: 'first' | 'second') =>
        store.transaction({ resource, token: 33, isolation }, async (tx) => {
          await tx.query(INSERT, [name]);
          started[name].open();
          await ends[name].passed;
        });
      const writers = [run('first'), run('second')];
      await Promise.all([started.first.passed, started.second.passed]);
      const newer = store.query({ resource, token: 34, isolation }, INSERT, ['newer']);
      await untilWaiting(1);
      ends[last === 'first' ? 'second' : 'first'].open();
      await Promise.race(writers);
      await untilWaiting(1);
      ends[last as 'first' | 'second'].open();
      await Promise.all([...writers, newer]);
      const written = await entries();
      expect(written.slice(0, 2).sort()).toEqual(['first', 'second']);
      expect(written.slice(2)).toEqual(['newer']);
    },
  );

  test('an old holder with overlapping transactions does not overtake a newer holder that waits', async () => {
    const { store, entries, untilWaiting } = await openLedger();
    await store.claim({ resource, token: 33 });
    const end = gate();
    const started = gate();
    const first = store.transaction({ resource, token: 33, isolation }, async () => {
      started.open();
      await end.passed;
    });
    await started.passed;
    const newer = store.query({ resource, token: 34, isolation }, INSERT, ['34']);
    await untilWaiting(1);
    const next = rejectionOf(store.query({ resource, token: 33, isolation }, INSERT, ['33']));
    await untilWaiting(2);
    end.open();
    await first;
    await newer;
    expect(await next).toBeInstanceOf(StaleTokenError);
    expect(await entries()).toEqual(['34']);
  });
});

const seed = Number(process.env.FENCED_SEED ?? Date.now() % 2 ** 31);

test(`read-modify-write under random tokens loses no acknowledged write (FENCED_SEED=${seed})`, async () => {
  const ledger = await openLedger();
  const { store, pool } = ledger;
  await pool.query('CREATE TABLE step (resource text, seen bigint, token bigint)');
  const operation = fc.record({
    token: fc.integer({ min: 1, max: 1_000 }),
    isolation: fc.constantFrom(...levels),
  });
  const workers = fc.uniqueArray(operation, {
    selector: ({ token }) => token,
    minLength: 2,
    maxLength: 24,
  });
  let runs = 0;
  const property = fc.asyncProperty(workers, async (operations) => {
    const name = `counter/${runs++}`;
    // Writes the number of earlier steps. So no two steps write the same number, and the tokens of
    // later steps are not lower.
    const step = async (tx: FencedTransaction, token: number) => {
      const { rows } = await tx.query('SELECT count(*) FROM step WHERE resource = $1', [name]);
      await tx.query('INSERT INTO step VALUES ($1, $2, $3)', [name, rows[0]?.count, token]);
    };
    const outcomes = await Promise.allSettled(
      operations.map(({ token, isolation }) =>
        store.transaction({ resource: name, token, isolation, attemptsMax: 50 }, (tx) =>
          step(tx, token),
        ),
      ),
    );
    const acknowledged = operations.filter((_, i) => outcomes[i]?.status === 'fulfilled');
    for (const outcome of outcomes) {
      if (outcome.status === 'rejected') expect(outcome.reason).toBeInstanceOf(StaleTokenError);
    }
    const { rows } = await pool.query(
      'SELECT seen, token FROM step WHERE resource = $1 ORDER BY token',
      [name],
    );
    const tokens = acknowledged.map(({ token }) => token).sort((a, b) => a - b);
    expect(rows).toEqual(tokens.map((token, i) => ({ seen: `${i}`, token: `${token}` })));
    expect(await store.highest(name)).toBe(BigInt(tokens.at(-1) ?? 0));
    expect(tokens.at(-1)).toBe(Math.max(...operations.map(({ token }) => token)));
  });
  await fc.assert(property, { seed, numRuns: 40 });
});

test('transactions with the same resources in another order cannot deadlock', async () => {
  const { store, entries, untilWaiting } = await openLedger();
  const end = gate();
  const started = gate();
  const first = store.transaction({ resource: 'a', token: 1 }, async () => {
    started.open();
    await end.passed;
  });
  await started.passed;
  const run = (order: string[], token: number, text: string) =>
    store.query({ resource: order, token, attemptsMax: 1 }, INSERT, [text]);
  const forwards = run(['a', 'b'], 2, 'forwards');
  await untilWaiting(1);
  // In the given order, this transaction would lock b and wait for a. `forwards` has a and waits
  // for b, so that would be a deadlock.
  const backwards = run(['b', 'a'], 3, 'backwards');
  await untilWaiting(2);
  end.open();
  await Promise.all([first, forwards, backwards]);
  expect(await entries()).toEqual(['forwards', 'backwards']);
  expect([await store.highest('a'), await store.highest('b')]).toEqual([3n, 3n]);
});

test('a token that is stale for one of several resources is refused for all of them', async () => {
  const { store } = await openLedger();
  await store.claim({ resource: 'b', token: 34 });
  const error = await rejectionOf(store.claim({ resource: ['a', 'b'], token: 33 }));
  expect(error).toMatchObject({ code: 'stale-token', resource: 'b', highest: 34n });
  expect(await store.highest('a')).toBe(0n);
});

test('a claim keeps earlier holders out before anything is written; the largest token is exact', async () => {
  const { store, entries } = await openLedger();
  const largest = 2n ** 63n - 1n;
  await store.claim({ resource, token: largest });
  await store.claim({ resource, token: largest });
  expect(await store.highest(resource)).toBe(largest);
  const late = store.query({ resource, token: largest - 1n }, INSERT, ['late']);
  await expect(late).rejects.toMatchObject({ presented: largest - 1n, highest: largest });
  expect(await entries()).toEqual([]);
});

test('the result of the function is returned after the commit', async () => {
  const { store, entries } = await openLedger();
  const total = await store.transaction({ resource, token: 1 }, async (tx) => {
    await tx.query(INSERT, ["it's"]);
    return 42;
  });
  expect(total).toBe(42);
  expect(await entries()).toEqual(["it's"]);
});

test('an error of the function arrives unchanged, and neither writes nor token are kept', async () => {
  const { store, entries } = await openLedger();
  const mine = new RangeError('mine');
  const run = store.transaction({ resource, token: 1 }, async (tx) => {
    await tx.query(INSERT, ['lost']);
    throw mine;
  });
  expect(await rejectionOf(run)).toBe(mine);
  expect(await entries()).toEqual([]);
  expect(await store.highest(resource)).toBe(0n);
});

test('a transaction whose function swallowed an error is not reported as applied', async () => {
  const { store, entries } = await openLedger();
  const run = store.transaction({ resource, token: 1 }, async (tx) => {
    await tx.query(INSERT, ['before']);
    await tx.query('SELECT 1/0').catch(() => undefined);
    await tx.query(INSERT, ['after']).catch(() => undefined);
    return 'done';
  });
  await expect(run).rejects.toMatchObject({ code: '22012' });
  expect(await entries()).toEqual([]);
});

test('a function may roll back to a savepoint', async () => {
  const { store, entries } = await openLedger();
  await store.transaction({ resource, token: 1 }, async (tx) => {
    await tx.query(INSERT, ['kept']);
    await tx.query('SAVEPOINT attempt');
    await tx.query('SELECT 1/0').catch(() => undefined);
    await tx.query('ROLLBACK TO SAVEPOINT attempt');
  });
  expect(await entries()).toEqual(['kept']);
});

test('an error of COMMIT arrives unchanged, and nothing was written', async () => {
  const { store, pool } = await openLedger();
  await pool.query('CREATE TABLE once (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)');
  const insert = 'INSERT INTO once VALUES (1), (1)';
  await expect(store.query({ resource, token: 1 }, insert)).rejects.toMatchObject({
    code: '23505',
  });
  expect((await pool.query('SELECT * FROM once')).rowCount).toBe(0);
});

const failSerialization = "DO $$ BEGIN RAISE 'not now' USING ERRCODE = '40001'; END $$";

test.each(['thrown', 'swallowed'])('a serialization failure is tried again (%s)', async (how) => {
  const { store, entries } = await openLedger();
  let runs = 0;
  await store.transaction({ resource, token: 1 }, async (tx) => {
    await tx.query(INSERT, [`run ${++runs}`]);
    if (runs > 2) return;
    const failed = tx.query(failSerialization);
    await (how === 'thrown' ? failed : failed.catch(() => undefined));
  });
  expect(await entries()).toEqual(['run 3']);
});

test('endless serialization failures are a conflict after attemptsMax attempts', async () => {
  const { pool } = await openLedger();
  const pausesMs: number[] = [];
  const store = new FencedPostgres(
    { pool },
    {
      nowMs: () => performance.now(),
      random: () => 0.5,
      uniqueId: () => 'a write',
      timedId: () => 'a timed write',
      after: (delayMs, callback) => {
        const timer = globalThis.setTimeout(callback, delayMs);
        return () => clearTimeout(timer);
      },
      sleep: async (delayMs, signal) => {
        pausesMs.push(delayMs);
        await setTimeout(delayMs, undefined, signal && { signal });
      },
    },
  );
  const error = await rejectionOf(
    store.query({ resource, token: 1, attemptsMax: 4 }, failSerialization),
  );
  expect(error).toBeInstanceOf(ConflictError);
  expect(error).toMatchObject({ resource, attempts: 4, cause: { code: '40001' } });
  expect(pausesMs).toEqual([10, 20, 40]);
});

test.each([
  'COMMIT',
  ' rollback',
  'BEGIN',
  'End work',
  'abort',
  'START  TRANSACTION',
  "PREPARE TRANSACTION 'x'",
  '/* a comment; */ -- and another\n COMMIT',
  '-- a comment\rCOMMIT',
])('the function must not send %s: refused before it is sent', async (statement) => {
  const { store, entries } = await openLedger();
  const run = store.transaction({ resource, token: 1 }, async (tx) => {
    await tx.query(INSERT, ['lost']);
    await tx.query(statement);
  });
  await expect(run).rejects.toBeInstanceOf(InvalidArgumentError);
  expect(await entries()).toEqual([]);
});

test.each(['SELECT 1; COMMIT', '; COMMIT', 'SELECT 1; COMMIT; BEGIN', '/* /* */ */ ROLLBACK'])(
  'a transaction that the function itself ended is not reported as applied: %s',
  async (statement) => {
    const { store } = await openLedger();
    const run = store.transaction({ resource, token: 1 }, (tx) => tx.query(statement));
    const error = await rejectionOf(run);
    expect(error).toBeInstanceOf(OutcomeUnknownError);
    expect(error).toMatchObject({ cause: { code: 'invalid-argument' } });
  },
);

test('a statement after the end of its transaction is refused', async () => {
  const { store } = await openLedger();
  const kept = await store.transaction({ resource, token: 1 }, async (tx) => ({ tx }));
  await expect(kept.tx.query('SELECT 1')).rejects.toBeInstanceOf(InvalidArgumentError);
});
