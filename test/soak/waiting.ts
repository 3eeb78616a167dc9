// Many waiters of one process for one lock. It prints the token of each lease, and then a line of
// JSON.
import { writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redlock } from '@fenced/lock';
import { Redis } from 'ioredis';
import { heapBytesNow } from './figures.ts';

const { ports, keyPrefix, waiters } = JSON.parse(process.argv[2] ?? '');
const clients: Redis[] = ports.map((port: number) => new Redis(port));
const nodes = clients.map((client, at) => ({ name: `n${at}`, client }));
const lock = new Redlock({ nodes, keyPrefix, maxTtlMs: 600_000 });
const options = { ttlMs: 60_000, waitMs: 600_000 };

await (await lock.acquire(`warm-up ${process.pid}`, options)).release();
const heapBytes = heapBytesNow();
let failed = 0;
const waiting = Array.from({ length: waiters }, async () => {
  try {
    const lease = await lock.acquire('hot', options);
    writeSync(1, `${lease.token}\n`);
    await lease.release();
  } catch {
    failed += 1;
  }
});
// Waits until all waiters have enqueued, as a rule.
await sleep(5_000);
const startedMs = performance.now();
const before = process.cpuUsage();
await sleep(5_000);
const { user, system } = process.cpuUsage(before);
const processors = (user + system) / 1_000 / (performance.now() - startedMs);
const heapBytesEach = (heapBytesNow() - heapBytes) / waiters;
await Promise.all(waiting);
writeSync(1, `${JSON.stringify({ failed, heapBytesEach, processors })}\n`);
await lock.close();
for (const client of clients) client.disconnect();
