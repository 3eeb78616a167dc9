import type { DatabaseClient } from './client.js';

/** The channel that `fenced_lock.release` notifies. */
const CHANNEL = 'fenced_lock';

/**
 * Notifies waiters of releases by LISTEN, as long as there are waiters. Without a connection that
 * listens, waiters poll until there is one. PgBouncer in transaction mode lets no client listen.
 */
export class WakeUps {
  readonly #client: DatabaseClient;
  readonly #waiters = new Map<() => void, readonly string[]>();
  /** Called when the last waiter leaves; null if there is none, or the client cannot listen. */
  #endListening: (() => void) | null = null;
  #isListening = false;

  constructor(client: DatabaseClient) {
    this.#client = client;
  }

  /** True if a release wakes its waiters. */
  get isListening(): boolean {
    return this.#isListening;
  }

  /**
   * Calls `wake` at each release of one of the resources, and when `isListening` changes.
   *
   * @returns a function that ends this
   */
  subscribe(resources: readonly string[], wake: () => void): () => void {
    this.#waiters.set(wake, resources);
    this.#endListening ??= this.#client.listen(CHANNEL, {
      onMessage: (resource) => this.#wake(resource),
      onListening: (isListening) => this.#setListening(isListening),
    });
    return () => {
      this.#waiters.delete(wake);
      if (this.#waiters.size > 0) return;
      this.#endListening?.();
      this.#endListening = null;
      this.#isListening = false;
    };
  }

  /** Wakes all waiters, because a release may have come while no connection listened. */
  #setListening(isListening: boolean): void {
    this.#isListening = isListening;
    for (const wake of this.#waiters.keys()) wake();
  }

  #wake(resource = ''): void {
    for (const [wake, resources] of this.#waiters) if (resources.includes(resource)) wake();
  }
}
