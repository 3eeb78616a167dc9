// A nightly job, started on several machines. One does the work, and the others find it done.
import { S3Client } from '@aws-sdk/client-s3';
import { Redlock } from '@fenced/lock';
import { StaleTokenError } from '@fenced/store';
import { FencedS3 } from '@fenced/store/s3';
import { Redis } from 'ioredis';

const urls = (process.env.REDIS_URLS ?? 'redis://127.0.0.1:6379').split(',');
const clients = urls.map((url) => new Redis(url));
const redlock = new Redlock({
  // Every program gives the nodes the same names.
  nodes: clients.map((client, at) => ({ name: 'abcde'.charAt(at), client })),
});
const s3 = new S3Client({});
const reports = new FencedS3({ client: s3, bucket: process.env.BUCKET ?? 'documents' });
const [day = new Date().toISOString().slice(0, 10)] = process.argv.slice(2);

/** The work of the night. A query that takes an hour would stand here. */
async function countSales(): Promise<number> {
  return 1_000;
}

try {
  // If another machine holds the lock, this one waits up to a minute for it to finish, or to die.
  await redlock.using('sales', { ttlMs: 5_000, waitMs: 60_000 }, async ({ token }) => {
    let isDone = false;
    await reports.update('sales.json', { token }, async (current) => {
      const days = current ? JSON.parse(new TextDecoder().decode(current.body)) : {};
      isDone = day in days;
      if (!isDone) days[day] = await countSales();
      return JSON.stringify(days);
    });
    console.log(isDone ? `${day} was done before` : `${day} is written`);
  });
} catch (error) {
  if (!(error instanceof StaleTokenError)) throw error;
  // This process stood still, and another machine has taken over: nothing is left to do.
  console.log(`${day} is refused: token ${error.presented} is lower than ${error.highest}`);
} finally {
  await redlock.close();
  for (const client of clients) client.disconnect();
  s3.destroy();
}
