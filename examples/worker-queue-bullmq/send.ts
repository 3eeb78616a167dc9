// Adds a job.
import { Queue } from 'bullmq';

const [url = 'redis://127.0.0.1:6379'] = (process.env.REDIS_URLS ?? '').split(',');
const [customer = 'dora', amount = '7'] = process.argv.slice(2);
const queue = new Queue('bills', { connection: { url } });
await queue.add('bill', { customer, amount: Number(amount) }, { attempts: 3 });
await queue.close();
