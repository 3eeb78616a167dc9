import { setImmediate } from 'node:timers/promises';
import { LockHeldError, NoQuorumError } from '@fenced/lock';
import { PostgresLock } from '@fenced/lock/postgres';
import { FencedPostgres } from '@fenced/store/postgres';
import { startPgBouncer } from '@fenced/testbed';
import pg from 'pg';
import { expect, test } from 'vitest';
import {
  asNewRole,
  connect,
  connectPg,
  createDatabase,
  startGoodbyeServer,
  testOfPg,
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

test('tokens begin at the clock, and still grow after the last rows are lost', async () => {
  const { lock, pool } = await openLock();
  const beforeUs = BigInt(Date.now()) * 1000n;
  const lease = await lock.acquire('x', { ttlMs: 1_000 });
  expect(lease.token).toBeGreaterThan(beforeUs);
  expect(lease.token).toBeLessThan(beforeUs + 60_000_000n);
  // A failover to an asynchronous replica may lose rows.
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

test('a release wakes a waiter at once, before the waiter looks again by itself', async () => {
  const { lock, pool } = await openLock();
  const other = new PostgresLock({ pool });
  // Without notifications, a waiter looks once a second: ten hand-overs would take 10 s.
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
  "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query ~* '^listen .?fenced_lock' AND state = 'idle'";

test('a lost LISTEN is renewed while a client waits', async () => {
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
  // When no client waits, the connection is given back. Only postgres.js keeps it open.
  if ('totalCount' in pool) await until(async () => (await listener()) === undefined);
});

test('a release notifies only if a client waits for it', async () => {
  const { url, lock, pool } = await openLock();
  const ear = new pg.Client(url.href);
  await ear.connect();
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
  // The second release also notifies for `x` and `y`, because the rows are still marked as awaited.
  expect(heard.toSorted()).toEqual([end, 'x', 'x', 'y']);
  await ear.end();
});

test('waiters poll behind PgBouncer, and with a pool of one connection', async () => {
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

test('a server that does not answer in time leaves no lease behind', async () => {
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

test('more callers than the server can serve still get leases', async () => {
  const { url } = await openLock();
  const lock = new PostgresLock({ pool: connect(url.href, { max: 4 }) });
  const endMs = performance.now() + 2_000;
  let granted = 0;
  const callers = Array.from({ length: 640 }, async (_, caller) => {
    while (performance.now() < endMs) {
      const result = await lock.tryAcquire(`x${caller}`, { ttlMs: 300 });
      if (!result.ok) continue;
      // Counts only the last second, when the queue of callers is long.
      if (performance.now() > endMs - 1_000) granted += 1;
      await result.lease.release();
    }
  });
  await Promise.all(callers);
  expect(granted).toBeGreaterThan(50);
  await lock.close();
});

testOfPg(
  'holders extend their leases while their transactions use all connections of the pool',
  async () => {
    const { url } = await openLock();
    const pool = connectPg(url.href, { max: 4 });
    const lock = new PostgresLock({ pool });
    const inTransaction = async (): Promise<void> => {
      const client = await pool.connect();
      try {
        await client.query('BEGIN; SELECT pg_sleep(3); COMMIT');
      } finally {
        client.release();
      }
    };
    const held = ['a', 'b', 'c', 'd'].map((name) =>
      lock.using(name, { ttlMs: 2_000, waitMs: 20_000 }, inTransaction),
    );
    expect((await Promise.allSettled(held)).map(({ status }) => status)).toEqual(
      held.map(() => 'fulfilled'),
    );
    // The extra connection is closed when nobody needs it.
    const sessions = 'SELECT FROM pg_stat_activity WHERE datname = current_database()';
    await until(async () => ((await pool.query(sessions)).rowCount ?? 0) <= 4);
  },
);

test('a program that stood still longer than the time limit reads an answer that has come, before it gives up', async () => {
  const { lock } = await openLock();
  // Repeats, because the server itself may be late.
  await until(async () => {
    const attempt = lock.tryAcquire('x', { ttlMs: 2_000 });
    // By now the request was sent, unless the pool had to connect first. postgres.js needs a second
    // turn of the event loop.
    await setImmediate();
    await setImmediate();
    // Longer than the limit for an answer.
    const untilMs = performance.now() + 1_100;
    while (performance.now() < untilMs);
    const outcome = await attempt;
    if (outcome.ok) await outcome.lease.release();
    return outcome.ok;
  });
});

test('a clock that is set back by an hour holds up a lock for one TTL, and keeps a living holder', async () => {
  const { pool, lock } = await openLock();
  const [dead, alive] = [
    await lock.acquire('dead', { ttlMs: 2_000 }),
    await lock.acquire('alive', { ttlMs: 60_000 }),
  ];
  // By a clock that is an hour behind, all times in the table are an hour later.
  await pool.query("UPDATE fenced_lock.lease SET ends_at = ends_at + interval '1 hour'");
  const startedMs = performance.now();
  const next = await lock.acquire('dead', { ttlMs: 60_000, waitMs: 20_000 });
  expect(next.token).toBeGreaterThan(dead.token);
  expect(performance.now() - startedMs).toBeGreaterThan(2_000);
  expect(await lock.tryAcquire('alive', { ttlMs: 60_000 })).toMatchObject({ reason: 'held' });
  await alive.extend(60_000);
  expect(await alive.release()).toBe('released');
});

test('a missing schema and a missing right are errors with the remedy', async () => {
  const url = await createDatabase();
  const lock = new PostgresLock({ pool: connect(url.href) });
  // The call fails at once, because waiting does not help.
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

test('contention is no error under a default of SERIALIZABLE', async () => {
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

test('a token above 2^63-1 is the error token-exhausted', async () => {
  const { lock, pool } = await openLock();
  await pool.query("INSERT INTO fenced_lock.lease VALUES ('x', 9223372036854775807, NULL, 'now')");
  await expect(lock.acquire('x', { ttlMs: 500 })).rejects.toMatchObject({
    code: 'token-exhausted',
  });
});

test.each([undefined, {}, { pool: null }, { pool: 'postgres://' }])('config %j', (config) => {
  expect(() => new PostgresLock(config as never)).toThrow(/must be a pg.Pool|must be an object/);
});

test('a server that greets and says goodbye in one packet does not end a process that waits', async () => {
  const lock = new PostgresLock({ pool: connect(await startGoodbyeServer()) });
  const waiting = lock.acquire('x', { ttlMs: 1_000, waitMs: 300 });
  await expect(waiting).rejects.toThrow(NoQuorumError);
});
