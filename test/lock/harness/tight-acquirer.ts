// A client that tries for one lock in a loop without a pause, for some time. It then prints the
// number of tries and of leases.
import { Redlock } from '@fenced/lock';
import { Redis } from 'ioredis';

const { ports, keyPrefix, forMs } = JSON.parse(process.argv[2] ?? '');
const nodes = ports.map((port: number) => ({ name: String(port), client: new Redis(port) }));
const lock = new Redlock({ nodes, keyPrefix });
const endMs = performance.now() + forMs;
let [tried, won] = [0, 0];
while (performance.now() < endMs) {
  const attempt = await lock.tryAcquire('x', { ttlMs: 10_000 });
  tried += 1;
  if (!attempt.ok) continue;
  won += 1;
  await attempt.lease.release();
}
process.send?.({ tried, won }, () => process.exit());
