// Of several processes, one leads. The leader works until it is deposed or ended.
import { setTimeout as sleep } from 'node:timers/promises';
import { Elector } from '@fenced/lock/election';
import { PostgresLock } from '@fenced/lock/postgres';
import { StaleTokenError } from '@fenced/store';
import { FencedPostgres } from '@fenced/store/postgres';
import pg from 'pg';

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
pool.on('error', console.error); // without a listener, pg ends the process
const lock = new PostgresLock({ pool });
const store = new FencedPostgres({ pool });
const [candidate = `${process.pid}`] = process.argv.slice(2);
const elector = new Elector({ lock, resource: 'dispatch', candidate, ttlMs: 5_000 });

await lock.install();
await store.install();
await pool.query('CREATE TABLE IF NOT EXISTS dispatched (id serial PRIMARY KEY, leader text)');

let isEnding = false;
for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => {
    isEnding = true;
    void elector.resign(); // the next candidate leads at once
  });

while (!isEnding) {
  try {
    const leadership = await elector.campaign();
    console.log(`${candidate} leads`);
    while (!leadership.signal.aborted) {
      const fence = { resource: 'dispatch', token: leadership.token };
      await store.transaction(fence, async (tx) => {
        await tx.query('INSERT INTO dispatched (leader) VALUES ($1)', [candidate]);
      });
      await sleep(200);
    }
    console.log(`${candidate} leads no more`);
  } catch (error) {
    if (error instanceof StaleTokenError) console.log(`${candidate} is refused: another one leads`);
    else if (!isEnding) throw error;
    await elector.resign();
  }
}
await lock.close();
await pool.end();
