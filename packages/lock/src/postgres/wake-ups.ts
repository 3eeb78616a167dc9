import { type Runtime, sleep } from '../runtime/runtime.js';
import type { PostgresConnection, PostgresPool } from './database.js';

/** The channel that `fenced_lock.release` notifies. */
const CHANNEL = 'fenced_lock';

/** Milliseconds between two tries to listen. */
const RETRY_MS = 1_000;

/**
 * Hears of releases by LISTEN, on one connection of the pool, for as long as anybody waits. If that cannot be had (PgBouncer in
 * transaction mode lets nobody listen, the pool is empty) or is lost, waiters go by the clock alone until it is there again.
 */
export class WakeUps {
  readonly #pool: PostgresPool;
  readonly #runtime: Runtime;
  readonly #waiters = new Map<() => void, readonly string[]>();
  /** Resolves when nobody waits any more; null while nobody does. */
  #idle: PromiseWithResolvers<void> | null = null;
  #isListening = false;

  constructor(pool: PostgresPool, runtime: Runtime) {
    this.#pool = pool;
    this.#runtime = runtime;
  }

  /** Whether releases are heard of now. */
  get isListening(): boolean {
    return this.#isListening;
  }

  /** Calls `wake` at each release of one of the resources, from when `isListening`, until the returned function is called. */
  subscribe(resources: readonly string[], wake: () => void): () => void {
    this.#waiters.set(wake, resources);
    const { max = 2 } = this.#pool.options ?? {};
    if (max > 1 && this.#idle === null) {
      this.#idle = Promise.withResolvers();
      void this.#listenUntil(this.#idle.promise);
    }
    return () => {
      this.#waiters.delete(wake);
      if (this.#waiters.size > 0) return;
      this.#idle?.resolve();
      this.#idle = null;
      this.#isListening = false;
    };
  }

  async #listenUntil(idle: Promise<void>): Promise<void> {
    let isOver = false;
    const over = idle.then(() => {
      isOver = true;
    });
    while (!isOver) {
      const lost = Promise.withResolvers<void>();
      const connection = await this.#listen(lost.resolve).catch(() => null);
      if (connection !== null) {
        if (!isOver) {
          this.#isListening = true;
          // What was released before anybody listened is found by looking again.
          this.#wakeAll();
          await Promise.race([lost.promise, over]);
        }
        // Closed, not reused: it has our listeners, and messages on their way.
        connection.release(true);
      }
      if (isOver) return;
      this.#isListening = false;
      this.#wakeAll();
      await sleep(this.#runtime, RETRY_MS, new AbortController().signal, over);
    }
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
   * The pool takes its own listener away when it lends a connection, and a server that is going down greets and takes leave in one
   * packet: the error comes before any promise is kept, and unheard it would end the process.
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

  #wakeAll(): void {
    for (const wake of this.#waiters.keys()) wake();
  }

  #wake(resource: string | undefined): void {
    for (const [wake, resources] of this.#waiters) {
      if (resource !== undefined && resources.includes(resource)) wake();
    }
  }
}
