// Moves money between two accounts on Postgres, under a lock on both. The table demands a token.
import { PostgresLock } from '@fenced/lock/postgres';
import { StaleTokenError } from '@fenced/store';
import { FencedPostgres } from '@fenced/store/postgres';
import pg from 'pg';

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
pool.on('error', console.error); // without a listener, pg ends the process
const lock = new PostgresLock({ pool });
const ledger = new FencedPostgres({ pool });
const [command, from = 'ann', to = 'bob', amount = '10'] = process.argv.slice(2);

/** Once, by the owner of the database: usually a migration. */
async function setUp(): Promise<void> {
  await lock.install();
  await ledger.install();
  await pool.query(`CREATE TABLE account (name text PRIMARY KEY, balance int NOT NULL CHECK (balance >= 0));
    INSERT INTO account VALUES ('ann', 100), ('bob', 100), ('cat', 100)`);
  // From now on, every client must present a token for each row that it writes, psql too.
  await ledger.guard('public.account', "'account/' || name");
}

async function transfer(): Promise<void> {
  const resources = [`account/${from}`, `account/${to}`];
  await lock.using(resources, { ttlMs: 5_000, waitMs: 60_000 }, async ({ token }) => {
    // Slow checks stand here, under the lock but outside the transaction: limits, fraud, rates.
    await ledger.transaction({ resource: resources, token }, async (tx) => {
      const change = 'UPDATE account SET balance = balance + $2 WHERE name = $1';
      await tx.query(change, [from, -Number(amount)]);
      await tx.query(change, [to, Number(amount)]);
    });
    console.log(`${from} has paid ${amount} to ${to}`);
  });
}

try {
  await (command === 'set-up' ? setUp() : transfer());
} catch (error) {
  if (!(error instanceof StaleTokenError)) throw error;
  console.log(`refused: a later holder has written. Nothing was moved from ${from} to ${to}`);
} finally {
  await lock.close();
  await pool.end();
}
