import { EventEmitter, once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { type Direction, Pipe, type Traffic } from './pipe.js';

export type { Direction };

/** Address of the proxied server. */
export interface Upstream {
  readonly host: string;
  readonly port: number;
}

export interface WaitOptions {
  /** @default 1 */
  readonly bytesMin?: number;
  /** Ends the wait, which then rejects with the signal's reason. */
  readonly signal?: AbortSignal;
}

/**
 * A TCP proxy before one server on loopback. It can hold, delay, lose and cut traffic, as networks
 * do.
 *
 * A fault applies to one direction of all connections, present and future, until it is removed.
 * Bytes arrive in order and intact, or never. If a connection has lost some, it is reset when the
 * fault is removed: TCP never delivers bytes that follow a hole.
 */
export class TcpProxy implements AsyncDisposable {
  readonly host = '127.0.0.1';
  readonly #server: Server;
  #upstream: Upstream;
  readonly #traffic: Record<Direction, Traffic> = { toServer: quiet(), toClient: quiet() };
  readonly #connections = new Set<Record<Direction, Pipe>>();
  readonly #progress = new EventEmitter().setMaxListeners(0);
  #isRefusing = false;
  #connectionsCount = 0;
  #roundTrips = 0;

  /** Listens on a free port. While the server does not run, connections are reset. */
  static async start(upstream: Upstream): Promise<TcpProxy> {
    const server = createServer({ allowHalfOpen: true, noDelay: true });
    const proxy = new TcpProxy(server, upstream);
    await once(server.listen(0, proxy.host), 'listening');
    return proxy;
  }

  private constructor(server: Server, upstream: Upstream) {
    this.#server = server;
    this.#upstream = upstream;
    server.on('connection', (client) => this.#connect(client));
    // If the system refuses a connection, only its client fails.
    server.on('error', () => undefined);
  }

  get port(): number {
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('the proxy has stopped');
    return address.port;
  }

  /** Number of accepted connections since the start. */
  get connections(): number {
    return this.#connectionsCount;
  }

  /** Number of replies since the start: changes of direction, from requests to replies. */
  get roundTrips(): number {
    return this.#roundTrips;
  }

  /** Returns the bytes received for this direction since the start, delivered or not. */
  bytes(direction: Direction): number {
    return this.#traffic[direction].bytes;
  }

  /** Returns the bytes that are held or delayed now. */
  heldBytes(direction: Direction): number {
    const { mode, delayMs } = this.#traffic[direction];
    if (mode === 'pass' && delayMs === 0) return 0;
    return this.#pipes(direction).reduce((sum, pipe) => sum + pipe.queuedBytes, 0);
  }

  /** Returns the bytes discarded since the start. */
  swallowedBytes(direction: Direction): number {
    return this.#traffic[direction].swallowedBytes;
  }

  /** Resolves when `bytesMin` bytes are held. */
  untilHeld(direction: Direction, options: WaitOptions = {}): Promise<void> {
    return this.#until(() => this.heldBytes(direction), options);
  }

  /** Resolves when `bytesMin` bytes were discarded, such as a reply of the server. */
  untilSwallowed(direction: Direction, options: WaitOptions = {}): Promise<void> {
    return this.#until(() => this.swallowedBytes(direction), options);
  }

  /** Keeps bytes, ends and resets until `release`. New connections are accepted. */
  hold(direction: Direction): void {
    this.#set(direction, { mode: 'hold' });
  }

  /** Delivers what is held, in order, and forwards what follows. */
  release(direction: Direction): void {
    this.#set(direction, { mode: 'pass' });
  }

  /** Discards what is held and what follows, ends and resets included. */
  swallow(direction: Direction): void {
    this.#set(direction, { mode: 'swallow' });
  }

  /** Delays every byte, also those already on their way. 0 is no delay. */
  delay(direction: Direction, delayMs: number): void {
    if (!(delayMs >= 0 && delayMs < 2 ** 31)) {
      // The range of a timer. `hold` has no limit.
      throw new RangeError(`a delay is from 0 to 2^31-1 ms: delayMs=${delayMs}`);
    }
    this.#set(direction, { delayMs });
  }

  /** Removes every fault. Held bytes arrive, discarded bytes stay lost. */
  heal(): void {
    this.accept();
    this.#set('toServer', { mode: 'pass', delayMs: 0 });
    this.#set('toClient', { mode: 'pass', delayMs: 0 });
  }

  /** Resets every open connection at both sides. Held bytes are lost. */
  cut(): void {
    for (const pipe of this.#pipes('toServer')) pipe.reset();
  }

  /** Cuts all connections, and forwards new ones to another server, as a failover does. */
  redirect(upstream: Upstream): void {
    this.#upstream = upstream;
    this.cut();
  }

  /**
   * Forwards new connections to another server. Open ones stay with the old server, as behind a
   * name or a virtual address after a failover that ends no connection.
   */
  lead(upstream: Upstream): void {
    this.#upstream = upstream;
  }

  /**
   * Open connections carry nothing any more, in either direction, and new ones work: a firewall or
   * a NAT has forgotten them.
   */
  forget(): void {
    for (const direction of ['toServer', 'toClient'] as const) {
      for (const pipe of this.#pipes(direction)) pipe.forget();
    }
  }

  /** Resets every new connection, until `accept`. */
  refuse(): void {
    this.#isRefusing = true;
  }

  /** Cuts and refuses, as a network partition does. */
  shut(): void {
    this.refuse();
    this.cut();
  }

  accept(): void {
    this.#isRefusing = false;
  }

  /** Cuts all connections and stops listening. Rejects open waits. Idempotent. */
  async stop(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.cut();
    this.#progress.emit('change');
    await closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  #connect(client: Socket): void {
    if (this.#isRefusing) {
      client.resetAndDestroy();
      return;
    }
    this.#connectionsCount += 1;
    const server = connect({ ...this.#upstream, allowHalfOpen: true, noDelay: true });
    let isAsked = false;
    const toServer = new Pipe(client, server, this.#traffic.toServer, () => {
      isAsked = true;
      this.#progress.emit('change');
    });
    const toClient = new Pipe(server, client, this.#traffic.toClient, () => {
      if (isAsked) this.#roundTrips += 1;
      isAsked = false;
      this.#progress.emit('change');
    });
    const connection = { toServer, toClient };
    this.#connections.add(connection);
    const forget = () => {
      if (client.closed && server.closed) this.#connections.delete(connection);
    };
    client.on('close', forget);
    server.on('close', forget);
  }

  #pipes(direction: Direction): Pipe[] {
    return [...this.#connections].map((connection) => connection[direction]);
  }

  #set(direction: Direction, change: Partial<Traffic>): void {
    Object.assign(this.#traffic[direction], change);
    for (const pipe of this.#pipes(direction)) pipe.update();
    this.#progress.emit('change');
  }

  async #until(bytes: () => number, { bytesMin = 1, signal }: WaitOptions): Promise<void> {
    while (bytes() < bytesMin) {
      if (!this.#server.listening) throw new Error('the proxy was stopped during the wait');
      try {
        await once(this.#progress, 'change', signal ? { signal } : {});
      } catch (error) {
        signal?.throwIfAborted();
        throw error;
      }
    }
  }
}

function quiet(): Traffic {
  return { mode: 'pass', delayMs: 0, bytes: 0, swallowedBytes: 0 };
}
