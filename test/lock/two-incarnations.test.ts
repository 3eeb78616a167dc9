import { Redlock } from '@fenced/lock';
import { type LocalRedisNode, startLocalRedis } from '@fenced/testbed';
import type { Redis } from 'ioredis';
import { expect, test } from 'vitest';
import { Clients, until } from './harness/redlock-nodes.js';

/** The servers: `old` and `new` are the old master of node e, and the replica that replaced it. */
const SERVERS = ['a', 'b', 'c', 'd', 'old', 'new'] as const;
type Server = (typeof SERVERS)[number];

/** Sees requests by their command. It fails those that do not get through. */
type Passes = (server: Server, command: string) => boolean;

/** The clients of five nodes, each of which reaches some of the servers. */
class World {
  readonly clients = new Clients();
  readonly servers: Readonly<Record<Server, LocalRedisNode>>;

  constructor(nodes: readonly LocalRedisNode[]) {
    this.servers = Object.fromEntries(SERVERS.map((name, at) => [name, nodes[at]])) as Record<
      Server,
      LocalRedisNode
    >;
  }

  /** A client that reaches these servers only. */
  client(reached: readonly Server[], passes: Passes = () => true): Redlock {
    const e = reached.includes('new') ? 'new' : 'old';
    const servers: readonly Server[] = ['a', 'b', 'c', 'd', e];
    const nodes = servers.map((server, at) => {
      const client = this.#connect(server, reached.includes(server) ? passes : () => false);
      return { name: 'abcde'.charAt(at), client };
    });
    return new Redlock({ nodes, keyPrefix: this.clients.keyPrefix, maxTtlMs: 5_000 });
  }

  #connect(server: Server, passes: Passes): Redis {
    const client = this.clients.connect(this.servers[server].port);
    for (const name of ['evalsha', 'eval'] as const) {
      const send = client[name].bind(client);
      client[name] = async (...sent: unknown[]): Promise<unknown> => {
        const command = String(sent[3 + Number(sent[1])]);
        if (!passes(server, command)) throw new Error('the request is lost');
        return Reflect.apply(send, client, sent);
      };
    }
    return client;
  }

  async restart(server: Server): Promise<void> {
    await this.servers[server].kill();
    await this.servers[server].start('none');
  }

  /** Lets this client readmit nodes until the server votes. */
  async readmit(lock: Redlock, server: Server): Promise<void> {
    await until(async () => {
      await lock.readmit();
      return (await this.clients.memory(this.servers[server])).isVoting;
    });
    await lock.close();
  }
}

/**
 * Two clients nominate different incarnations of node e under one generation. Then other nodes
 * restart one by one, and are readmitted from different majorities. At most two nodes are without a
 * vote at any moment, and each client that readmits a node sees a majority that votes.
 */
test('two incarnations of a node under one generation never win with majorities that share no memory', async () => {
  await using service = await startLocalRedis(SERVERS.length);
  const world = new World(service.nodes);
  using clients = world.clients;
  const first = world.client(['a', 'b', 'c', 'd', 'old']);
  for (const server of ['a', 'b', 'c', 'd', 'old'] as const) {
    await until(async () => {
      await first.readmit();
      return (await clients.memory(world.servers[server])).isVoting;
    });
  }
  await (await first.acquire('r', { ttlMs: 100, waitMs: 5_000 })).release();
  await first.close();

  // The replica of e is promoted without data. Only node a promises; then the client dies.
  const dying = world.client(
    ['a', 'b', 'c', 'd', 'new'],
    (server, command) =>
      command === 'inspect' || (command === 'promise' && (server === 'a' || server === 'new')),
  );
  const admin = clients.connect(world.servers.a.port);
  await until(async () => {
    await dying.readmit();
    const roster = (await admin.hget(`${clients.keyPrefix}node`, 'roster')) ?? '';
    const { incarnation } = await clients.memory(world.servers.new);
    return incarnation !== '' && roster.endsWith(`:${incarnation}`);
  });
  await dying.close();

  await world.restart('old');
  await world.readmit(world.client(['b', 'c', 'd', 'old']), 'old');
  for (const server of ['c', 'd'] as const) {
    await world.restart(server);
    await world.readmit(world.client(['a', 'b', 'c', 'd']), server);
  }
  await world.readmit(world.client(['a', 'c', 'd', 'new']), 'new');
  await world.restart('a');
  await world.readmit(world.client(['a', 'b', 'c', 'd']), 'a');

  const sides = [world.client(['a', 'b', 'old']), world.client(['c', 'd', 'new'])];
  let last = 0n;
  const winners = new Set<Redlock>();
  for (const lock of [...sides, ...sides, ...sides]) {
    const attempt = await lock.tryAcquire('r', { ttlMs: 5_000 });
    if (!attempt.ok) continue;
    winners.add(lock);
    expect(attempt.lease.token).toBeGreaterThan(last);
    last = attempt.lease.token;
    await attempt.lease.release();
  }
  expect(winners.size).toBeLessThan(2);
  for (const lock of sides) await lock.close();

  const healed = world.client(['a', 'b', 'c', 'd', 'new']);
  const lease = await healed.acquire('r', { ttlMs: 100, waitMs: 10_000 });
  expect(lease.token).toBeGreaterThan(last);
  await healed.close();
}, 60_000);
