// Sells items of a stock that is one object on S3. No item is sold twice.
import { S3Client } from '@aws-sdk/client-s3';
import { Redlock } from '@fenced/lock';
import { StaleTokenError } from '@fenced/store';
import { FencedS3 } from '@fenced/store/s3';
import { Redis } from 'ioredis';

const urls = (process.env.REDIS_URLS ?? 'redis://127.0.0.1:6379').split(',');
const clients = urls.map((url) => new Redis(url));
const redlock = new Redlock({
  nodes: clients.map((client, at) => ({ name: 'abcde'.charAt(at), client })),
});
const s3 = new S3Client({});
const stock = new FencedS3({ client: s3, bucket: process.env.BUCKET ?? 'documents' });
const [name = 'chair', buyer = 'somebody'] = process.argv.slice(2);

/** Work between the read and the write, such as a call to a payment service. */
async function charge(item: number): Promise<void> {
  console.log(`${buyer} pays for ${name} ${item}`);
}

try {
  await redlock.using(`stock/${name}`, { ttlMs: 5_000, waitMs: 60_000 }, async ({ token }) => {
    // Fence before you read: from now on, no program with a lower token can change the stock.
    const current = await stock.claimAndGet(`stock/${name}`, { token });
    const sold: string[] = current ? JSON.parse(new TextDecoder().decode(current.body)) : [];
    await charge(sold.length);
    await stock.put(`stock/${name}`, JSON.stringify([...sold, buyer]), { token });
    console.log(`${buyer} has ${name} ${sold.length}`);
  });
} catch (error) {
  if (!(error instanceof StaleTokenError)) throw error;
  console.log(`${buyer} is refused: a later holder has claimed the stock`);
} finally {
  await redlock.close();
  for (const client of clients) client.disconnect();
  s3.destroy();
}
