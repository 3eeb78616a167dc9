// A worker of a BullMQ queue. All jobs of a customer write one object, under the object's lock.
import { S3Client } from '@aws-sdk/client-s3';
import { Redlock } from '@fenced/lock';
import { StaleTokenError } from '@fenced/store';
import { FencedS3 } from '@fenced/store/s3';
import { type Job, Worker } from 'bullmq';
import { Redis } from 'ioredis';

const urls = (process.env.REDIS_URLS ?? 'redis://127.0.0.1:6379').split(',');
const clients = urls.map((url) => new Redis(url));
const redlock = new Redlock({
  nodes: clients.map((client, at) => ({ name: 'abcde'.charAt(at), client })),
});
const s3 = new S3Client({});
const statements = new FencedS3({ client: s3, bucket: process.env.BUCKET ?? 'documents' });
const [name = `${process.pid}`] = process.argv.slice(2);

/** Adds the job's amount to the customer's statement. */
async function bill(job: Job<{ customer: string; amount: number }>): Promise<void> {
  const { customer, amount } = job.data;
  const key = `statements/${customer}`;
  try {
    await redlock.using(key, { ttlMs: 5_000, waitMs: 60_000 }, async ({ token }) => {
      await statements.update(key, { token }, (current) => {
        const billed = current ? JSON.parse(new TextDecoder().decode(current.body)) : {};
        // A second attempt of the same job changes nothing.
        return JSON.stringify({ ...billed, [`${job.id}`]: `${amount} by ${name}` });
      });
    });
    console.log(`${name} has billed ${customer} ${amount}`);
  } catch (error) {
    if (!(error instanceof StaleTokenError)) throw error;
    console.log(`${name} is refused: a later holder has written ${key}`);
    throw error; // nothing was written: BullMQ tries again, unless another worker has the job
  }
}

// A worker that stands still loses its job to another worker after `lockDuration`.
const connection = { url: urls[0] ?? '' };
const worker = new Worker('bills', bill, {
  connection,
  lockDuration: 2_000,
  stalledInterval: 2_000,
});
worker.on('error', (error) => console.error(error.message));

process.once('SIGTERM', async () => {
  await worker.close();
  await redlock.close();
  for (const client of clients) client.disconnect();
  s3.destroy();
});
