import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { readFile } from 'node:fs/promises';
import type { LockEvents } from '@fenced/lock';
import { PostgresLock, type PostgresLockConfig } from '@fenced/lock/postgres';
import { expect, onTestFinished, test } from 'vitest';
import { asNewRole, connect, createDatabase } from '../store/harness/postgres-support.js';
import { until } from './harness/redlock-nodes.js';

/** Low tokens show a missing floor: without `firstToken`, the clock would be above all of them. */
const firstToken = 1n;

async function openLock(config: Omit<PostgresLockConfig, 'pool'> = {}) {
  const url = await createDatabase();
  const pool = connect(url.href, { max: 20 });
  const lock = new PostgresLock({ pool, firstToken, ...config });
  await lock.install();
  const names = async (): Promise<string[]> => {
    const { rows } = await pool.query('SELECT resource FROM fenced_lock.lease ORDER BY 1');
    return rows.map(({ resource }) => resource);
  };
  return { url, pool, lock, names };
}

async function tokenOf(lock: PostgresLock, name: string): Promise<bigint> {
  const lease = await lock.acquire(name, { ttlMs: 5_000, waitMs: 30_000 });
  await lease.release();
  return lease.token;
}

/** The events of forgetting in the background. */
function heard(): LockEvents['fenced:lock:forgot'][] {
  const events: LockEvents['fenced:lock:forgot'][] = [];
  const hear = (event: unknown): void => {
    events.push(event as LockEvents['fenced:lock:forgot']);
  };
  subscribe('fenced:lock:forgot', hear);
  onTestFinished(() => void unsubscribe('fenced:lock:forgot', hear));
  return events;
}

test('100,000 old names are forgotten, and held and fresh ones stay', {
  timeout: 60_000,
}, async () => {
  const { lock, pool, names } = await openLock();
  await pool.query(
    `INSERT INTO fenced_lock.lease
       SELECT 'order/' || n, 1000000 + n, NULL, now() - interval '1 hour' FROM generate_series(1, 100000) n`,
  );
  const held = await lock.acquire('held', { ttlMs: 60_000 });
  await tokenOf(lock, 'fresh');
  expect(await lock.forget({ olderThanMs: 60_000 })).toBe(100_000);
  expect(await names()).toEqual(['fresh', 'held']);
  // The tokens of a new name and of a forgotten one begin above every token of all these names.
  expect(await tokenOf(lock, 'order/1')).toBeGreaterThan(1_100_000n);
  expect(await tokenOf(lock, 'new')).toBeGreaterThan(1_100_000n);
  await held.extend(60_000);
  await lock.forget({ olderThanMs: 0 });
  expect(await names()).toEqual(['held']);
  expect(await lock.tryAcquire('held', { ttlMs: 1_000 })).toMatchObject({ reason: 'held' });
  expect(await held.release()).toBe('released');
});

test.each(['read committed', 'repeatable read', 'serializable'])(
  'tokens grow, and each lease has one holder, while two processes forget, under %s',
  { timeout: 60_000 },
  async (isolation) => {
    const { url, pool, names } = await openLock();
    await pool.query(
      `ALTER DATABASE ${url.pathname.slice(1)} SET default_transaction_isolation = '${isolation}'`,
    );
    const last = new Map<string, bigint>();
    const holders = new Set<string>();
    let acquired = 0;
    let forgotten = 0;
    const stop = new AbortController();
    const acquire = async (): Promise<void> => {
      const lock = new PostgresLock({ pool: connect(url.href, { max: 4 }), firstToken });
      while (!stop.signal.aborted) {
        const set = ['a', 'b', 'c', 'd'].filter(() => Math.random() < 0.4);
        if (set.length === 0) continue;
        const attempt = await lock.tryAcquire(set, { ttlMs: 10_000 });
        if (!attempt.ok) {
          // With one snapshot for a whole transaction, all ten tries may end with a conflict.
          if (attempt.reason !== 'held')
            expect(attempt.nodes[0]?.error).toMatchObject({ code: '40001' });
          continue;
        }
        const { token } = attempt.lease;
        for (const name of set) {
          expect(token).toBeGreaterThan(last.get(name) ?? 0n);
          last.set(name, token);
          expect(holders.has(name)).toBe(false);
          holders.add(name);
        }
        for (const name of set) holders.delete(name);
        acquired += 1;
        await attempt.lease.release();
      }
    };
    const forget = async (): Promise<void> => {
      const lock = new PostgresLock({ pool: connect(url.href, { max: 2 }), firstToken });
      while (!stop.signal.aborted) {
        const before = acquired;
        forgotten += await lock.forget({ olderThanMs: 0 });
        await until(async () => stop.signal.aborted || acquired > before + 20);
      }
    };
    const work = [acquire(), acquire(), acquire(), forget(), forget()];
    const all = Promise.all(work).finally(() => stop.abort());
    await Promise.race([all, until(async () => acquired > 300 && forgotten > 20)]);
    stop.abort();
    await all;
    expect((await names()).length).toBeLessThanOrEqual(4);
  },
);

test('a crash after the floor was raised, or within a step, loses no token', async () => {
  const { lock, pool, names } = await openLock();
  const before = await tokenOf(lock, 'x');
  await pool.query('SELECT fenced_lock.raise_floor(0)');
  const next = await tokenOf(lock, 'x');
  expect(next).toBeGreaterThan(before);
  const client = await pool.connect();
  await client.query("UPDATE fenced_lock.lease SET ends_at = '-infinity'");
  await client.query('BEGIN');
  await client.query('SELECT fenced_lock.raise_floor(0)');
  await client.query('SELECT * FROM fenced_lock.forget(0, 0, 100)');
  client.release(true);
  await until(async () => (await names()).includes('x'));
  expect(await tokenOf(lock, 'x')).toBeGreaterThan(next);
});

test('a transaction whose snapshot is older than the lock and the forgetting of a name gets no token', async () => {
  const { lock, pool } = await openLock();
  const client = await pool.connect();
  await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ; TABLE fenced_lock.floor');
  await tokenOf(lock, 'x');
  expect(await lock.forget({ olderThanMs: 0 })).toBe(1);
  const late = client.query("SELECT * FROM fenced_lock.acquire(ARRAY['x'], 'late', 1000, 1)");
  await expect(late).rejects.toMatchObject({ code: '40001' });
  client.release(true);
});

test('one of several processes forgets in the background', {
  timeout: 30_000,
}, async () => {
  const { url, lock, names } = await openLock({ maxTtlMs: 2_000, fenceTtlMs: 2_000 });
  const events = heard();
  const other = new PostgresLock({
    pool: connect(url.href),
    firstToken,
    maxTtlMs: 2_000,
    fenceTtlMs: 2_000,
  });
  for (const name of ['a', 'b', 'c']) {
    await (await lock.acquire(name, { ttlMs: 2_000 })).release();
  }
  const startedMs = performance.now();
  await until(async () => {
    for (const one of [lock, other]) await (await one.acquire('used', { ttlMs: 2_000 })).release();
    return (await names()).length === 1;
  });
  const rounds = (performance.now() - startedMs) / 2_000;
  expect(events.length).toBeLessThanOrEqual(rounds + 1);
  expect(events.every(({ error }) => error === undefined)).toBe(true);
  expect(events.reduce((sum, { names: count }) => sum + count, 0)).toBeGreaterThanOrEqual(3);
});

test('a role that may not forget can lock, and an event has the error', async () => {
  const { url, pool, lock } = await openLock();
  const role = await asNewRole(url);
  await pool.query(
    `GRANT USAGE ON SCHEMA fenced_lock TO ${role.username};
     GRANT EXECUTE ON FUNCTION fenced_lock.acquire, fenced_lock.release, fenced_lock.extend TO ${role.username}`,
  );
  const events = heard();
  const theirs = new PostgresLock({ pool: connect(role.href), firstToken });
  expect(await tokenOf(theirs, 'x')).toBeLessThan(await tokenOf(lock, 'x'));
  await until(async () => events.length > 0);
  expect(events[0]?.error?.message).toContain('permission denied');
});

test.each([2, 3])('an upgrade from version %d keeps tokens, leases and rights', async (version) => {
  const url = await createDatabase();
  const pool = connect(url.href);
  const file = new URL(`./harness/postgres-lock-schema-${version}.sql`, import.meta.url);
  await pool.query(await readFile(file, 'utf8'));
  const role = await asNewRole(url);
  await pool.query(
    `GRANT USAGE ON SCHEMA fenced_lock TO ${role.username};
     GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA fenced_lock TO ${role.username}`,
  );
  const theirs = new PostgresLock({ pool: connect(role.href), firstToken });
  const acquired = await pool.query(
    `SELECT token FROM fenced_lock.acquire(ARRAY['x'], 'before', 1, 1)
      UNION ALL SELECT token FROM fenced_lock.acquire(ARRAY['held'], 'holder', 60000, 1)`,
  );
  const before = BigInt(acquired.rows[0].token);
  const owner = new PostgresLock({ pool });
  await Promise.all([owner.install(), owner.install(), new PostgresLock({ pool }).install()]);
  await pool.query("UPDATE fenced_lock.lease SET ends_at = '-infinity' WHERE resource = 'x'");
  expect(await theirs.forget({ olderThanMs: 0 })).toBe(1);
  expect(await tokenOf(theirs, 'x')).toBeGreaterThan(before);
  const release = "SELECT fenced_lock.release(ARRAY['held'], 'holder') AS held";
  expect((await pool.query(release)).rows).toEqual([{ held: true }]);
});

test('a schema of a later version stays as it is', async () => {
  const { lock, pool } = await openLock();
  await pool.query(
    "CREATE OR REPLACE FUNCTION fenced_lock.version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 5'",
  );
  await expect(lock.install()).rejects.toThrow('has version 5');
});

test.each([
  ['no options', undefined],
  ['a negative time', { olderThanMs: -1 }],
  ['an unknown option', { olderThanMs: 1, older: 2 }],
])('%s is refused before anything is sent', async (_, options) => {
  const lock = new PostgresLock({ pool: connect('postgres://127.0.0.1:1/absent') });
  await expect(lock.forget(options as never)).rejects.toMatchObject({ code: 'invalid-argument' });
});
