import { LeaseLostError, Redlock } from '@fenced/lock';
import { type LocalRedisNode, startLocalRedis } from '@fenced/testbed';
import type { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { LockTable } from './harness/lock-table.js';
import { Clients, until } from './harness/redlock-nodes.js';

/** Long enough for a lease that shall last until the end of a test. */
const LONG_MS = 30_000;
const SHORT_MS = 400;

type Name = 'a' | 'b' | 'c';
/** A request gets through, is lost, or waits for a signal. */
type Fate = 'sent' | 'lost' | Promise<void>;

/** Three nodes, and clients whose requests to each node may be lost or delayed. */
class World {
  readonly clients = new Clients();
  readonly nodes: Readonly<Record<Name, LocalRedisNode>>;

  constructor([a, b, c]: readonly LocalRedisNode[]) {
    if (!a || !b || !c) throw new Error('three nodes are needed');
    this.nodes = { a, b, c };
  }

  /** @param fateOf is called for each request, with the text that has its commands */
  lock(fateOf: (node: Name, commands: string) => Fate = () => 'sent'): Redlock {
    const names = Object.keys(this.nodes) as Name[];
    const nodes = names.map((name) => {
      const client = this.clients.connect(this.nodes[name].port);
      return { name, client: withFates(client, (commands) => fateOf(name, commands)) };
    });
    return new Redlock({ nodes, keyPrefix: this.clients.keyPrefix });
  }

  table(node: Name): LockTable {
    const client = this.clients.connect(this.nodes[node].port);
    return new LockTable(client, this.clients.keyPrefix);
  }
}

function withFates(client: Redis, fateOf: (commands: string) => Fate): Redis {
  for (const name of ['evalsha', 'eval'] as const) {
    const send = client[name].bind(client);
    client[name] = async (...sent: unknown[]): Promise<unknown> => {
      const fate = fateOf(String(sent[3 + Number(sent[1])]));
      if (fate === 'lost') throw new Error('the request is lost');
      await (fate === 'sent' ? null : fate);
      return Reflect.apply(send, client, sent);
    };
  }
  return client;
}

test('an ACQUIRE that arrives after a later lease does not count for an extension', async () => {
  await using service = await startLocalRedis(3);
  const world = new World(service.nodes);
  using _ = world.clients;
  const others = world.lock();
  await (await others.acquire('other', { ttlMs: SHORT_MS, waitMs: 10_000 })).release();

  const late = Promise.withResolvers<void>();
  const holder = world.lock((node, commands) => {
    if (node === 'b') return commands.includes('acquire') ? late.promise : 'lost';
    return node === 'c' && commands.includes('extend') ? 'lost' : 'sent';
  });
  const lease = await holder.acquire('r', { ttlMs: SHORT_MS });
  const held = { resource: 'r', owner: lease.owner, token: lease.token };
  await expect(lease.extend(LONG_MS)).rejects.toThrow();
  const later = await others.acquire('r', { ttlMs: SHORT_MS, waitMs: 10_000 });
  expect(later.token).toBeGreaterThan(lease.token);
  await later.release();
  late.resolve();
  await until(async () => (await world.table('b').ownerOf('r')) === held.owner);
  expect(await world.table('a').ownerOf('r')).toBe(held.owner);

  await expect(others.extend(held, LONG_MS)).rejects.toThrow(LeaseLostError);
  await others.close();
  await holder.close();
}, 30_000);

test('the exception: if a node loses a single lock, a lease may be extended after a later one, whose token is higher', async () => {
  await using service = await startLocalRedis(3);
  const world = new World(service.nodes);
  using _ = world.clients;
  let fate: (node: Name) => Fate = (node) => (node === 'c' ? 'lost' : 'sent');
  const holder = world.lock((node) => fate(node));
  const others = world.lock();
  await (await others.acquire('other', { ttlMs: SHORT_MS, waitMs: 10_000 })).release();
  await world.table('c').setMax((await others.acquire('o', { ttlMs: SHORT_MS })).token + 100n);
  const lease = await holder.acquire('r', { ttlMs: LONG_MS });

  // The later lease wins c. Its request to b is delayed, and c loses its lock.
  const late = Promise.withResolvers<void>();
  const rival = world.lock((node, commands) => {
    if (node === 'a') return 'lost';
    return node === 'b' && commands.includes('acquire') ? late.promise : 'sent';
  });
  const winning = rival.acquire('r', { ttlMs: LONG_MS });
  await until(async () => (await world.table('c').ownerOf('r')) !== null);
  await world.table('c').free('r');

  // Extensions bring the lease back to c. Then they do not reach b, where the lease would end.
  fate = () => 'sent';
  await until(async () => {
    await lease.extend(LONG_MS);
    return (await world.table('c').ownerOf('r')) === lease.owner;
  });
  await world.table('b').free('r');
  fate = (node) => (node === 'b' ? 'lost' : 'sent');
  late.resolve();
  const later = await winning;
  expect(later.token).toBeGreaterThan(lease.token);
  await lease.extend(LONG_MS);
  expect(later.remainingMs()).toBeGreaterThan(0);
  await Promise.all([holder, others, rival].map((lock) => lock.close()));
}, 30_000);
