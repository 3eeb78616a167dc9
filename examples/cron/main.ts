// A cron schedule that every machine of a fleet has. Each time, one machine runs it.
import { PostgresLock } from '@fenced/lock/postgres';
import { StaleTokenError } from '@fenced/store';
import { FencedPostgres } from '@fenced/store/postgres';
import cron, { type RunCoordinator } from 'node-cron';
import pg from 'pg';

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
pool.on('error', console.error); // without a listener, pg ends the process
const lock = new PostgresLock({ pool });
const store = new FencedPostgres({ pool });
const [machine = `${process.pid}`, schedule = '*/2 * * * * *'] = process.argv.slice(2);
const leases = new Map<string, Awaited<ReturnType<typeof lock.acquire>>>();

await lock.install();
await store.install();
await pool.query('CREATE TABLE IF NOT EXISTS interest (due timestamptz PRIMARY KEY, machine text)');

/** node-cron asks before each run. `key` is the name of the task and the due time. */
const runCoordinator: RunCoordinator = {
  async shouldRun(key, ttlMs) {
    const result = await lock.tryAcquire('interest', { ttlMs });
    if (result.ok) leases.set(key, result.lease);
    return result.ok;
  },
  async onComplete(key) {
    await leases.get(key)?.release();
    leases.delete(key);
  },
};

/** Due times are unique in the table. So a machine with a late clock does not repeat a run. */
async function addInterest(due: string): Promise<void> {
  const lease = leases.get(`interest:${due}`);
  if (!lease) throw new Error(`no lease for ${due}`);
  try {
    const { rowCount } = await store.query(
      { resource: 'interest', token: lease.token },
      'INSERT INTO interest VALUES ($1, $2) ON CONFLICT DO NOTHING',
      [due, machine],
    );
    console.log(`${due} ${rowCount === 1 ? 'done' : 'was done before'}`);
  } catch (error) {
    if (!(error instanceof StaleTokenError)) throw error;
    console.log(`${due} is refused: a later run has written`);
  }
}

const task = cron.schedule(schedule, ({ date }) => addInterest(date.toISOString()), {
  name: 'interest',
  distributed: true,
  runCoordinator,
  distributedLease: 5_000, // no other machine runs it for so long after this one dies
});

process.once('SIGTERM', async () => {
  await task.destroy();
  await lock.close();
  await pool.end();
});
