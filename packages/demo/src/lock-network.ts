import { TcpProxy, type Upstream } from '@fenced/testbed';
import type { LockAddress } from './job.js';

const clientNumbers = [1, 2] as const;
export type ClientNumber = (typeof clientNumbers)[number];

/** The network between clients and lock nodes. A connection without faults has no proxy. */
export class LockNetwork implements AsyncDisposable {
  readonly #nodes: LockAddress['nodes'];
  readonly #proxies = new Map<string, TcpProxy>();

  constructor(nodes: LockAddress['nodes']) {
    this.#nodes = nodes;
  }

  /** The nodes' addresses for a client that starts now. */
  addresses(client: ClientNumber): LockAddress['nodes'] {
    return this.#nodes.map(({ name, url }) => {
      const proxy = this.#proxies.get(`${client} ${name}`);
      return { name, url: proxy ? `redis://${proxy.host}:${proxy.port}` : url };
    });
  }

  /** Lets a client reach only these nodes. */
  async reaches(client: ClientNumber, names: string): Promise<void> {
    for (const node of this.#nodes) {
      const proxy = await this.#proxyBefore(client, node);
      if (names.includes(node.name)) proxy.accept();
      else proxy.shut();
    }
  }

  /** Puts a proxy before every node, for a client that starts later. */
  async addProxies(client: ClientNumber): Promise<void> {
    await Promise.all(this.#nodes.map((node) => this.#proxyBefore(client, node)));
  }

  /** From now on, replies of the nodes to client 1 wait. */
  holdReplies(): void {
    for (const proxy of this.#proxiesOf(1)) proxy.hold('toClient');
  }

  /** Resolves when a reply of every node waits. */
  async repliesAreHeld(): Promise<void> {
    await Promise.all(this.#proxiesOf(1).map((proxy) => proxy.untilHeld('toClient')));
  }

  deliverReplies(): void {
    for (const proxy of this.#proxiesOf(1)) proxy.release('toClient');
  }

  /** Connects both clients to another server in place of this node. */
  async redirect(name: string, server: Upstream): Promise<void> {
    const node = this.#nodes.find((one) => one.name === name);
    if (!node) throw new Error(`no such lock node: ${name}`);
    for (const client of clientNumbers) (await this.#proxyBefore(client, node)).redirect(server);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#proxies.values()].map((proxy) => proxy.stop()));
  }

  #proxiesOf(client: ClientNumber): TcpProxy[] {
    return [...this.#proxies].flatMap(([key, proxy]) =>
      key.startsWith(`${client} `) ? [proxy] : [],
    );
  }

  async #proxyBefore(
    client: ClientNumber,
    { name, url }: LockAddress['nodes'][number],
  ): Promise<TcpProxy> {
    const key = `${client} ${name}`;
    const { hostname: host, port } = new URL(url);
    const proxy = this.#proxies.get(key) ?? (await TcpProxy.start({ host, port: Number(port) }));
    this.#proxies.set(key, proxy);
    return proxy;
  }
}
