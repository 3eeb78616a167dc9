// A worker of a pg-boss queue. If its job was given to another worker, that worker's result stays.
import { S3Client } from '@aws-sdk/client-s3';
import { StaleTokenError } from '@fenced/store';
import { FencedS3 } from '@fenced/store/s3';
import { type Job, PgBoss } from 'pg-boss';

interface Order {
  readonly customer: string;
}

const s3 = new S3Client({});
const invoices = new FencedS3({ client: s3, bucket: process.env.BUCKET ?? 'documents' });
const boss = new PgBoss({
  connectionString: process.env.DATABASE_URL ?? 'postgres://localhost',
  // The time until a job of a dead worker is noticed. The default is a minute.
  superviseIntervalSeconds: 1,
  monitorIntervalSeconds: 1,
});
boss.on('error', console.error);
const [worker = `${process.pid}`] = process.argv.slice(2);

async function writeInvoice([job]: Job<Order>[]): Promise<void> {
  if (!job) return;
  const { customer } = job.data;
  // pg-boss counts the attempts of a job. Their number is a fencing token for the writes of this
  // job.
  const token = job.retryCount + 1;
  try {
    await invoices.put(`invoices/${job.id}`, `${customer} owes 7, says ${worker}`, { token });
    console.log(`${worker} has billed ${customer}`);
  } catch (error) {
    if (!(error instanceof StaleTokenError)) throw error;
    console.log(`${worker} is refused: another worker has billed ${customer}`);
  }
}

await boss.start();
// A job that is not completed after 5 s goes to another worker.
await boss.createQueue('invoices', { expireInSeconds: 5, retryLimit: 3 });
await boss.work<Order>('invoices', writeInvoice);

process.once('SIGTERM', async () => {
  await boss.stop();
  s3.destroy();
});
