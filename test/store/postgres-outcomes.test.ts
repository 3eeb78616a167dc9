import { setTimeout } from 'node:timers/promises';
import { InvalidArgumentError, OutcomeUnknownError } from '@fenced/store';
import { FencedPostgres } from '@fenced/store/postgres';
import { startLocalPostgres, startPgBouncer } from '@fenced/testbed';
import fc from 'fast-check';
import pg from 'pg';
import { describe, expect, test } from 'vitest';
import { expectHistory, plans, prepareStorm, storm } from './harness/postgres-storm.js';
import {
  closeAfterTest,
  connect,
  connectPg,
  gate,
  INSERT,
  openLedger,
  rejectionOf,
  testOfPg,
  throughProxy,
  until,
} from './harness/postgres-support.js';

const resource = 'invoice/42';

describe('settle', () => {
  testOfPg(
    'reports a write whose reply was lost as applied; its id cannot be used again',
    async () => {
      const ledger = await openLedger();
      const { proxy, store } = await throughProxy(ledger);
      const writeId = store.newWriteId();
      await store.highest(resource);
      proxy.swallow('toClient');
      const fence = { resource, token: 33, writeId };
      const run = rejectionOf(store.query(fence, INSERT, ['once']));
      await proxy.untilSwallowed('toClient');
      proxy.cut();
      const error = await run;
      expect(error).toBeInstanceOf(OutcomeUnknownError);
      expect(error).toMatchObject({ writeId, store: 'postgres', canSettle: true });
      proxy.heal();
      expect(await store.settle(writeId)).toBe('applied');
      const again = store.query(fence, INSERT, ['twice']);
      await expect(again).rejects.toBeInstanceOf(InvalidArgumentError);
      expect(await ledger.entries()).toEqual(['once']);
    },
  );

  testOfPg('reports a write without an id as unknown, and the error says so', async () => {
    const ledger = await openLedger();
    const { proxy, store } = await throughProxy(ledger);
    await store.highest(resource);
    proxy.swallow('toClient');
    const run = rejectionOf(store.query({ resource, token: 33 }, INSERT, ['once']));
    await proxy.untilSwallowed('toClient');
    proxy.cut();
    const error = await run;
    proxy.heal();
    expect(error).toBeInstanceOf(OutcomeUnknownError);
    expect(error).toMatchObject({ store: 'postgres', canSettle: false });
    const { message, writeId } = error as OutcomeUnknownError;
    expect(message).toContain('settle() cannot tell');
    expect(await store.settle(writeId)).toBe('unknown');
    expect(await ledger.entries()).toEqual(['once']);
  });

  testOfPg('refuses a write that is still in the network, also when it arrives later', async () => {
    const ledger = await openLedger();
    const { proxy, store } = await throughProxy(ledger, { holdMs: 500 });
    const writeId = store.newWriteId();
    await store.highest(resource);
    proxy.hold('toServer');
    const run = rejectionOf(store.query({ resource, token: 33, writeId }, INSERT, ['late']));
    expect(await run).toBeInstanceOf(OutcomeUnknownError);
    expect(await ledger.store.settle(writeId)).toBe('not-applied');
    proxy.release('toServer');
    await proxy.untilSwallowed('toClient', { bytesMin: 0 });
    await ledger.store.query({ resource, token: 33 }, INSERT, ['next']);
    expect(await ledger.entries()).toEqual(['next']);
    expect(await ledger.store.settle(writeId)).toBe('not-applied');
  });

  test('waits for a write that is under way, up to holdMs', async () => {
    const { store, pool } = await openLedger();
    const impatient = new FencedPostgres({ pool, holdMs: 100 });
    const writeId = store.newWriteId();
    const end = gate();
    const started = gate();
    const run = store.transaction({ resource, token: 33, writeId }, async (tx) => {
      await tx.query(INSERT, ['33']);
      started.open();
      await end.passed;
    });
    await started.passed;
    expect(await impatient.settle(writeId)).toBe('unknown');
    const settled = store.settle(writeId);
    end.open();
    await run;
    expect(await settled).toBe('applied');
  });

  test('decides about a claim, a refused write, a write that was never sent, and a write without an id', async () => {
    const { store } = await openLedger();
    const ids = Array.from({ length: 3 }, () => store.newWriteId());
    await store.claim({ resource, token: 34, writeId: ids[0] as string });
    await rejectionOf(
      store.query({ resource, token: 33, writeId: ids[1] as string }, INSERT, ['x']),
    );
    expect(await Promise.all(ids.map((id) => store.settle(id)))).toEqual([
      'applied',
      'not-applied',
      'not-applied',
    ]);
    expect(await store.settle('f47ac10b-58cc-4372-a567-0e02b2c3d479')).toBe('unknown');
    await expect(store.settle('x')).rejects.toBeInstanceOf(InvalidArgumentError);
    const bad = store.claim({
      resource,
      token: 34,
      writeId: 'f47ac10b-58cc-4372-a567-0e02b2c3d479',
    });
    await expect(bad).rejects.toBeInstanceOf(InvalidArgumentError);
  });

  test('is unknown once the notes are deleted, after a day', async () => {
    const { store, pool } = await openLedger();
    const fresh = store.newWriteId();
    await store.query({ resource, token: 33, writeId: fresh }, INSERT, ['x']);
    const old = new Date(Date.now() - 25 * 3_600_000).getTime().toString(16).padStart(12, '0');
    const id = (n: number) =>
      `${old.slice(0, 8)}-${old.slice(8)}-7000-8000-${String(n).padStart(12, '0')}`;
    await pool.query('INSERT INTO fenced.write SELECT id::uuid, true FROM unnest($1::text[]) id', [
      Array.from({ length: 1_100 }, (_, n) => id(n)),
    ]);
    expect(await store.settle(id(1))).toBe('applied');
    await pool.query('SELECT fenced.forget_writes()');
    const { rows } = await pool.query('SELECT count(*)::int AS count FROM fenced.write');
    expect(rows).toEqual([{ count: 1_101 - 1_024 }]);
    expect(await store.settle(id(1))).toBe('unknown');
    expect(await store.settle(fresh)).toBe('applied');
  });
});

describe('settle, after the clock of the server was a day ahead for a moment', () => {
  /** A ledger whose server takes the time of its functions from a table. */
  async function openWithClock() {
    const ledger = await openLedger();
    const { pool, store } = ledger;
    await pool.query(`
      CREATE TABLE public.clock AS SELECT interval '0' AS ahead;
      ALTER FUNCTION pg_catalog.clock_timestamp() RENAME TO true_clock_timestamp;
      CREATE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz LANGUAGE sql
        AS 'SELECT pg_catalog.true_clock_timestamp() + ahead FROM public.clock'`);
    const settled = store.newWriteId();
    expect(await store.settle(settled)).toBe('not-applied');
    const writeId = store.newWriteId();
    await store.query({ resource, token: 33, writeId }, INSERT, ['33']);
    const setClock = (ahead: string) => pool.query('UPDATE public.clock SET ahead = $1', [ahead]);
    return { ...ledger, setClock, settled, writeId };
  }

  test('the outcome of a write whose note is deleted is unknown', async () => {
    const { store, pool, setClock, settled, writeId } = await openWithClock();
    await setClock('25 hours');
    await pool.query('SELECT fenced.forget_writes()');
    await setClock('0');
    expect(await store.settle(writeId)).toBe('unknown');
    expect(await store.settle(writeId)).toBe('unknown');
    expect(await store.settle(settled)).toBe('not-applied');
    const later = store.newWriteId();
    expect(await store.settle(later)).toBe('not-applied');
    await expect(store.claim({ resource, token: 33, writeId: later })).rejects.toMatchObject({
      code: 'invalid-argument',
    });
  });

  test('also if the note is deleted while settle asks', async () => {
    const { store, pool, url, untilWaiting, setClock, writeId } = await openWithClock();
    const asking = connectPg(url.href, { max: 1 });
    const settle = (level: string) =>
      asking.query(`BEGIN ISOLATION LEVEL ${level}; SELECT 1`).then(() => ({
        ask: () => asking.query('SELECT fenced.settle($1) AS outcome', [writeId]),
      }));
    const forgetting = connectPg(url.href, { max: 1 });
    await setClock('25 hours');
    await forgetting.query('BEGIN; SELECT fenced.forget_writes()');
    await setClock('0');
    const { ask } = await settle('READ COMMITTED');
    const answer = ask();
    await untilWaiting(1);
    await forgetting.query('COMMIT');
    expect((await answer).rows).toEqual([{ outcome: 'unknown' }]);
    await asking.query('COMMIT');
    expect(await store.settle(writeId)).toBe('unknown');
    expect((await pool.query('TABLE fenced.write')).rowCount).toBe(1);
  });

  test('an older snapshot is refused', async () => {
    const { pool, url, setClock, writeId } = await openWithClock();
    const asking = connectPg(url.href, { max: 1 });
    await asking.query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
    await setClock('25 hours');
    await pool.query('SELECT fenced.forget_writes()');
    await setClock('0');
    const answer = asking.query('SELECT fenced.settle($1)', [writeId]);
    await expect(answer).rejects.toMatchObject({ code: '40001' });
    await asking.query('ROLLBACK');
  });
});

const seed = Number(process.env.FENCED_SEED ?? Date.now() % 2 ** 31);
const numRuns = Number(process.env.FENCED_RUNS ?? 5);

describe(`writers of every kind, under cancelled and terminated sessions (FENCED_SEED=${seed})`, () => {
  test('directly', async () => {
    const { url, pool } = await openLedger();
    await prepareStorm(pool);
    const property = fc.asyncProperty(plans, (plan) => storm(url.href, pool, plan));
    await fc.assert(property, { seed, numRuns, endOnFailure: true });
  }, 300_000);

  test('through PgBouncer in transaction mode, with two connections for all', async () => {
    const { url, pool } = await openLedger();
    await prepareStorm(pool);
    await using bouncer = await startPgBouncer(url.href);
    const far = new URL(bouncer.url);
    far.pathname = url.pathname;
    const property = fc.asyncProperty(plans, (plan) => storm(far.href, pool, plan));
    await fc.assert(property, { seed, numRuns: Math.ceil(numRuns / 2), endOnFailure: true });
  }, 300_000);
});

test.each([18, 15] as const)(
  'a crash during commits loses no acknowledged write, and no refused one is found (Postgres %i)',
  async (of) => {
    await using server = await startLocalPostgres({ of });
    const admin = connect(server.url);
    const store = new FencedPostgres({ pool: connect(server.url, { max: 8 }), holdMs: 2_000 });
    await store.install();
    await prepareStorm(admin);
    const outcomes = new Map<string, 'applied' | 'not-applied' | 'unknown'>();
    const counted = { applied: 0, unknown: 0 };
    let isOver = false;
    let token = 1;
    const writer = async (name: 'a' | 'b') => {
      while (!isOver) {
        const writeId = store.newWriteId();
        const fence = { resource: name, token: token++, writeId };
        const write = `WITH counted AS (UPDATE counter SET n = n + 1 WHERE resource = $1)
          INSERT INTO history (resource, token, write) VALUES ($1, $2, $3)`;
        try {
          await store.query(fence, write, [name, fence.token, writeId]);
          outcomes.set(writeId, 'applied');
          counted.applied += 1;
        } catch (error) {
          const isUnknown = (error as { code: string }).code === 'outcome-unknown';
          outcomes.set(writeId, isUnknown ? 'unknown' : 'not-applied');
          counted.unknown += isUnknown ? 1 : 0;
          // A server that is down refuses at once. A pause keeps the loop from running too fast.
          await setTimeout(5);
        }
      }
    };
    const writers = [writer('a'), writer('b'), writer('a'), writer('b')];
    const untilApplied = (count: number) => until(async () => counted.applied >= count);
    try {
      await untilApplied(50);
      await server.crash('SIGQUIT');
      await untilApplied(150);
      const { rows } = await admin.query(
        "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
      );
      process.kill(rows[0]?.pid ?? Number.NaN, 'SIGKILL');
      await untilApplied(250);
      await server.crash('SIGINT');
      await untilApplied(350);
    } finally {
      isOver = true;
    }
    await Promise.all(writers);
    for (const [id, outcome] of outcomes) {
      if (outcome === 'unknown') outcomes.set(id, await store.settle(id));
    }
    expect([...outcomes.values()]).not.toContain('unknown');
    await expectHistory(admin, outcomes);
  },
  60_000,
);

test('a single client survives a cancelled statement', async () => {
  const ledger = await openLedger();
  const client = new pg.Client({ connectionString: ledger.url.href });
  client.on('error', () => undefined);
  await client.connect();
  closeAfterTest(() => client.end());
  const store = new FencedPostgres({ pool: client });
  const controller = new AbortController();
  const reason = new Error('the lease was lost');
  const run = rejectionOf(
    store.query({ resource, token: 1, signal: controller.signal }, 'SELECT pg_sleep(20)'),
  );
  await until(async () => {
    const { rowCount } = await ledger.pool.query(
      "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'",
    );
    return rowCount === 1;
  });
  const startedMs = performance.now();
  controller.abort(reason);
  expect(await run).toBe(reason);
  expect(performance.now() - startedMs).toBeLessThan(5_000);
  for (let i = 0; i < 20; i++) await store.query({ resource, token: 1 }, INSERT, [`${i}`]);
  expect(await ledger.entries()).toHaveLength(20);
});
