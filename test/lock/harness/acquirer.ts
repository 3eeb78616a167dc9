// A client that acquires resources in a loop until it is ended. It prints a JSON line for each
// acquisition, in monotonic milliseconds that all processes of this machine share. A failed
// acquisition has a line, too, with the nodes' answers.
import { writeSync } from 'node:fs';
import { Redlock } from '@fenced/lock';
import { Redis } from 'ioredis';

const { nodes, keyPrefix, maxTtlMs, fenceTtlMs } = JSON.parse(process.argv[2] ?? '');
const redlock = new Redlock({
  nodes: nodes.map(({ name, port }: { name: string; port: number }) => {
    const client = new Redis(port, { retryStrategy: () => 20 });
    client.on('error', () => {});
    return { name, client };
  }),
  keyPrefix,
  maxTtlMs,
  fenceTtlMs,
});
const SETS = [['hot'], ['hot'], ['hot', 'cold'], ['cold']] as const;
const nowMs = (): number => Number(process.hrtime.bigint()) / 1e6;
const tell = (line: object): number => writeSync(1, `${JSON.stringify(line)}\n`);

for (;;) {
  const resources = SETS[Math.floor(Math.random() * SETS.length)] ?? SETS[0];
  const askedMs = nowMs();
  const attempt = await redlock.tryAcquire(resources, { ttlMs: maxTtlMs });
  if (!attempt.ok) {
    const nodes = attempt.nodes.map(
      ({ name, answer, error }) => `${name} ${error?.message ?? answer}`,
    );
    tell({ failed: attempt.reason, atMs: nowMs(), nodes });
    await new Promise((resolve) => setTimeout(resolve, 5 + Math.random() * 20));
    continue;
  }
  const { lease } = attempt;
  tell({ resources, askedMs, heldMs: nowMs(), token: String(lease.token) });
  // Some leases are left to end by themselves, as after a crash of their holder.
  if (Math.random() < 0.9) await lease.release();
}
