import { majorityOf } from '../core/quorum.js';
import type { NodeClient } from '../redis/client.js';
import type { Runtime } from '../runtime/runtime.js';

/** Time that connections stay open after the last waiter: another one may come. */
const LINGER_MS = 1_000;
/** Delay before a connection is tried again that its client has given up. */
const RETRY_MS = 1_000;

/** A waiter, as its connections see it. */
export interface Waiter {
  /** The node at this place published that its turn has come. */
  told(node: number): void;
  /** A majority is heard from now on. It may have published its turn before. */
  missed(): void;
}

/**
 * Listens on each node, by a connection of its own, while anybody waits. A message may be lost or
 * late, so it only ever makes a waiter ask.
 */
export class WakeUps {
  readonly channel: string;
  readonly #clients: readonly NodeClient[];
  readonly #runtime: Runtime;
  readonly #waiters = new Map<string, Waiter>();
  #connections: Connections | null = null;
  #cancelClose: () => void = () => {};
  #isClosed = false;

  /** @param channel of this process alone */
  constructor(clients: readonly NodeClient[], channel: string, runtime: Runtime) {
    this.#clients = clients;
    this.channel = channel;
    this.#runtime = runtime;
  }

  /** The number of nodes that can be heard. */
  get heard(): number {
    return this.#connections?.listening.size ?? 0;
  }

  /** Tells this one of its turn, until the returned function is called. */
  subscribe(owner: string, waiter: Waiter): () => void {
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

  /** Ends all connections for good. Waiters then go by the clock. */
  close(): void {
    this.#isClosed = true;
    this.#hangUp();
  }

  #hangUp(): void {
    this.#cancelClose();
    const connections = this.#connections;
    this.#connections = null;
    for (const close of connections?.close ?? []) close();
  }

  #open(): void {
    const connections: Connections = { listening: new Set(), close: [] };
    this.#connections = connections;
    for (const node of this.#clients.keys()) this.#listen(node, connections);
  }

  /** @param connections to which it belongs: once those are closed, it no longer counts */
  #listen(node: number, connections: Connections): void {
    const close = this.#clients[node]?.subscribe(this.channel, {
      onMessage: (owner) => this.#waiters.get(owner)?.told(node),
      onListening: () => {
        if (connections !== this.#connections) return;
        connections.listening.add(node);
        // Messages that were published before are found by asking.
        if (connections.listening.size !== majorityOf(this.#clients.length)) return;
        for (const waiter of this.#waiters.values()) waiter.missed();
      },
      onLost: () => connections.listening.delete(node),
      onFailed: () => {
        const again = (): void => {
          if (connections === this.#connections) this.#listen(node, connections);
        };
        this.#runtime.after(RETRY_MS, again, 'background');
      },
    });
    if (close) connections.close[node] = close;
  }
}

/** The connections of one time, from the first waiter to the last. */
interface Connections {
  readonly listening: Set<number>;
  readonly close: (() => void)[];
}
