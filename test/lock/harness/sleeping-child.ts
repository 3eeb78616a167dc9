// Holds a lease of 1 s on a machine that sleeps meanwhile. A waiter of the same process wants the
// lock next. Prints what both believe.
import './standing-clock.ts';
import { writeSync } from 'node:fs';
import { Redlock } from '@fenced/lock';
import { Redis } from 'ioredis';

const { ports, keyPrefix } = JSON.parse(process.argv[2] ?? '');
const clients: Redis[] = ports.map((port: number) => new Redis(port));
const nodes = clients.map((client, at) => ({ name: String.fromCharCode(97 + at), client }));
const redlock = new Redlock({ nodes, keyPrefix });
const say = (what: object): number => writeSync(1, `${JSON.stringify(what)}\n`);

const lease = await redlock.acquire('x', { ttlMs: 1_000, waitMs: 20_000 });
const wish = redlock.acquire('x', { ttlMs: 1_000, waitMs: 20_000 });
say({ held: String(lease.token) });
process.once('SIGUSR1', async () => {
  // The machine sleeps between this statement and the next.
  const remainingMs = lease.remainingMs();
  await lease.release();
  const next = await wish;
  say({ remainingMs, next: String(next.token) });
  await next.release();
  for (const client of clients) client.disconnect();
});
