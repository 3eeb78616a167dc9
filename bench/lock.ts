import { randomBytes } from 'node:crypto';
import { Redlock } from '@fenced/lock';
import { startRedis } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { RedlockMutex } from 'redis-semaphore';
import NodeRedlock from 'redlock';
import { compare, type Row } from './measure.ts';

const TTL_MS = 10_000;
const IF_OWNER = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end`;

/** One uncontended acquire and release over three nodes. The raw limit is `SET NX PX` and a compare-and-delete on each. */
export async function benchLock(): Promise<Row[]> {
  await using redis = await startRedis(3);
  const clients = redis.nodes.map(({ port }) => new Redis(port));
  const fenced = new Redlock({ nodes: clients });
  const nodeRedlock = new NodeRedlock(clients);
  const rows = await compare(
    'lock',
    [
      {
        name: 'SET NX PX, then compare and delete, on three nodes',
        run: async () => {
          const owner = randomBytes(20).toString('hex');
          await Promise.all(clients.map((one) => one.set('raw', owner, 'PX', TTL_MS, 'NX')));
          await Promise.all(clients.map((one) => one.eval(IF_OWNER, 1, 'raw', owner)));
        },
      },
      {
        name: '@fenced/lock',
        run: async () =>
          (await fenced.acquire('fenced', { ttlMs: TTL_MS, waitMs: TTL_MS })).release(),
      },
      {
        name: 'redlock 5.0.0-beta.2',
        run: async () => (await nodeRedlock.acquire(['node-redlock'], TTL_MS)).release(),
      },
      {
        name: 'redis-semaphore 5.8.0 RedlockMutex',
        run: async () => {
          const mutex = new RedlockMutex(clients, 'semaphore', {
            lockTimeout: TTL_MS,
            refreshInterval: 0,
          });
          await mutex.acquire();
          await mutex.release();
        },
      },
    ],
    200,
  );
  for (const client of clients) client.disconnect();
  return rows;
}
