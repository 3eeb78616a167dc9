import type { ChannelListener, NodeClient, ScriptArguments } from '../client.js';
import { Connection, type ConnectionEvents } from './connection.js';

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
  readonly options?: { readonly socket?: { readonly host?: string; readonly port?: number } };
  eval(source: string, options: NodeRedisScriptOptions): Promise<unknown>;
  configGet?(parameter: string): Promise<unknown>;
  duplicate?(overrides?: object): Subscriber;
}

interface Subscriber extends ConnectionEvents {
  connect(): Promise<unknown>;
  subscribe(channel: string, onMessage: (message: string) => void): Promise<unknown>;
  destroy(): unknown;
}

/** node-redis 5 and later. */
export class NodeRedisAdapter implements NodeClient {
  readonly isOrdered: boolean;
  /** The owner's client, with our settings for each command. */
  readonly #client: Client;
  readonly #connection: Connection;

  constructor(client: NodeRedisClient) {
    this.isOrdered = (client as Client).isPubSubActive !== undefined;
    // Replies are strings, even if the owner maps them to other types. With one connection, no
    // command waits in the client. So none needs the time limit, which costs a timer each.
    const options = this.isOrdered ? { typeMapping: {}, timeout: undefined } : { typeMapping: {} };
    // The owner's object may have lost its events. After `once`, they arrive at its prototype only.
    // This object inherits from the same prototype.
    this.#client = client.withCommandOptions(options) as Client;
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

  get lastError(): Error | null {
    return this.#connection.lastError;
  }

  onceConnected(callback: () => void): void {
    this.#connection.onceConnected(callback);
  }

  evalsha(sha1: string, args: ScriptArguments): Promise<unknown> {
    if (!this.#client.isOpen) return Promise.reject(this.#notOpen());
    return this.#client.evalSha(sha1, scriptOptions(args));
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
    // If the subscription exists already, it is only confirmed again.
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
async function close(subscriber: Subscriber): Promise<void> {
  try {
    await subscriber.destroy();
  } catch {}
}
