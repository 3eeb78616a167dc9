import { majorityOf } from '../core/quorum.js';
import type { RedisClient, RedisSubscriber } from '../redis/client.js';
import type { Runtime } from '../runtime/runtime.js';

/** How long connections stay open that nobody waits on: another waiter may come. */
const LINGER_MS = 1_000;

/** Somebody who waits. */
export interface Waiter {
  /** It is its turn on the node at this place. */
  told(node: number): void;
  /** A majority is heard from now on, and may have told it before. */
  missed(): void;
}

/**
 * Hears whose turn it is, by a connection of its own to each node, for as long as anybody waits. A message may be lost or late, so
 * it only ever makes a waiter ask.
 */
export class WakeUps {
  readonly channel: string;
  readonly #clients: readonly RedisClient[];
  readonly #runtime: Runtime;
  readonly #waiters = new Map<string, Waiter>();
  readonly #listening = new Set<RedisSubscriber>();
  #subscribers: readonly RedisSubscriber[] = [];
  #cancelClose: () => void = () => {};
  #isClosed = false;

  /** @param channel of this process alone */
  constructor(clients: readonly RedisClient[], channel: string, runtime: Runtime) {
    this.#clients = clients;
    this.channel = channel;
    this.#runtime = runtime;
  }

  /** How many nodes are heard. */
  get heard(): number {
    return this.#listening.size;
  }

  /** Tells this one of its turn, until the returned function is called. */
  subscribe(owner: string, waiter: Waiter): () => void {
    this.#cancelClose();
    this.#waiters.set(owner, waiter);
    if (this.#subscribers.length === 0 && !this.#isClosed) this.#open();
    return () => {
      this.#waiters.delete(owner);
      if (this.#waiters.size > 0) return;
      this.#cancelClose();
      this.#cancelClose = this.#runtime.after(LINGER_MS, () => this.#hangUp(), 'background');
    };
  }

  /** For good: who still waits goes by the clock. */
  close(): void {
    this.#isClosed = true;
    this.#hangUp();
  }

  #hangUp(): void {
    this.#cancelClose();
    for (const subscriber of this.#subscribers) subscriber.disconnect();
    this.#subscribers = [];
    this.#listening.clear();
  }

  #open(): void {
    this.#subscribers = this.#clients.flatMap((client, node) => {
      const subscriber = client.duplicate?.();
      if (!subscriber) return [];
      // ioredis does not hear where that fails, which would end the process. Each `ready` is answered below.
      Object.assign(subscriber.options ?? {}, { autoResubscribe: false });
      // Unheard, it would be written to the console.
      subscriber.on('error', () => {});
      subscriber.on('message', (_, owner) => this.#waiters.get(owner)?.told(node));
      subscriber.on('ready', () => void this.#listen(subscriber));
      subscriber.on('close', () => this.#listening.delete(subscriber));
      if (subscriber.status === 'wait') subscriber.connect().catch(() => {});
      return [subscriber];
    });
  }

  async #listen(subscriber: RedisSubscriber): Promise<void> {
    try {
      await subscriber.subscribe(this.channel);
    } catch {
      // Closed again, or not allowed to listen: who waits goes by the clock.
      return;
    }
    if (!this.#subscribers.includes(subscriber)) return;
    this.#listening.add(subscriber);
    // What was said before is found by asking.
    if (this.#listening.size !== majorityOf(this.#clients.length)) return;
    for (const waiter of this.#waiters.values()) waiter.missed();
  }
}
