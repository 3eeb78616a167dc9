import { type LocalRedisNode, type RedisNode, TcpProxy } from '@fenced/testbed';
import { Redis } from 'ioredis';
import type { LockAddress } from './job.js';
import { ownerAt, useBefore } from './locks/open.js';
import { until } from './until.js';

const RECONNECT_MS = 5;

/** Looks into the lock nodes of one cell, and breaks them. They go by their letters: `abc` are three. */
export class LockNodes implements AsyncDisposable {
  readonly #breakable: readonly LocalRedisNode[];
  readonly #lock: LockAddress;
  readonly #resource: string;
  /** By the letter under which the clients know the server. */
  readonly #clients: Map<string, Redis>;
  #replication: TcpProxy | null = null;

  /** @param breakable what the story may break: the nodes themselves, and one more to fail over to */
  constructor(lock: LockAddress, resource: string, breakable: readonly LocalRedisNode[]) {
    this.#breakable = breakable;
    this.#lock = lock;
    this.#resource = resource;
    this.#clients = new Map(lock.nodes.map(({ name, url }) => [name, connect(url)]));
  }

  /** As if the nodes had been in use for long: the next holder of the resource is given `nextToken`. */
  async useBefore(resource: string, nextToken: number): Promise<void> {
    const nodes = [...this.#clients].map(([name, client]) => ({ name, client }));
    await useBefore(this.#lock, nodes, resource, nextToken);
  }

  /** Resolves when no majority holds the present lease any more. */
  async leaseIsOver(): Promise<void> {
    // The next client may hold the lock by the time we look again: only this owner's lease counts.
    const owner = (await this.#owners()).find((held) => held !== null);
    await until('the lease ends', async () => {
      const owners = await this.#owners();
      return owners.filter((held) => held !== null && held === owner).length <= owners.length / 2;
    });
  }

  /** Resolves when each of these nodes holds the lock for somebody. */
  async hold(names: string): Promise<void> {
    await until(`${names} hold the lock`, async () =>
      (await this.#owners(names)).every((held) => held !== null),
    );
  }

  /** Resolves when none of these nodes holds the lock for anybody. */
  async haveForgotten(names: string): Promise<void> {
    await until(`${names} have forgotten the lock`, async () =>
      (await this.#owners(names)).every((held) => held === null),
    );
  }

  /** Writes to disk what the node has now. */
  async save(name: string): Promise<void> {
    await this.#client(name).save();
  }

  /** Ends the servers, with SIGKILL, and starts them again at once. */
  async restart(names: string, data: 'kept' | 'none'): Promise<void> {
    const nodes = [...names].map((name) => this.#server(name));
    await Promise.all(nodes.map((node) => node.kill()));
    await Promise.all(nodes.map((node) => node.start(data)));
  }

  async moveClock(name: string, aheadMs: number): Promise<void> {
    await this.#server(name).setClock(aheadMs);
  }

  /** Gives the node a replica; to be done first of all, for the node's first replica begins another history of its data. */
  async giveReplica(name: string): Promise<void> {
    const spare = this.#spare();
    this.#replication = await TcpProxy.start(this.#server(name));
    // Else the master waits for more replicas before it sends anything.
    await this.#client(name).config('SET', 'repl-diskless-sync-delay', '0');
    const replica = connect(spare.url);
    await replica.replicaof(this.#replication.host, this.#replication.port);
    await until(`the replica follows ${name}`, async () =>
      (await replica.info('replication')).includes('master_link_status:up'),
    );
    replica.disconnect();
  }

  /** What the node does from now on does not reach its replica. */
  cutReplication(): void {
    this.#replication?.hold('toClient');
  }

  /** Ends the master and makes its replica one. Resolves to the server that stands for the node from now on. */
  async failOver(name: string): Promise<RedisNode> {
    const spare = this.#spare();
    await this.#server(name).kill();
    await this.#replication?.stop();
    this.#client(name).disconnect();
    const replica = connect(spare.url);
    this.#clients.set(name, replica);
    await replica.replicaof('NO', 'ONE');
    return spare;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#replication?.stop();
    const clients = [...this.#clients.values()];
    // What is ours to break is thrown away as a whole.
    if (this.#breakable.length === 0) {
      const own = ['node', 'node-before'].map((key) => this.#lock.keyPrefix + key);
      await Promise.all(clients.map((client) => client.del(own)));
    }
    for (const client of clients) client.disconnect();
  }

  #owners(names: string = [...this.#clients.keys()].join('')): Promise<(string | null)[]> {
    return Promise.all(
      [...names].map((name) => ownerAt(this.#lock, this.#client(name), this.#resource)),
    );
  }

  #client(name: string): Redis {
    const client = this.#clients.get(name);
    if (!client) throw new Error(`there is no lock node ${name}`);
    return client;
  }

  #server(name: string): LocalRedisNode {
    const node = this.#breakable.find((one) => one.name === name);
    if (!node) throw new Error(`lock node ${name} is not ours to break`);
    return node;
  }

  #spare(): LocalRedisNode {
    const spare = this.#breakable.find((one) => !this.#clients.has(one.name));
    if (!spare) throw new Error('there is no server to fail over to');
    return spare;
  }
}

function connect(url: string): Redis {
  const client = new Redis(url, { retryStrategy: () => RECONNECT_MS, maxRetriesPerRequest: null });
  // A node that has ended is asked again when it is back.
  client.on('error', () => {});
  return client;
}
