// Takes and releases many locks at once. Prints by how many bytes per lease the old generation of
// V8's heap grows.
import { writeSync } from 'node:fs';
import { constants, type PerformanceEntry, PerformanceObserver } from 'node:perf_hooks';
import { getHeapSpaceStatistics } from 'node:v8';
import { Redlock } from '@fenced/lock';
import { Redis } from 'ioredis';

const { ports, keyPrefix } = JSON.parse(process.argv[2] ?? '');
const clients: Redis[] = ports.map((port: number) => new Redis(port));
const redlock = new Redlock({ nodes: clients, keyPrefix });
/** Node's record of a garbage collection. */
type Collection = PerformanceEntry & { readonly detail: { readonly kind: number } };

const AT_ONCE = 32;
const COUNT = 6_000;

async function cycles(count: number): Promise<void> {
  const one = async (worker: number): Promise<void> => {
    for (let done = 0; done < count; done += AT_ONCE) {
      await using _ = await redlock.acquire(`${worker}`, { ttlMs: 10_000 });
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, (_, worker) => one(worker)));
}

function oldBytes(): number {
  const old = getHeapSpaceStatistics().find(({ space_name: name }) => name === 'old_space');
  return old?.space_used_size ?? 0;
}

// Warms up: V8 keeps data about code that runs for the first time, which is no leak.
await cycles(10_000);
// A major collection moves all objects that are alive now to the old generation.
globalThis.gc?.();
await cycles(1_000);
const kinds: number[] = [];
const observer = new PerformanceObserver((list) => {
  for (const entry of list.getEntries() as Collection[]) kinds.push(entry.detail.kind);
});
observer.observe({ type: 'gc' });
const before = oldBytes();
await cycles(COUNT);
const bytesPerCycle = (oldBytes() - before) / COUNT;
const majorCollections = kinds.filter(
  (kind) => kind !== constants.NODE_PERFORMANCE_GC_MINOR,
).length;
writeSync(1, JSON.stringify({ bytesPerCycle, majorCollections }));
for (const client of clients) client.disconnect();
