// Sets a price in a MySQL or MariaDB table, under a lock. The transaction checks the token itself.
import { Redlock } from '@fenced/lock';
import { Redis } from 'ioredis';
import { createConnection } from 'mysql2/promise';

const urls = (process.env.REDIS_URLS ?? 'redis://127.0.0.1:6379').split(',');
const clients = urls.map((url) => new Redis(url));
const redlock = new Redlock({
  nodes: clients.map((client, at) => ({ name: 'abcde'.charAt(at), client })),
});
const db = await createConnection({ uri: process.env.MYSQL_URL ?? 'mysql://root@127.0.0.1/test' });
const [item = 'chair', cents = '900'] = process.argv.slice(2);

await db.query('CREATE TABLE IF NOT EXISTS price (item varchar(100) PRIMARY KEY, cents int)');
await db.query(
  'CREATE TABLE IF NOT EXISTS fence (resource varchar(200) PRIMARY KEY, token bigint NOT NULL)',
);

/** Thrown if a later holder has written. */
class LateError extends Error {}

/** Runs a transaction under a token. @throws {LateError} if a higher token was seen */
async function fenced(resource: string, token: bigint, work: () => Promise<unknown>) {
  await db.beginTransaction();
  try {
    // Raises the token, and locks its row until the end of the transaction.
    await db.query(
      'INSERT INTO fence VALUES (?, ?) ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))',
      [resource, token],
    );
    const isHighest = 'SELECT 1 FROM fence WHERE resource = ? AND token = ? FOR UPDATE';
    const [rows] = await db.query(isHighest, [resource, token]);
    if (Array.isArray(rows) && rows.length === 0) throw new LateError();
    await work();
    await db.commit();
  } catch (error) {
    await db.rollback();
    throw error;
  }
}

try {
  await redlock.using(`price/${item}`, { ttlMs: 5_000, waitMs: 60_000 }, async ({ token }) => {
    await fenced(`price/${item}`, token, () =>
      db.query('REPLACE INTO price VALUES (?, ?)', [item, cents]),
    );
    console.log(`${item} ${cents} is written`);
  });
} catch (error) {
  if (!(error instanceof LateError)) throw error;
  console.log(`${item} ${cents} is refused: a later holder wrote`);
} finally {
  await redlock.close();
  for (const client of clients) client.disconnect();
  await db.end();
}
