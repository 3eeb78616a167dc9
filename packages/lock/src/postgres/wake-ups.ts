import { type Runtime, sleep } from '../runtime/runtime.js';
import type { PostgresConnection, PostgresPool } from './database.js';

/** The channel that `fenced_lock.release` notifies. */
const CHANNEL = 'fenced_lock';

/** Milliseconds between two tries to listen. */
const RETRY_MS = 1_000;

/**
 * Notifies waiters of releases by LISTEN, on one connection of the pool, as long as there are any.
 * If that connection is lost or not to be had, waiters poll until it is there again. PgBouncer in
 * transaction mode lets no client listen.
 */
export class WakeUps {
  readonly #pool: PostgresPool;
  readonly #runtime: Runtime;
  readonly #waiters = new Map<() => void, readonly string[]>();
  /** Aborts when the last waiter leaves; null if there is none. */
  #listening: AbortController | null = null;
  #isListening = false;

  constructor(pool: PostgresPool, runtime: Runtime) {
    this.#pool = pool;
    this.#runtime = runtime;
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
    const { max = 2 } = this.#pool.options ?? {};
    if (max > 1 && this.#listening === null) {
      this.#listening = new AbortController();
      void this.#listenUntil(this.#listening.signal);
    }
    return () => {
      this.#waiters.delete(wake);
      if (this.#waiters.size > 0) return;
      this.#listening?.abort();
      this.#listening = null;
      this.#isListening = false;
    };
  }

  async #listenUntil(idle: AbortSignal): Promise<void> {
    const over = new Promise((resolve) => {
      idle.addEventListener('abort', resolve, { once: true });
    });
    while (!idle.aborted) {
      const lost = Promise.withResolvers<void>();
      const connection = await this.#listen(lost.resolve).catch(() => null);
      if (connection !== null) {
        if (!idle.aborted) {
          this.#setListening(true);
          await Promise.race([lost.promise, over]);
        }
        // Closed, because it has our listeners, and notifications on their way.
        connection.release(true);
      }
      if (idle.aborted) return;
      this.#setListening(false);
      await sleep(this.#runtime, RETRY_MS, idle).catch(() => undefined);
    }
  }

  /** Wakes all, because a release may have come before. */
  #setListening(isListening: boolean): void {
    this.#isListening = isListening;
    for (const wake of this.#waiters.keys()) wake();
  }

  async #listen(lost: () => void): Promise<PostgresConnection> {
    const connection = await this.#borrow(lost);
    try {
      connection.on('notification', (message: { payload?: string }) => this.#wake(message.payload));
      await connection.query(`LISTEN ${CHANNEL}`);
      return connection;
    } catch (error) {
      connection.release(error instanceof Error ? error : true);
      throw error;
    }
  }

  /**
   * A server that is going down may greet and say goodbye in one packet. Its error then comes
   * before a promise resolves, and without a listener it would end the process. Hence the callback.
   */
  #borrow(lost: () => void): Promise<PostgresConnection> {
    return new Promise((resolve, reject) => {
      this.#pool.connect((error, connection) => {
        if (!connection) return reject(error);
        connection.on('error', lost);
        connection.on('end', lost);
        resolve(connection);
      });
    });
  }

  #wake(resource = ''): void {
    for (const [wake, resources] of this.#waiters) if (resources.includes(resource)) wake();
  }
}
