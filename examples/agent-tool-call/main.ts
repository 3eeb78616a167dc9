// An agent whose tools change a database. If its run is resumed elsewhere, each call applies once.
import { PostgresLock } from '@fenced/lock/postgres';
import { StaleTokenError } from '@fenced/store';
import { FencedPostgres } from '@fenced/store/postgres';
import pg from 'pg';

interface ToolCall {
  readonly id: string;
  readonly customer: string;
  readonly cents: number;
}

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
pool.on('error', console.error); // without a listener, pg ends the process
const lock = new PostgresLock({ pool });
const store = new FencedPostgres({ pool });
const [run = 'run-1', worker = `${process.pid}`] = process.argv.slice(2);

/** The model's calls. They are stored with the run, so a resumed run has the same ids. */
async function callsOf(_run: string): Promise<ToolCall[]> {
  return [
    { id: 'call-1', customer: 'dora', cents: 500 },
    { id: 'call-2', customer: 'emil', cents: 700 },
  ];
}

/** The tool. The note of the call and its effect are one transaction, under the run's token. */
async function refund({ id, customer, cents }: ToolCall, token: bigint): Promise<void> {
  const isNew = await store.transaction({ resource: `runs/${run}`, token }, async (tx) => {
    const note = 'INSERT INTO tool_call VALUES ($1, $2, $3) ON CONFLICT DO NOTHING';
    const { rowCount } = await tx.query(note, [run, id, worker]);
    if (rowCount === 0) return false; // an earlier worker of this run has applied it
    const credit = `INSERT INTO credit VALUES ($1, $2)
      ON CONFLICT (customer) DO UPDATE SET cents = credit.cents + $2`;
    await tx.query(credit, [customer, cents]);
    return true;
  });
  console.log(`${worker} ${id} ${isNew ? 'is applied' : 'was applied before'}`);
}

await lock.install();
await store.install();
await pool.query(`CREATE TABLE IF NOT EXISTS credit (customer text PRIMARY KEY, cents int NOT NULL);
  CREATE TABLE IF NOT EXISTS tool_call (run text, id text, worker text, PRIMARY KEY (run, id))`);
try {
  await lock.using(`runs/${run}`, { ttlMs: 5_000, waitMs: 60_000 }, async ({ token }) => {
    for (const call of await callsOf(run)) await refund(call, token);
  });
} catch (error) {
  if (!(error instanceof StaleTokenError)) throw error;
  console.log(`${worker} is refused: another worker has resumed ${run}`);
} finally {
  await lock.close();
  await pool.end();
}
