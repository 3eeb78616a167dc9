import { type LocalRedisNode, type RedisNode, TcpProxy } from '@fenced/testbed';
import { Redis } from 'ioredis';
import type { LockAddress } from './job.js';
import { leaseAt, type NodeLease, useBefore } from './locks/open.js';
import { until } from './until.js';

const RECONNECT_MS = 5;

/** Inspects and breaks the lock nodes of one run. Nodes have letters: `abc` names three nodes. */
export class LockNodes implements AsyncDisposable {
  readonly #breakable: readonly LocalRedisNode[];
  readonly #lock: LockAddress;
  readonly #resource: string;
  /** A Redis client for each node, by the node's letter. */
  readonly #clients: Map<string, Redis>;
  #replication: TcpProxy | null = null;

  /**
   * @param breakable the servers of the nodes, and one more for a failover; empty if the story may
   *   not break nodes
   */
  constructor(lock: LockAddress, resource: string, breakable: readonly LocalRedisNode[]) {
    this.#breakable = breakable;
    this.#lock = lock;
    this.#resource = resource;
    this.#clients = new Map(lock.nodes.map(({ name, url }) => [name, connect(url)]));
  }

  /** Brings the nodes into a state of long use: the resource's next token is `nextToken`. */
  async useBefore(resource: string, nextToken: number): Promise<void> {
    const nodes = [...this.#clients].map(([name, client]) => ({ name, client }));
    await useBefore(this.#lock, nodes, resource, nextToken);
  }

  /** Resolves when no majority holds the present lease. */
  async leaseEnds(): Promise<void> {
    // Only this owner's lease counts: the next client may hold the lock at the next poll.
    const owner = (await this.#owners()).find((held) => held !== null);
    await until('the lease ends', async () => {
      const owners = await this.#owners();
      return owners.filter((held) => held !== null && held === owner).length <= owners.length / 2;
    });
  }

  /** Resolves when each of these nodes holds a lease. */
  async hold(names: string): Promise<void> {
    await until(`${names} hold the lock`, async () =>
      (await this.#owners(names)).every((held) => held !== null),
    );
  }

  /** Resolves when none of these nodes holds a lease. */
  async haveForgotten(names: string): Promise<void> {
    await until(`${names} have forgotten the lock`, async () =>
      (await this.#owners(names)).every((held) => held === null),
    );
  }

  /** Saves the node's data to disk. */
  async save(name: string): Promise<void> {
    await this.#client(name).save();
  }

  /** Kills the servers with SIGKILL and starts them again at once. */
  async restart(names: string, data: 'kept' | 'none'): Promise<void> {
    const nodes = [...names].map((name) => this.#server(name));
    await Promise.all(nodes.map((node) => node.kill()));
    await Promise.all(nodes.map((node) => node.start(data)));
  }

  async moveClock(name: string, aheadMs: number): Promise<void> {
    await this.#server(name).setClock(aheadMs);
  }

  /**
   * Gives the node a replica. Call it before the node is used: the first replica changes the
   * replication id, by which the lock recognises a node.
   */
  async giveReplica(name: string): Promise<void> {
    const spare = this.#spare();
    this.#replication = await TcpProxy.start(this.#server(name));
    // By default, the master first waits for more replicas.
    await this.#client(name).config('SET', 'repl-diskless-sync-delay', '0');
    const replica = connect(spare.url);
    await replica.replicaof(this.#replication.host, this.#replication.port);
    await until(`the replica follows ${name}`, async () =>
      (await replica.info('replication')).includes('master_link_status:up'),
    );
    replica.disconnect();
  }

  /** From now on, the replica receives nothing. */
  cutReplication(): void {
    this.#replication?.hold('toClient');
  }

  /** Kills the master and promotes its replica. Resolves to the server that is the node now. */
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
    // Breakable nodes end with the run, so only shared ones are cleaned.
    if (this.#breakable.length === 0) {
      const own = ['node', 'node-before'].map((key) => this.#lock.keyPrefix + key);
      await Promise.all(clients.map((client) => client.del(own)));
    }
    for (const client of clients) client.disconnect();
  }

  /** The lease that the node holds by its own clock. Waits for a node that is down. */
  lease(name: string): Promise<NodeLease | null> {
    return leaseAt(this.#lock, this.#client(name), this.#resource);
  }

  #owners(names: string = [...this.#clients.keys()].join('')): Promise<(string | null)[]> {
    return Promise.all([...names].map(async (name) => (await this.lease(name))?.owner ?? null));
  }

  #client(name: string): Redis {
    const client = this.#clients.get(name);
    if (!client) throw new Error(`no such lock node: ${name}`);
    return client;
  }

  #server(name: string): LocalRedisNode {
    const node = this.#breakable.find((one) => one.name === name);
    if (!node) throw new Error(`this story may not break lock node ${name}`);
    return node;
  }

  #spare(): LocalRedisNode {
    const spare = this.#breakable.find((one) => !this.#clients.has(one.name));
    if (!spare) throw new Error('no server is left to fail over to');
    return spare;
  }
}

function connect(url: string): Redis {
  const client = new Redis(url, { retryStrategy: () => RECONNECT_MS, maxRetriesPerRequest: null });
  // Errors are ignored: requests wait until a killed node is back.
  client.on('error', () => {});
  return client;
}
