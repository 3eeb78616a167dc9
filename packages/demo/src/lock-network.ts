import { TcpProxy, type Upstream } from '@fenced/testbed';
import type { LockAddress } from './job.js';

const clientNumbers = [1, 2] as const;
export type ClientNumber = (typeof clientNumbers)[number];

/** What lies between the clients and the lock nodes. A way that nothing is done to has no proxy. */
export class LockNetwork implements AsyncDisposable {
  readonly #nodes: LockAddress['nodes'];
  readonly #proxies = new Map<string, TcpProxy>();

  constructor(nodes: LockAddress['nodes']) {
    this.#nodes = nodes;
  }

  /** Where a client that is started now finds the nodes. */
  addresses(client: ClientNumber): LockAddress['nodes'] {
    return this.#nodes.map(({ name, url }) => {
      const proxy = this.#proxies.get(`${client} ${name}`);
      return { name, url: proxy ? `redis://${proxy.host}:${proxy.port}` : url };
    });
  }

  /** Lets a client reach these nodes and no others. */
  async reaches(client: ClientNumber, names: string): Promise<void> {
    for (const node of this.#nodes) {
      const proxy = await this.#between(client, node);
      if (names.includes(node.name)) proxy.accept();
      else proxy.shut();
    }
  }

  /** Takes its place on all ways of a client that is started after this, without doing anything. */
  async standBetween(client: ClientNumber): Promise<void> {
    await Promise.all(this.#nodes.map((node) => this.#between(client, node)));
  }

  /** What the nodes answer to client 1 waits in the network from now on. */
  holdAnswers(): void {
    for (const proxy of this.#ways(1)) proxy.hold('toClient');
  }

  /** Resolves when an answer of every node waits there. */
  async answersAreHeld(): Promise<void> {
    await Promise.all(this.#ways(1).map((proxy) => proxy.untilHeld('toClient')));
  }

  deliverAnswers(): void {
    for (const proxy of this.#ways(1)) proxy.release('toClient');
  }

  /** Leads both clients to another server where they look for this node. */
  async redirect(name: string, server: Upstream): Promise<void> {
    const node = this.#nodes.find((one) => one.name === name);
    if (!node) throw new Error(`there is no lock node ${name}`);
    for (const client of clientNumbers) (await this.#between(client, node)).redirect(server);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#proxies.values()].map((proxy) => proxy.stop()));
  }

  #ways(client: ClientNumber): TcpProxy[] {
    return [...this.#proxies].flatMap(([way, proxy]) =>
      way.startsWith(`${client} `) ? [proxy] : [],
    );
  }

  async #between(
    client: ClientNumber,
    { name, url }: LockAddress['nodes'][number],
  ): Promise<TcpProxy> {
    const way = `${client} ${name}`;
    const { hostname: host, port } = new URL(url);
    const proxy = this.#proxies.get(way) ?? (await TcpProxy.start({ host, port: Number(port) }));
    this.#proxies.set(way, proxy);
    return proxy;
  }
}
