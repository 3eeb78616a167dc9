import { randomUUID } from 'node:crypto';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { setTimeout } from 'node:timers/promises';
import { type LockEvents, Redlock } from '@fenced/lock';
import { type RedisService, startRedis } from '@fenced/testbed';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, test } from 'vitest';

type Name = keyof LockEvents;
const names: Name[] = [
  'fenced:lock:acquire',
  'fenced:lock:contended',
  'fenced:lock:extended',
  'fenced:lock:lost',
  'fenced:lock:released',
  'fenced:lock:node-refused',
  'fenced:lock:readmitted',
];

let service: RedisService;
let clients: Redis[];
beforeAll(async () => {
  service = await startRedis(3);
  clients = service.nodes.map(({ port }) => new Redis(port));
});
afterAll(async () => {
  for (const client of clients ?? []) client.disconnect();
  await service?.stop();
});

test('all events of a lease and of its nodes are published on diagnostics channels', async () => {
  const told: [string, unknown][] = [];
  const listen = (message: unknown, name: string | symbol): void => {
    told.push([String(name), message]);
  };
  for (const name of names) subscribe(name, listen);
  const of = (name: Name): unknown[] =>
    told.filter(([one]) => one === name).map(([, what]) => what);
  try {
    const nodes = service.nodes.map(({ name }, at) => ({ name, client: clients[at] as Redis }));
    const keyPrefix = `{${randomUUID()}}:`;
    const lock = new Redlock({ nodes, keyPrefix, firstToken: 33n });
    const lease = await lock.acquire('x', { ttlMs: 5_000 });
    const { token } = lease;
    expect(of('fenced:lock:readmitted').map((event) => (event as { node: string }).node)).toEqual(
      service.nodes.map(({ name }) => name),
    );
    // Two refusals decided that acquisition, so there is no event for the third node.
    const refused = { resources: ['x'], node: { answer: 'not-voting' } };
    expect(of('fenced:lock:node-refused')).toMatchObject([refused, refused]);
    expect(of('fenced:lock:acquire')).toEqual([
      { resources: ['x'], token, ttlMs: 5_000, tookMs: expect.any(Number) },
    ]);

    await lock.tryAcquire('x', { ttlMs: 1_000 });
    expect(of('fenced:lock:contended')).toMatchObject([{ resources: ['x'] }]);
    await lease.extend(8_000);
    expect(of('fenced:lock:extended')).toMatchObject([{ resources: ['x'], token }]);
    await lease.release();
    expect(of('fenced:lock:released')).toMatchObject([{ token, outcome: 'released' }]);
    expect(of('fenced:lock:lost')).toEqual([]);

    const short = await lock.acquire('y', { ttlMs: 500 });
    while (!short.signal.aborted) await setTimeout(5);
    expect(of('fenced:lock:lost')).toMatchObject([{ resources: ['y'], token: short.token }]);
  } finally {
    for (const name of names) unsubscribe(name, listen);
  }
});
