import { PostgresLock } from '@fenced/lock/postgres';
import { type LocalPostgres, startLocalPostgres, TcpProxy } from '@fenced/testbed';
import type pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectPg, until } from '../store/harness/postgres-support.js';

/** A server that answers a commit before the commit is on disk. */
let server: LocalPostgres;
beforeAll(async () => {
  const settings = { synchronous_commit: 'off', wal_writer_delay: '10s' };
  server = await startLocalPostgres({ settings });
});
afterAll(() => server?.stop());

const HOUR_US = 3_600_000_000n;
/** The token of a clock that was an hour ahead for a moment. */
const ahead = (): bigint => BigInt(Date.now()) * 1_000n + HOUR_US;

async function pidOf(pool: pg.Pool, backendType: string): Promise<number | undefined> {
  const text = 'SELECT pid FROM pg_stat_activity WHERE backend_type = $1';
  return (await pool.query(text, [backendType])).rows[0]?.pid;
}

async function untilUp(pool: pg.Pool): Promise<void> {
  await until(() =>
    pool.query('SELECT').then(
      () => true,
      () => false,
    ),
  );
}

async function tokenOf(lock: PostgresLock, name = 'x'): Promise<bigint> {
  const lease = await lock.acquire(name, { ttlMs: 1_000, waitMs: 10_000 });
  await lease.release();
  return lease.token;
}

const storedToken = async (pool: pg.Pool): Promise<bigint> =>
  BigInt(
    (await pool.query("SELECT token FROM fenced_lock.lease WHERE resource = 'x'")).rows[0].token,
  );

async function openLock() {
  const pool = connectPg(server.url);
  await pool.query('DROP SCHEMA IF EXISTS fenced_lock CASCADE');
  await new PostgresLock({ pool }).install();
  const first = await tokenOf(new PostgresLock({ pool, firstToken: ahead() }));
  return { pool, lock: new PostgresLock({ pool }), first };
}

/** The whole server is killed, or one of its processes, after which it drops its shared memory. */
const CRASHES = {
  'the server is killed': async (_: pg.Pool, walWriter: number) => {
    const crashed = server.crash('SIGKILL');
    process.kill(walWriter, 'SIGKILL');
    await crashed;
  },
  'one process of the server is killed': async (pool: pg.Pool, walWriter: number) => {
    process.kill(walWriter, 'SIGKILL');
    const present = () => pidOf(pool, 'walwriter').catch(() => undefined);
    await until(async () => ![undefined, walWriter].includes(await present()));
  },
};

test.each(Object.entries(CRASHES))(
  'a token ahead of the clock whose commit is lost is not given again: %s',
  async (_, crash) => {
    const { pool, lock, first } = await openLock();
    let last = first;
    let losses = 0;
    // The second loss follows at once, when few tokens of the new epoch are given.
    await until(async () => {
      await pool.query('CHECKPOINT');
      // Without this process, no commit reaches the disk for 15 s.
      const walWriter = Number(await pidOf(pool, 'walwriter'));
      process.kill(walWriter, 'SIGSTOP');
      const tokens = [await tokenOf(lock), await tokenOf(lock), await tokenOf(lock)];
      for (const token of tokens) {
        expect(token).toBeGreaterThan(last);
        last = token;
      }
      await crash(pool, walWriter);
      await untilUp(pool);
      if ((await storedToken(pool)) < last) losses += 1;
      return losses === 3;
    });
    expect(await tokenOf(lock)).toBeGreaterThan(last);
  },
  60_000,
);

test('an asynchronous standby takes over: tokens grow, also if the primary had crashed twice since', async () => {
  const { pool, lock } = await openLock();
  const { hostname, port } = new URL(server.url);
  await using wire = await TcpProxy.start({ host: hostname, port: Number(port) });
  await using standby = await server.startStandby(wire);
  const farPool = connectPg(standby.url);
  const known = await tokenOf(lock);
  await pool.query('CHECKPOINT');
  await until(async () => (await storedToken(farPool)) === known);
  wire.swallow('toClient');
  let last = known;
  for (let crashes = 0; crashes < 2; crashes++) {
    last = await tokenOf(lock);
    await server.crash();
    await untilUp(pool);
  }
  last = await tokenOf(lock);
  await farPool.query('SELECT pg_promote()');
  const far = new PostgresLock({ pool: farPool });
  expect(await tokenOf(far)).toBeGreaterThan(last);
}, 60_000);

test('a restart without a loss keeps leases, and the tokens of two epochs are not mixed', async () => {
  const { pool, lock } = await openLock();
  const lease = await lock.acquire('x', { ttlMs: 60_000 });
  await server.crash('SIGINT');
  await untilUp(pool);
  const [x, y] = await Promise.all([lock.tryAcquire('x', { ttlMs: 1_000 }), tokenOf(lock, 'y')]);
  expect(x).toMatchObject({ reason: 'held' });
  expect(y).toBeGreaterThan(lease.token);
  await lease.extend(60_000);
  expect(await lease.release()).toBe('released');
});
