// A client that acquires one resource again and again until it is ended, and tells what it got: a JSON line an acquisition,
// in monotonic milliseconds that all processes of this machine share.
import { writeSync } from 'node:fs';
import { Redlock } from '@fenced/lock';
import { Redis } from 'ioredis';

const { nodes, keyPrefix, maxTtlMs } = JSON.parse(process.argv[2] ?? '');
const redlock = new Redlock({
  nodes: nodes.map(({ name, port }: { name: string; port: number }) => {
    const client = new Redis(port, { retryStrategy: () => 20 });
    client.on('error', () => {});
    return { name, client };
  }),
  keyPrefix,
  maxTtlMs,
});
const nowMs = (): number => Number(process.hrtime.bigint()) / 1e6;

for (;;) {
  const askedMs = nowMs();
  const attempt = await redlock.tryAcquire('hot', { ttlMs: maxTtlMs });
  if (!attempt.ok) {
    await new Promise((resolve) => setTimeout(resolve, 5 + Math.random() * 20));
    continue;
  }
  const { lease } = attempt;
  writeSync(1, `${JSON.stringify({ askedMs, heldMs: nowMs(), token: String(lease.token) })}\n`);
  // Every other lease is left to end by itself, as a crashed holder's does.
  if (Math.random() < 0.8) await lease.release();
}
