import type {
  ChannelListener,
  ClientAdapter,
  ScriptArguments,
  ShardedListener,
  SpareClient,
} from '../client.js';
import { Connection, type ConnectionEvents } from './connection.js';
import { ShardedSubscription, slotOf } from './sharded.js';

/**
 * The part of a client of node-redis 5 or later that identifies it: `createClient`,
 * `createClientPool`, `createSentinel` or `createCluster`.
 */
export interface NodeRedisClient {
  readonly isOpen: boolean;
  evalSha(script: string, options: NodeRedisScriptOptions): Promise<unknown>;
  withCommandOptions(options: object): unknown;
}

interface NodeRedisScriptOptions {
  keys: string[];
  arguments: string[];
}

/** The part that the lock uses. Pools, Sentinels and Clusters lack some of it. */
interface Client extends NodeRedisClient, ConnectionEvents {
  readonly isReady?: boolean;
  /** Only a client of a single connection has it. */
  readonly isPubSubActive?: boolean;
  readonly options?: {
    readonly socket?: { readonly host?: string; readonly port?: number };
    readonly keyPrefix?: unknown;
  };
  eval(source: string, options: NodeRedisScriptOptions): Promise<unknown>;
  configGet?(parameter: string): Promise<unknown>;
  duplicate?(overrides?: object): Subscriber;
}

/** A client of a single connection. Other kinds of clients have another `sendCommand`. */
interface SingleClient {
  sendCommand(args: readonly string[], options: object): Promise<unknown>;
}

interface Subscriber extends ConnectionEvents {
  connect(): Promise<unknown>;
  subscribe(channel: string, onMessage: (message: string) => void): Promise<unknown>;
  destroy(): unknown;
}

/** The part of a Cluster that the lock uses beside that of a `Client`. */
interface Cluster {
  readonly slots?: readonly ({ readonly master: unknown } | undefined)[];
  nodeClient(master: unknown): Promise<ClusterServer> | ClusterServer;
}

/** The client of one server of a Cluster. */
interface ClusterServer {
  readonly options?: { readonly socket?: object };
  duplicate(overrides: object): ShardedSubscriber;
}

interface ShardedSubscriber {
  on(event: 'error', listener: () => void): unknown;
  /** The server has ended the subscription, because the slot has moved. */
  on(event: 'sharded-channel-moved', listener: () => void): unknown;
  connect(): Promise<unknown>;
  sSubscribe(channel: string, onMessage: (message: string) => void): Promise<unknown>;
  destroy(): unknown;
}

/**
 * The options of each command:
 *
 * - `typeMapping`: replies are strings, even if the owner maps them to other types.
 * - `asap`: no command overtakes another one.
 * - `timeout`: none with one connection. There, no command waits in the client, and each time limit
 *   would cost a timer.
 */
const COMMAND_OPTIONS = { typeMapping: {}, asap: false };
const ORDERED_OPTIONS = { ...COMMAND_OPTIONS, timeout: undefined };

/** node-redis 5 and later. */
export class NodeRedisAdapter implements ClientAdapter {
  readonly isOrdered: boolean;
  /** The owner's client, with our settings for each command. */
  readonly #client: Client;
  /** Null if `sendCommand`, the cheapest call, cannot be used: it adds no key prefix. */
  readonly #single: (Client & SingleClient) | null;
  readonly #connection: Connection;

  constructor(client: NodeRedisClient) {
    this.isOrdered = (client as Client).isPubSubActive !== undefined;
    const options = this.isOrdered ? ORDERED_OPTIONS : COMMAND_OPTIONS;
    // Listens to a new object, because the owner's may no longer emit events. After a call of
    // `once`, node-redis emits only on the object's prototype, and the new object has the same
    // prototype.
    this.#client = client.withCommandOptions(options) as Client;
    this.#single =
      this.isOrdered && !this.#client.options?.keyPrefix
        ? (this.#client as Client & SingleClient)
        : null;
    this.#connection = new Connection(this.#client, () => {
      if (!this.#client.isOpen) this.#connection.settle();
    });
  }

  get address(): string | null {
    const { host, port = 6379 } = this.#client.options?.socket ?? {};
    return host !== undefined && this.isOrdered ? `${host}:${port}` : null;
  }

  get state(): string {
    if (!this.#client.isOpen) return 'closed';
    return this.#client.isReady === false ? 'connecting' : 'ready';
  }

  get isConnecting(): boolean {
    return this.state === 'connecting';
  }

  get isClosed(): boolean {
    return !this.#client.isOpen;
  }

  get isCluster(): boolean {
    return (this.#client as Partial<Cluster>).slots !== undefined;
  }

  get lastError(): Error | null {
    return this.#connection.lastError;
  }

  onceConnected(callback: () => void): void {
    this.#connection.onceConnected(callback);
  }

  evalsha(sha1: string, args: ScriptArguments): Promise<unknown> {
    if (!this.#client.isOpen) return Promise.reject(this.#notOpen());
    if (!this.#single) return this.#client.evalSha(sha1, scriptOptions(args));
    const [keyCount, ...keysAndValues] = args;
    const words = ['EVALSHA', sha1, `${keyCount}`, ...keysAndValues];
    return this.#single.sendCommand(words, ORDERED_OPTIONS);
  }

  eval(source: string, args: ScriptArguments): Promise<unknown> {
    return this.#client.eval(source, scriptOptions(args));
  }

  async configGet(parameter: string): Promise<string | null> {
    const settings: unknown = await this.#client.configGet?.(parameter);
    const value: unknown = Object(settings)[parameter];
    return typeof value === 'string' ? value : null;
  }

  subscribe(channel: string, listener: ChannelListener): (() => void) | null {
    // With this option, a Cluster connects only to the server that it subscribes on.
    const subscriber = this.#client.duplicate?.({ minimizeConnections: true });
    if (!subscriber) return null;
    const onMessage = (message: string): void => listener.onMessage(message);
    // May run twice. The second call only confirms the subscription again.
    const listen = (): void => {
      subscriber.subscribe(channel, onMessage).then(
        () => listener.onListening(),
        () => {},
      );
    };
    subscriber.on('error', () => listener.onLost());
    subscriber.on('ready', listen);
    subscriber.connect().then(listen, () => listener.onFailed());
    return () => void close(subscriber);
  }

  spare(): SpareClient | null {
    const spare = this.#client.duplicate?.();
    if (!spare) return null;
    const adapter = new NodeRedisAdapter(spare as unknown as NodeRedisClient);
    spare.connect().catch(() => {});
    return Object.assign(adapter, { close: () => void close(spare) });
  }

  /**
   * Uses a client of its own for one server. A Cluster client would move its sharded subscriptions
   * itself. If that fails, the process ends.
   */
  subscribeSharded(channel: string, listener: ShardedListener): (() => void) | null {
    const cluster = this.#client as Client & Cluster;
    const master = cluster.slots?.[slotOf(channel)]?.master;
    if (!master) return null;
    let subscriber: ShardedSubscriber | null = null;
    const subscription = new ShardedSubscription(
      () => subscriber && void close(subscriber),
      listener,
    );
    const listen = async (): Promise<void> => {
      const server = await cluster.nodeClient(master);
      if (subscription.isOver) return;
      const socket = { ...server.options?.socket, reconnectStrategy: false };
      subscriber = server.duplicate({ socket });
      subscriber.on('error', subscription.lost);
      subscriber.on('sharded-channel-moved', subscription.lost);
      await subscriber.connect();
      await subscriber.sSubscribe(channel, (message) => listener.onMessage(message));
    };
    listen().catch(subscription.failed);
    return subscription.close;
  }

  /** node-redis says only that the client is closed. Most owners forgot to connect it. */
  #notOpen(): Error {
    const { lastError: cause } = this.#connection;
    const hint = cause ? 'it has given up' : 'await its connect() first';
    return new Error(`the node-redis client is not open: ${hint}`, cause ? { cause } : undefined);
  }
}

function scriptOptions([keyCount, ...keysAndValues]: ScriptArguments): NodeRedisScriptOptions {
  return { keys: keysAndValues.slice(0, keyCount), arguments: keysAndValues.slice(keyCount) };
}

/** node-redis 5 throws if the connection is closed already. */
async function close(subscriber: Pick<Subscriber, 'destroy'>): Promise<void> {
  try {
    await subscriber.destroy();
  } catch {}
}
