import { randomUUID } from 'node:crypto';
import { Redlock, type RedlockConfig, type Runtime } from '@fenced/lock';
import { type LocalRedisNode, startLocalRedis, TcpProxy } from '@fenced/testbed';
import { Redis, type RedisOptions } from 'ioredis';
import { LockTable } from './lock-table.js';
import { until } from './redlock-nodes.js';

export type ClientOptions = Pick<
  RedisOptions,
  'db' | 'keyPrefix' | 'username' | 'password' | 'maxRetriesPerRequest' | 'retryStrategy'
>;

export interface SideOptions {
  readonly client?: ClientOptions;
  readonly config?: Partial<RedlockConfig>;
  readonly runtime?: Runtime;
  /** Prepares the proxy of each node before a client connects. */
  readonly before?: (door: TcpProxy, at: number) => void;
}

/**
 * One program that locks. It has its own connection to each node, which can be disturbed without an
 * effect on others.
 */
export class Side implements AsyncDisposable {
  /** The proxies between this program and the nodes. */
  readonly doors: readonly TcpProxy[];
  readonly clients: readonly Redis[];
  readonly lock: Redlock;

  constructor(doors: readonly TcpProxy[], keyPrefix: string, options: SideOptions) {
    this.doors = doors;
    this.clients = doors.map(({ port }) => connect(port, options.client));
    const nodes = this.clients.map((client, at) => ({ name: nameOf(at), client }));
    const config = { nodes, keyPrefix, firstToken: 33n, ...options.config };
    this.lock = new Redlock(config, ...(options.runtime ? [options.runtime] : []));
  }

  heal(): void {
    for (const door of this.doors) door.heal();
  }

  /** Resolves when the nodes have answered all requests that were sent to them. */
  async untilAnswered(): Promise<void> {
    for (const client of this.clients) await client.ping();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const client of this.clients) client.disconnect();
    await Promise.all([this.lock.close(), ...this.doors.map((door) => door.stop())]);
  }
}

/** Redis nodes, the programs that use them as one lock service, and the nodes' keys. */
export class LockWorld implements AsyncDisposable {
  readonly servers: readonly LocalRedisNode[];
  readonly admins: readonly Redis[];
  /** The number of nodes that are a majority. */
  readonly majority: number;
  keyPrefix = '';
  readonly #service: AsyncDisposable;
  #sides: Side[] = [];

  static async start(count: number): Promise<LockWorld> {
    const service = await startLocalRedis(count);
    return new LockWorld(service, service.nodes);
  }

  private constructor(service: AsyncDisposable, servers: readonly LocalRedisNode[]) {
    this.#service = service;
    this.servers = servers;
    this.admins = servers.map(({ port }) => connect(port));
    this.majority = Math.floor(servers.length / 2) + 1;
  }

  /** The lock table of each node. */
  get lockTables(): readonly LockTable[] {
    return this.admins.map((node) => new LockTable(node, this.keyPrefix));
  }

  /**
   * Ends all programs. Begins a new lock service, under a new key prefix, and lets all nodes vote.
   */
  async renew(config: Partial<RedlockConfig> = {}): Promise<void> {
    await this.#endSides();
    this.keyPrefix = `{${randomUUID()}}:`;
    const { lock } = await this.side({ config });
    await (await lock.acquire('warm-up', { ttlMs: 1_000, waitMs: 5_000 })).release();
    await this.untilClean();
    await until(async () => (await this.#countOf('node', 'history')) === this.servers.length);
  }

  /** Starts another program. */
  async side(options: SideOptions = {}): Promise<Side> {
    const doors = await Promise.all(this.servers.map((server) => TcpProxy.start(server)));
    for (const [at, door] of doors.entries()) options.before?.(door, at);
    const side = new Side(doors, this.keyPrefix, options);
    this.#sides.push(side);
    return side;
  }

  /** As `side`, but resolves when all of its clients are connected. */
  async connected(options: SideOptions = {}): Promise<Side> {
    const side = await this.side(options);
    await until(() => side.clients.every(({ status }) => status === 'ready'));
    return side;
  }

  /**
   * As `connected`, but the client has just seen all nodes vote in time. So for about a second, it
   * asks only a majority first.
   */
  async busy(options: SideOptions = {}): Promise<Side> {
    const side = await this.connected(options);
    const resource = randomUUID();
    for (;;) {
      const before = await this.scripts();
      await (await side.lock.acquire(resource, { ttlMs: 1_000 })).release();
      if ((await this.scripts()).at(-1) === before.at(-1)) return side;
    }
  }

  /** The number of scripts that each node has run. */
  scripts(): Promise<number[]> {
    return Promise.all(
      this.admins.map(async (node) => {
        const [, calls] = /cmdstat_evalsha:calls=(\d+)/.exec(await node.info('commandstats')) ?? [];
        return Number(calls ?? 0);
      }),
    );
  }

  /**
   * The keys of these kinds on all nodes, as `a queue:x`, and the taken locks, as `a lock:x`. By
   * default, all that a lease or a waiter may leave behind.
   */
  async keys(kinds: RegExp = /^(?:lock|queue|waiter):/): Promise<string[]> {
    const { lockTables, keyPrefix } = this;
    const all = await Promise.all(
      this.admins.map(async (node, at) => {
        const keys = await node.keys(`${keyPrefix}*`);
        const locks = (await lockTables[at]?.taken()) ?? [];
        return [
          ...keys.map((key) => key.slice(keyPrefix.length)),
          ...locks.map((resource) => `lock:${resource}`),
        ];
      }),
    );
    return all.flatMap((keys, at) =>
      keys.filter((key) => kinds.test(key)).map((key) => `${nameOf(at)} ${key}`),
    );
  }

  /**
   * Resolves when no lock, queue or waiter is left. Only the time limit of the test limits the
   * wait. It is shorter than the leases, so leftovers of a lease fail the test.
   */
  async untilClean(): Promise<void> {
    await until(async () => (await this.keys()).length === 0);
  }

  /** Resolves when `waiters` wait, each on a majority of the nodes at least. */
  async untilWaiting(waiters: number): Promise<void> {
    await until(async () => {
      const nodesOf = new Map<string, number>();
      for (const key of await this.keys(/^waiter:/)) {
        const waiter = key.slice(key.indexOf('waiter:'));
        nodesOf.set(waiter, (nodesOf.get(waiter) ?? 0) + 1);
      }
      const isInLine = [...nodesOf.values()].every((nodes) => nodes >= this.majority);
      return nodesOf.size === waiters && isInLine;
    });
  }

  /** The length of each node's queue. It counts expired waiters until somebody is served. */
  queueLengths(resource: string): Promise<number[]> {
    return Promise.all(this.admins.map((node) => node.zcard(`${this.keyPrefix}queue:${resource}`)));
  }

  async holders(resource: string): Promise<number> {
    return (await this.keys(/^lock:/)).filter((key) => key.endsWith(` lock:${resource}`)).length;
  }

  /** The number of connections that are subscribed, over all nodes. */
  async listeners(): Promise<number> {
    const lists = await Promise.all(
      this.admins.map((node) => node.call('CLIENT', 'LIST', 'TYPE', 'pubsub')),
    );
    return lists
      .join('')
      .split('\n')
      .filter((line) => line.startsWith('id=')).length;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#endSides();
    for (const admin of this.admins) admin.disconnect();
    await this.#service[Symbol.asyncDispose]();
  }

  async #endSides(): Promise<void> {
    const sides = this.#sides;
    this.#sides = [];
    await Promise.all(this.servers.map((server) => server.pid && server.wake()));
    await Promise.all(sides.map((side) => side[Symbol.asyncDispose]()));
  }

  async #countOf(key: string, field: string): Promise<number> {
    const known = await Promise.all(
      this.admins.map((node) => node.hexists(this.keyPrefix + key, field)),
    );
    return known.reduce((sum, exists) => sum + exists, 0);
  }
}

/** The name of the node with this index: a, b, c … */
export function nameOf(at: number): string {
  return String.fromCharCode('a'.charCodeAt(0) + at);
}

export function connect(port: number, options: ClientOptions = {}): Redis {
  const client = new Redis(port, '127.0.0.1', { retryStrategy: () => 20, ...options });
  client.on('error', () => {});
  return client;
}
