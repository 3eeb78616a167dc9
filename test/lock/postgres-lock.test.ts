import { setImmediate } from 'node:timers/promises';
import { LockHeldError, NoQuorumError } from '@fenced/lock';
import { PostgresLock } from '@fenced/lock/postgres';
import { FencedPostgres } from '@fenced/store/postgres';
import { startPgBouncer } from '@fenced/testbed';
import { expect, test } from 'vitest';
import {
  asNewRole,
  connect,
  createDatabase,
  startGoodbyeServer,
  throughProxy,
  until,
} from '../store/harness/postgres-support.js';

async function openLock(options: { firstToken?: bigint; maxTtlMs?: number } = {}) {
  const url = await createDatabase();
  const pool = connect(url.href, { max: 20 });
  const lock = new PostgresLock({ pool, ...options });
  await lock.install();
  await lock.install();
  return { url, pool, lock };
}

test('tokens begin at the clock, and go on from there where the last rows are lost', async () => {
  const { lock, pool } = await openLock();
  const beforeUs = BigInt(Date.now()) * 1000n;
  const lease = await lock.acquire('x', { ttlMs: 1_000 });
  expect(lease.token).toBeGreaterThan(beforeUs);
  expect(lease.token).toBeLessThan(beforeUs + 60_000_000n);
  // What a failover to an asynchronous replica may do.
  await pool.query('DELETE FROM fenced_lock.lease');
  const next = await lock.acquire('x', { ttlMs: 1_000 });
  expect(next.token).toBeGreaterThan(lease.token);
});

test('the token of a lease fences writes in the same database', async () => {
  const { lock, pool } = await openLock();
  const store = new FencedPostgres({ pool });
  await store.install();
  await pool.query('CREATE TABLE entry (text text)');
  const first = await lock.acquire('x', { ttlMs: 30_000 });
  await first.release();
  await using second = await lock.acquire('x', { ttlMs: 30_000 });
  const fence = { resource: 'x', token: second.token, lease: second };
  await store.query(fence, "INSERT INTO entry VALUES ('second')");
  const late = store.query({ resource: 'x', token: first.token }, "INSERT INTO entry VALUES ('1')");
  await expect(late).rejects.toMatchObject({ code: 'stale-token' });
});

test('a waiter is woken by the release, not by its clock', async () => {
  const { lock, pool } = await openLock();
  const other = new PostgresLock({ pool });
  // LISTEN makes waiters look once a second; ten hand-overs by the clock alone would take as many seconds.
  let lease = await lock.acquire('x', { ttlMs: 60_000 });
  const startedMs = performance.now();
  for (let i = 0; i < 10; i++) {
    const next = other.acquire('x', { ttlMs: 60_000, waitMs: 20_000 });
    await until(async () => {
      return (await pool.query(LISTENERS)).rowCount === 1;
    });
    await lease.release();
    lease = await next;
  }
  expect(performance.now() - startedMs).toBeLessThan(5_000);
});

const LISTENERS =
  "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query = 'LISTEN fenced_lock' AND state = 'idle'";

test('a LISTEN that is lost is renewed while somebody waits', async () => {
  const { lock, pool } = await openLock();
  const lease = await lock.acquire('x', { ttlMs: 60_000 });
  const next = new PostgresLock({ pool }).acquire('x', { ttlMs: 60_000, waitMs: 30_000 });
  const listener = async () => (await pool.query(LISTENERS)).rows[0]?.pid;
  await until(async () => (await listener()) !== undefined);
  const first = await listener();
  await pool.query('SELECT pg_terminate_backend($1)', [first]);
  await until(async () => ![undefined, first].includes(await listener()));
  await lease.release();
  await (await next).release();
  // Nobody waits any more.
  await until(async () => (await listener()) === undefined);
});

test('a release notifies only if somebody waits for it', async () => {
  const { lock, pool } = await openLock();
  const ear = await pool.connect();
  const heard: (string | undefined)[] = [];
  ear.on('notification', ({ payload }) => heard.push(payload));
  await ear.query('LISTEN fenced_lock');
  const ofOther = await lock.acquire('other', { ttlMs: 60_000 });
  const lease = await lock.acquire('x', { ttlMs: 60_000 });
  await expect(lock.acquire('x', { ttlMs: 1_000 })).rejects.toBeInstanceOf(LockHeldError);
  const next = lock.acquire(['x', 'y'], { ttlMs: 60_000, waitMs: 30_000 });
  const marked = 'SELECT FROM fenced_lock.lease WHERE awaited_until > now()';
  await until(async () => (await pool.query(marked)).rowCount === 2);
  await ofOther.release();
  await lease.release();
  await (await next).release();
  const end = 'end of the test';
  await pool.query(`NOTIFY fenced_lock, '${end}'`);
  await until(async () => heard.includes(end));
  // That of `y`, and of `x` once more, since they were awaited a moment ago.
  expect(heard.toSorted()).toEqual([end, 'x', 'x', 'y']);
  ear.release(true);
});

test('where nobody can listen, waiters go by the clock: PgBouncer, and a pool without a connection to spare', async () => {
  const { url, lock } = await openLock();
  await using bouncer = await startPgBouncer(url.href);
  const far = new URL(bouncer.url);
  far.pathname = url.pathname;
  for (const pool of [connect(far.href), connect(url.href, { max: 1 })]) {
    const other = new PostgresLock({ pool });
    const lease = await lock.acquire('x', { ttlMs: 1_000 });
    const next = await other.acquire('x', { ttlMs: 5_000, waitMs: 10_000 });
    expect(next.token).toBeGreaterThan(lease.token);
    await next.release();
  }
});

test('a server that does not answer is no quorum in time, and leaves no lease behind', async () => {
  const { url, pool, lock } = await openLock();
  const ledger = { url, pool } as Parameters<typeof throughProxy>[0];
  const { proxy, pool: farPool } = await throughProxy(ledger);
  const far = new PostgresLock({ pool: farPool });
  await (await far.acquire('x', { ttlMs: 1_000 })).release();
  proxy.hold('toClient');
  const run = far.acquire('x', { ttlMs: 1_000 });
  await expect(run).rejects.toBeInstanceOf(NoQuorumError);
  await expect(lock.acquire('x', { ttlMs: 500 })).rejects.toBeInstanceOf(LockHeldError);
  proxy.release('toClient');
  await using _ = await lock.acquire('x', { ttlMs: 500, waitMs: 5_000 });
});

test('a program that stood still reads what has come before it takes the server for late', async () => {
  const { lock } = await openLock();
  // The server may have been late, too.
  await until(async () => {
    const attempt = lock.tryAcquire('x', { ttlMs: 2_000 });
    // It has been sent, unless the pool had to connect before.
    await setImmediate();
    // For longer than the server is waited for.
    const untilMs = performance.now() + 1_100;
    while (performance.now() < untilMs);
    const outcome = await attempt;
    if (outcome.ok) await outcome.lease.release();
    return outcome.ok;
  });
});

test('without the schema, or the right to use it, the error says what to do', async () => {
  const url = await createDatabase();
  const lock = new PostgresLock({ pool: connect(url.href) });
  // At once: to wait changes nothing about it.
  const startedMs = performance.now();
  const attempt = lock.acquire('x', { ttlMs: 500, waitMs: 20_000 });
  await expect(attempt).rejects.toMatchObject({ code: 'not-installed' });
  await expect(attempt).rejects.toThrow('run install() once');
  expect(performance.now() - startedMs).toBeLessThan(10_000);
  await lock.install();
  const role = await asNewRole(url);
  const theirs = connect(role.href);
  const other = new PostgresLock({ pool: theirs });
  await expect(other.acquire('x', { ttlMs: 500 })).rejects.toMatchObject({
    code: 'not-installed',
    message: expect.stringContaining('GRANT USAGE ON SCHEMA fenced_lock'),
  });
  const admin = connect(url.href);
  await admin.query(`GRANT USAGE ON SCHEMA fenced_lock TO ${role.username};
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA fenced_lock TO ${role.username}`);
  await (await other.acquire('x', { ttlMs: 500 })).release();
  const lowering = theirs.query('UPDATE fenced_lock.lease SET token = 1');
  await expect(lowering).rejects.toMatchObject({ code: '42501' });
});

test('under a default of SERIALIZABLE contention is no error', async () => {
  const { url } = await openLock();
  const options = '-c default_transaction_isolation=serializable';
  const lock = new PostgresLock({ pool: connect(url.href, { max: 8, options }), firstToken: 1n });
  const leases = Array.from({ length: 8 }, async () => {
    const lease = await lock.acquire('x', { ttlMs: 5_000, waitMs: 20_000 });
    await lease.release();
    return lease.token;
  });
  expect(new Set(await Promise.all(leases)).size).toBe(8);
});

test('a token that would pass 2^63-1 is refused by name', async () => {
  const { lock, pool } = await openLock();
  await pool.query("INSERT INTO fenced_lock.lease VALUES ('x', 9223372036854775807, NULL, 'now')");
  await expect(lock.acquire('x', { ttlMs: 500 })).rejects.toMatchObject({
    code: 'token-exhausted',
  });
});

test.each([undefined, {}, { pool: null }, { pool: 'postgres://' }])('config %j', (config) => {
  expect(() => new PostgresLock(config as never)).toThrow(/must be a pg.Pool|must be an object/);
});

test('a server that says goodbye in the packet of its greeting does not end a process that waits', async () => {
  const lock = new PostgresLock({ pool: connect(await startGoodbyeServer()) });
  const waiting = lock.acquire('x', { ttlMs: 1_000, waitMs: 300 });
  await expect(waiting).rejects.toThrow(NoQuorumError);
});
