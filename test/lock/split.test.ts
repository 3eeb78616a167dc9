import { fork } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { Redlock } from '@fenced/lock';
import { startRedis } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { expect, test } from 'vitest';

test('clients that retry without a pause do not split the votes for ever', async () => {
  await using service = await startRedis(3);
  const ports = service.nodes.map(({ port }) => port);
  const clients = ports.map((port) => new Redis(port));
  const keyPrefix = `{${randomUUID()}}:`;
  const lock = new Redlock({
    nodes: clients.map((client, at) => ({ name: String(ports[at]), client })),
    keyPrefix,
  });
  await (await lock.acquire('other', { ttlMs: 1_000, waitMs: 10_000 })).release();
  const told = await Promise.all(
    ports.map(async () => {
      const order = JSON.stringify({ ports, keyPrefix, forMs: 2_000 });
      const child = fork(new URL('./harness/tight-acquirer.ts', import.meta.url), [order]);
      const [counts] = await once(child, 'message');
      return counts as { readonly tried: number; readonly won: number };
    }),
  );
  for (const client of clients) client.disconnect();
  const sum = (of: 'tried' | 'won'): number => told.reduce((all, counts) => all + counts[of], 0);
  // About half of the tries win. If a client sent a release and its next try together, 1 % would.
  expect(sum('won') / sum('tried')).toBeGreaterThan(0.1);
});
