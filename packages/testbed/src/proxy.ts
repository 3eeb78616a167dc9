import { EventEmitter, once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { type Direction, Lane, type Traffic } from './lane.js';

export type { Direction };

/** Where the proxied server listens. */
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
 * A TCP proxy in front of one server on loopback that does to its connections what networks do: hold, delay, lose, cut.
 *
 * A fault concerns every connection, those open and those to come, in one direction, until it is taken back.
 * Bytes arrive in order and intact, or never: a connection that has lost some is reset when its direction is mended,
 * since TCP would never hand over what follows a hole.
 */
export class TcpProxy implements AsyncDisposable {
  readonly host = '127.0.0.1';
  readonly #server: Server;
  #upstream: Upstream;
  readonly #traffic: Record<Direction, Traffic> = { toServer: quiet(), toClient: quiet() };
  readonly #connections = new Set<Record<Direction, Lane>>();
  readonly #progress = new EventEmitter().setMaxListeners(0);
  #isRefusing = false;
  #connectionsCount = 0;
  #roundTrips = 0;

  /** Listens on a free port. The server need not be there yet: connections are reset as long as it is not. */
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
    // A connection that the system could not give us is its client's loss; it is no reason to end.
    server.on('error', () => undefined);
  }

  get port(): number {
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('the proxy has stopped');
    return address.port;
  }

  /** How many connections were accepted since the start. */
  get connections(): number {
    return this.#connectionsCount;
  }

  /** How often the server began to answer: traffic of a connection that had gone to the server came back. */
  get roundTrips(): number {
    return this.#roundTrips;
  }

  /** How many bytes came in to go in this direction since the start, whatever became of them. */
  bytes(direction: Direction): number {
    return this.#traffic[direction].bytes;
  }

  /** How many bytes are kept back at present because they are held or delayed. */
  heldBytes(direction: Direction): number {
    const { mode, delayMs } = this.#traffic[direction];
    if (mode === 'pass' && delayMs === 0) return 0;
    return this.#lanes(direction).reduce((sum, lane) => sum + lane.queuedBytes, 0);
  }

  /** How many bytes were thrown away since the start. */
  swallowedBytes(direction: Direction): number {
    return this.#traffic[direction].swallowedBytes;
  }

  /** Resolves as soon as `bytesMin` bytes are held. */
  untilHeld(direction: Direction, options: WaitOptions = {}): Promise<void> {
    return this.#until(() => this.heldBytes(direction), options);
  }

  /** Resolves as soon as `bytesMin` bytes were thrown away: a server has answered, and nobody will hear it. */
  untilSwallowed(direction: Direction, options: WaitOptions = {}): Promise<void> {
    return this.#until(() => this.swallowedBytes(direction), options);
  }

  /** Keeps what comes, ends and resets too, until `release`. New connections can be made; the server sees nothing of them but that. */
  hold(direction: Direction): void {
    this.#set(direction, { mode: 'hold' });
  }

  /** Hands over what is held, in order, and lets through what follows. */
  release(direction: Direction): void {
    this.#set(direction, { mode: 'pass' });
  }

  /** Throws away what is held and all that comes, ends and resets too. */
  swallow(direction: Direction): void {
    this.#set(direction, { mode: 'swallow' });
  }

  /** Lets everything arrive this much later, also what is on its way already; 0 is no delay. */
  delay(direction: Direction, delayMs: number): void {
    if (!(delayMs >= 0 && delayMs < 2 ** 31)) {
      // What a timer can count. For longer there is `hold`.
      throw new RangeError(`a delay is from 0 to 2^31-1 ms delayMs=${delayMs}`);
    }
    this.#set(direction, { delayMs });
  }

  /** Takes back every fault. What was held arrives; what was swallowed stays lost. */
  heal(): void {
    this.accept();
    this.#set('toServer', { mode: 'pass', delayMs: 0 });
    this.#set('toClient', { mode: 'pass', delayMs: 0 });
  }

  /** Resets every open connection at both sides. What is held is lost. */
  cut(): void {
    for (const lane of this.#lanes('toServer')) lane.reset();
  }

  /** Leads to another server from now on, as a failover does, and cuts the connections to the one before. */
  redirect(upstream: Upstream): void {
    this.#upstream = upstream;
    this.cut();
  }

  /** Resets every new connection as soon as it is made, until `accept`. */
  refuse(): void {
    this.#isRefusing = true;
  }

  /** Cuts and refuses, as a network that has come apart. */
  shut(): void {
    this.refuse();
    this.cut();
  }

  accept(): void {
    this.#isRefusing = false;
  }

  /** Cuts all connections and stops listening. Waits that are open are rejected. Idempotent. */
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
    const toServer = new Lane(client, server, this.#traffic.toServer, () => {
      isAsked = true;
      this.#progress.emit('change');
    });
    const toClient = new Lane(server, client, this.#traffic.toClient, () => {
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

  #lanes(direction: Direction): Lane[] {
    return [...this.#connections].map((connection) => connection[direction]);
  }

  #set(direction: Direction, change: Partial<Traffic>): void {
    Object.assign(this.#traffic[direction], change);
    for (const lane of this.#lanes(direction)) lane.update();
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
