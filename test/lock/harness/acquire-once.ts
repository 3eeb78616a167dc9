// A client that takes one lease, prints the token and disconnects. Then the process ends by itself,
// unless a timer or a socket of the lock keeps it alive.
import { writeSync } from 'node:fs';
import { Redlock } from '@fenced/lock';
import { Redis } from 'ioredis';

const { ports, keyPrefix, firstToken, resource, ttlMs, meets } = JSON.parse(process.argv[2] ?? '');
const clients: Redis[] = ports.map((port: number) => {
  const client = new Redis(port, { retryStrategy: () => 20 });
  client.on('error', () => {});
  return client;
});
const redlock = new Redlock({
  nodes: clients.map((client, at) => ({ name: `n${at}`, client })),
  keyPrefix,
  firstToken: BigInt(firstToken),
});
writeSync(1, 'asks\n');
const lease = await redlock.acquire(resource, { ttlMs, waitMs: 60_000 });
await lease.release();
writeSync(1, `${lease.token}\n`);
// With `meets`, the index of a node: acquires until some client has begun to readmit that node.
while (meets !== undefined && !(await clients[meets]?.hexists(`${keyPrefix}node`, 'roster'))) {
  await (await redlock.acquire(resource, { ttlMs, waitMs: 60_000 })).release();
}
for (const client of clients) client.disconnect();
