import { onAbort, type Runtime, unlessAborted } from '../../runtime/runtime.js';
import { type Access, Connection, type ServerAddress, type SessionState } from './connection.js';
import { ConnectionLostError } from './errors.js';
import type { Operation } from './operations.js';

export interface SessionOptions extends Access {
  readonly servers: readonly ServerAddress[];
  /** Milliseconds that are asked for; the servers clamp them. */
  readonly timeoutMs: number;
}

/** The pause after all servers were tried. */
const RETRY_MS = 100;
/** A connection that lasted for less counts as a failed one. */
const USEFUL_MS = 1_000;
/** The limit of a handshake in the first round over all servers. It doubles with each round. */
const HANDSHAKE_MS = 500;
const HANDSHAKE_MIN_MS = 200;

/**
 * A session with an ensemble, over one connection at a time. If the connection is lost, it connects
 * to the next server; if the session has ended, it begins a new one.
 */
export class Session {
  readonly #options: SessionOptions;
  readonly #runtime: Runtime;
  /** The first is tried next. */
  readonly #servers: ServerAddress[];
  #state: SessionState;
  #connection: Connection | null = null;
  isClosed = false;
  /** The time of the last handshake; null without a connection. */
  #connectedMs: number | null = null;
  #isStarted = false;
  /** The number of connections in a row that failed. */
  #failures = 0;
  #lastError: Error | undefined;
  #cancelRetry: () => void = () => {};
  /** Callbacks of the requests that wait for a connection. */
  readonly #waiting = new Set<() => void>();
  readonly #watchers = new Map<string, Set<() => void>>();

  constructor(options: SessionOptions, runtime: Runtime) {
    this.#options = options;
    this.#runtime = runtime;
    this.#state = this.#fresh(0n);
    // Begins with a random server, so that the clients spread over all servers.
    const first = Math.floor(runtime.random() * options.servers.length);
    this.#servers = [...options.servers.slice(first), ...options.servers.slice(0, first)];
  }

  /** The present session; 0n for none. Ephemeral nodes belong to one. */
  get id(): bigint {
    return this.#state.id;
  }

  /** Why there is no connection, if that is known. */
  get lastError(): Error | undefined {
    return this.#connectedMs !== null ? undefined : this.#lastError;
  }

  /**
   * Sends a request as soon as there is a connection.
   *
   * @param signal ends the wait for the reply. A request that was not sent yet is withdrawn. If the
   *   server has sent nothing since the request, the session moves to another server.
   * @param onWatch called once when the watch that the operation sets has fired or is lost
   * @throws {ZooKeeperError} the server refused it
   * @throws {ConnectionLostError} no reply came: it may have been carried out
   * @throws the signal's reason, if nothing was sent
   */
  async request<Reply>(
    operation: Operation<Reply>,
    signal: AbortSignal,
    onWatch?: () => void,
  ): Promise<Reply> {
    const connection = await this.#connected(signal);
    const { watched } = operation;
    if (watched !== undefined && onWatch) this.#watch(watched, onWatch);
    const sentMs = this.#runtime.nowMs();
    const reply = await unlessAborted(
      connection.send(operation).then((value) => ({ value })),
      signal,
    );
    if (reply) return reply.value;
    connection.suspect(sentMs);
    throw new ConnectionLostError('no reply in time');
  }

  /** Removes a listener from the watches of all nodes. */
  unwatch(onWatch: () => void): void {
    for (const [path, listeners] of this.#watchers) {
      listeners.delete(onWatch);
      if (listeners.size === 0) this.#watchers.delete(path);
    }
  }

  /** Ends the session. Requests fail from now on. */
  async close(): Promise<void> {
    if (this.isClosed) return;
    this.isClosed = true;
    this.#cancelRetry();
    if (this.#connectedMs !== null) await this.#connection?.end().catch(() => undefined);
    this.#connection?.close(new Error('the session was closed'));
    this.#wake();
  }

  async #connected(signal: AbortSignal): Promise<Connection> {
    for (;;) {
      signal.throwIfAborted();
      if (this.isClosed) throw new ConnectionLostError('the session was closed');
      if (this.#connection && this.#connectedMs !== null) return this.#connection;
      if (!this.#isStarted) this.#connect();
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#waiting.add(resolve);
      const ignoreAbort = onAbort(signal, resolve);
      await promise;
      ignoreAbort();
      this.#waiting.delete(resolve);
    }
  }

  #connect(): void {
    const [server] = this.#servers;
    if (!server || this.isClosed) return;
    this.#isStarted = true;
    const { timeoutMs } = this.#state;
    const rounds = Math.floor(this.#failures / this.#servers.length);
    const shareMs = timeoutMs / this.#servers.length;
    const limitMs = Math.max(HANDSHAKE_MIN_MS, Math.min(shareMs, HANDSHAKE_MS * 2 ** rounds));
    const listener = {
      onSession: (session: Omit<SessionState, 'zxid'>) => this.#onSession(session),
      onZxid: (zxid: bigint) => {
        if (zxid > this.#state.zxid) this.#state = { ...this.#state, zxid };
      },
      onWatch: (path: string) => this.#onWatch(path),
      onClose: (cause: Error) => this.#onClose(cause),
    };
    this.#connection = new Connection(
      server,
      this.#state,
      this.#options,
      limitMs,
      listener,
      this.#runtime,
    );
  }

  #onSession(session: Omit<SessionState, 'zxid'>): void {
    if (session.timeoutMs <= 0) {
      // The servers have ended the old session, and refuse its requests. So asks for a new one.
      this.#state = this.#fresh(this.#state.zxid);
      this.#connection?.close(new Error('the session has expired'));
      return;
    }
    this.#state = { ...session, zxid: this.#state.zxid };
    this.#connectedMs = this.#runtime.nowMs();
    this.#wake();
  }

  #onWatch(path: string): void {
    const listeners = this.#watchers.get(path);
    this.#watchers.delete(path);
    for (const onWatch of listeners ?? []) onWatch();
  }

  #onClose(cause: Error): void {
    const usedMs = this.#runtime.nowMs() - (this.#connectedMs ?? Number.POSITIVE_INFINITY);
    this.#connection = null;
    this.#connectedMs = null;
    this.#lastError = cause;
    const server = this.#servers.shift();
    if (server) this.#servers.push(server);
    // The server forgets the watches of a connection, so their owners must read again.
    for (const path of [...this.#watchers.keys()]) this.#onWatch(path);
    if (this.isClosed) return;
    this.#failures = usedMs > USEFUL_MS ? 0 : this.#failures + 1;
    const isRoundOver = this.#failures > 0 && this.#failures % this.#servers.length === 0;
    const delayMs = isRoundOver ? RETRY_MS * (1 + this.#runtime.random()) : 0;
    // Connects again even if no request waits: otherwise the session and its nodes would end.
    this.#cancelRetry = this.#runtime.after(delayMs, () => this.#connect());
  }

  #watch(path: string, onWatch: () => void): void {
    const listeners = this.#watchers.get(path) ?? new Set();
    this.#watchers.set(path, listeners.add(onWatch));
  }

  #wake(): void {
    for (const resolve of [...this.#waiting]) resolve();
  }

  #fresh(zxid: bigint): SessionState {
    const { timeoutMs } = this.#options;
    return { id: 0n, password: Buffer.alloc(16), timeoutMs, zxid };
  }
}
