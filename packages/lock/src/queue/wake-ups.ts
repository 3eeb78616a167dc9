import { majorityOf } from '../core/quorum.js';
import type { NodeClient } from '../redis/client.js';
import type { Runtime } from '../runtime/runtime.js';

/** Milliseconds that connections stay open after the last waiter: another one may come. */
const LINGER_MS = 1_000;
/** Milliseconds before the retry of a connection that its client does not make again. */
const RETRY_MS = 1_000;

/** The end of a channel's name if waiters may listen to the sharded channel. See `queue.lua`. */
const SHARDED = ':sharded';

/** The part of a waiter that the connections notify. */
export interface WakeUpListener {
  /** Called when this node published that the waiter is the head of its queue. */
  notified(node: number): void;
  /** Called when a majority is subscribed. A notification may have been published before. */
  missed(): void;
}

/**
 * Subscriptions on each node, each by a connection of its own, while there are waiters. A message
 * may be lost or late, so it only makes a waiter ask the nodes.
 *
 * In a Redis Cluster, a second connection listens to the sharded channel of the same name. A
 * message to that channel stays on the servers of its slot. If nobody listens to the sharded
 * channel, scripts publish to the plain one. So no message is lost with a sharded subscription.
 */
export class WakeUps {
  readonly channel: string;
  readonly #clients: readonly NodeClient[];
  readonly #runtime: Runtime;
  readonly #waiters = new Map<string, WakeUpListener>();
  #connections: Connections | null = null;
  readonly #leaveClients: readonly (() => void)[];
  #cancelClose: () => void = () => {};
  #isClosed = false;

  /** @param channel of this process alone */
  constructor(clients: readonly NodeClient[], channel: string, runtime: Runtime) {
    this.#clients = clients;
    this.#leaveClients = clients.map((client) => client.use());
    this.channel = clients.some(({ isCluster }) => isCluster) ? channel + SHARDED : channel;
    this.#runtime = runtime;
  }

  /** The number of nodes to whose channel this process is subscribed. */
  get subscribedCount(): number {
    return this.#connections?.listening.size ?? 0;
  }

  /** Notifies this waiter until the returned function is called. */
  subscribe(owner: string, waiter: WakeUpListener): () => void {
    this.#cancelClose();
    this.#waiters.set(owner, waiter);
    if (!this.#connections && !this.#isClosed) this.#open();
    return () => {
      this.#waiters.delete(owner);
      if (this.#waiters.size > 0) return;
      this.#cancelClose();
      this.#cancelClose = this.#runtime.after(LINGER_MS, () => this.#hangUp(), 'background');
    };
  }

  /** Ends all connections for good. Waiters then poll. */
  close(): void {
    this.#isClosed = true;
    this.#hangUp();
    for (const leave of this.#leaveClients) leave();
  }

  #hangUp(): void {
    this.#cancelClose();
    const connections = this.#connections;
    this.#connections = null;
    for (const close of connections?.close.values() ?? []) close();
  }

  #open(): void {
    const connections: Connections = { listening: new Set(), close: new Map() };
    this.#connections = connections;
    for (const node of this.#clients.keys()) {
      this.#listen(node, connections);
      this.#listenSharded(node, connections);
    }
  }

  /** @param connections those of the present period: after it, their events are ignored */
  #listen(node: number, connections: Connections): void {
    const close = this.#clients[node]?.subscribe(this.channel, {
      onMessage: (owner) => this.#waiters.get(owner)?.notified(node),
      onListening: () => {
        if (connections !== this.#connections) return;
        connections.listening.add(node);
        // Messages from before the subscription were missed, so the waiters must ask the nodes.
        if (connections.listening.size !== majorityOf(this.#clients.length)) return;
        for (const waiter of this.#waiters.values()) waiter.missed();
      },
      onLost: () => connections.listening.delete(node),
      onFailed: () => this.#later(connections, () => this.#listen(node, connections)),
    });
    if (close) connections.close.set(`${node}`, close);
  }

  #listenSharded(node: number, connections: Connections): void {
    const client = this.#clients[node];
    if (!client?.isCluster || !client.subscribeSharded) return;
    const again = (): void => {
      this.#later(connections, () => this.#listenSharded(node, connections));
    };
    const close = client.subscribeSharded(this.channel, {
      onMessage: (owner) => this.#waiters.get(owner)?.notified(node),
      onLost: again,
    });
    if (close) connections.close.set(`${node} sharded`, close);
    else again();
  }

  #later(connections: Connections, callback: () => void): void {
    const ifOpen = (): void => {
      if (connections === this.#connections) callback();
    };
    this.#runtime.after(RETRY_MS, ifOpen, 'background');
  }
}

/** The connections of one period, from the first waiter to the last. */
interface Connections {
  readonly listening: Set<number>;
  readonly close: Map<string, () => void>;
}
