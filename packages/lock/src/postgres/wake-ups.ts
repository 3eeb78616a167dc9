import type { PostgresConnection, PostgresPool } from './database.js';

/** The channel that `fenced_lock.release` notifies. */
const CHANNEL = 'fenced_lock';

/**
 * Hears of releases by LISTEN, on one connection of the pool, for as long as anybody waits. Where that cannot be had (PgBouncer in
 * transaction mode lets nobody listen, the pool is empty) or is lost, waiters go by the clock alone.
 */
export class WakeUps {
  readonly #pool: PostgresPool;
  readonly #waiters = new Map<() => void, readonly string[]>();
  #connection: Promise<PostgresConnection | null> | null = null;
  #isListening = false;

  constructor(pool: PostgresPool) {
    this.#pool = pool;
  }

  /** Whether releases are heard of now. */
  get isListening(): boolean {
    return this.#isListening;
  }

  /** Calls `wake` at each release of one of the resources, from when `isListening`, until the returned function is called. */
  subscribe(resources: readonly string[], wake: () => void): () => void {
    this.#waiters.set(wake, resources);
    const { max = 2 } = this.#pool.options ?? {};
    if (max > 1) this.#connection ??= this.#listen();
    return () => {
      this.#waiters.delete(wake);
      if (this.#waiters.size === 0) this.#stop();
    };
  }

  async #listen(): Promise<PostgresConnection | null> {
    let connection: PostgresConnection | null = null;
    try {
      connection = await this.#borrow();
      connection.on('notification', (message: { payload?: string }) => this.#wake(message.payload));
      await connection.query(`LISTEN ${CHANNEL}`);
      this.#isListening = true;
      this.#wakeAll();
      return connection;
    } catch (error) {
      connection?.release(error instanceof Error ? error : true);
      return null;
    }
  }

  /**
   * The pool takes its own listener away when it lends a connection, and a server that is going down greets and takes leave in one
   * packet: the error comes before any promise is kept, and unheard it would end the process.
   */
  #borrow(): Promise<PostgresConnection> {
    const lost = (): void => {
      this.#isListening = false;
      this.#wakeAll();
    };
    return new Promise((resolve, reject) => {
      this.#pool.connect((error, connection) => {
        if (!connection) return reject(error);
        connection.on('error', lost);
        connection.on('end', lost);
        resolve(connection);
      });
    });
  }

  /** What was released before anybody listened is found by looking again. */
  #wakeAll(): void {
    for (const wake of this.#waiters.keys()) wake();
  }

  #wake(resource: string | undefined): void {
    for (const [wake, resources] of this.#waiters) {
      if (resource !== undefined && resources.includes(resource)) wake();
    }
  }

  #stop(): void {
    const connection = this.#connection;
    this.#connection = null;
    this.#isListening = false;
    // Closed, not reused: it has our listeners, and messages on their way.
    void connection?.then((open) => open?.release(true));
  }
}
