// Adds a job, and prints its id.
import { PgBoss } from 'pg-boss';

const boss = new PgBoss(process.env.DATABASE_URL ?? 'postgres://localhost');
await boss.start();
await boss.createQueue('invoices', { expireInSeconds: 5, retryLimit: 3 });
console.log(await boss.send('invoices', { customer: process.argv[2] ?? 'dora' }));
await boss.stop();
