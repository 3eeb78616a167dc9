// Several workers of one process. Each waits for the same lock `rounds` times, one after the other.
// It prints a JSON line for each acquisition:
//
// - The earliest and the latest arrival of the waiter, by the clock of the nodes. That clock is
//   this machine's.
// - The times at which it was queued, was served, and gave up the lock. These are monotonic
//   milliseconds that all processes of this machine share.
import { AsyncLocalStorage } from 'node:async_hooks';
import { subscribe } from 'node:diagnostics_channel';
import { writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { LockEvents } from '@fenced/lock';
import { Redis } from 'ioredis';

const { ports, keyPrefix, resource, ttlMs, workers, holdMs, rounds, module } = JSON.parse(
  process.argv[2] ?? '',
);
/** `module` is the path of an earlier version of the library, if given. */
const { Redlock }: typeof import('@fenced/lock') = await import(module ?? '@fenced/lock');
const clients: Redis[] = ports.map((port: number) => new Redis(port));
for (const client of clients) client.on('error', () => {});
const nodes = clients.map((client, at) => ({ name: String.fromCharCode(97 + at), client }));
const redlock = new Redlock({ nodes, keyPrefix });
const nowMs = (): number => Number(process.hrtime.bigint()) / 1e6;
const print = (line: object): number => writeSync(1, `${JSON.stringify(line)}\n`);

interface Wait {
  readonly askedMs: number;
  cameMs: number | null;
  queuedMs: number | null;
  /** True if other workers of this process wait already. Then this one enqueues at once. */
  readonly isBehind: boolean;
}
const waiting = new Set<Wait>();
const waits = new AsyncLocalStorage<Wait>();
subscribe('fenced:lock:contended', (message) => {
  const wait = waits.getStore();
  if (!wait) return;
  const { nodes: answers } = message as LockEvents['fenced:lock:contended'];
  if (wait.cameMs !== null) {
    wait.queuedMs ??= nowMs();
    return;
  }
  const times = answers.flatMap(({ timeMs }) => timeMs ?? []).toSorted((a, b) => a - b);
  // The median of the nodes' times is the time of arrival at a majority.
  wait.cameMs = times[Math.floor(times.length / 2)] ?? null;
  if (wait.isBehind) wait.queuedMs = nowMs();
});

const work = async (worker: number): Promise<void> => {
  for (let round = 0; round < rounds; round += 1) {
    const isBehind = [...waiting].some(({ cameMs }) => cameMs !== null);
    const wait: Wait = { askedMs: Date.now(), cameMs: null, queuedMs: null, isBehind };
    waiting.add(wait);
    const lease = await waits.run(wait, () => redlock.acquire(resource, { ttlMs, waitMs: 60_000 }));
    waiting.delete(wait);
    const servedMs = nowMs();
    await sleep(holdMs);
    const leftMs = nowMs();
    await lease.release();
    print({ worker, ...wait, servedMs, leftMs, token: String(lease.token) });
  }
};
await Promise.all(Array.from({ length: workers }, (_, worker) => work(worker)));
for (const client of clients) client.disconnect();
